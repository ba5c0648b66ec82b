"""The colours of the roles are told apart by everyone, in both themes, and what is written on them is read.

Colour-blindness is simulated as Machado, Oliveira and Fernandes give it for its strongest form (2009, table 1), and
distances are those of OKLab, in which equal steps look equally large: 0.02 is just seen.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from clearstate.roles import DROPPED_BY_DEFAULT, Role
from tests.recordings import REPO

STYLE = (REPO / "src/clearstate/report/assets/style.css").read_text(encoding="utf-8")

EYES = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
THEMES = {"light": 0, "dark": 1}


def colour(name: str, theme: str) -> np.ndarray:
    """Linear red, green and blue of a colour of the style sheet."""
    found = re.search(rf"--{name}: light-dark\(#([0-9a-f]{{6}}), #([0-9a-f]{{6}})\)", STYLE)
    assert found is not None, name
    value = np.array([int(found[1 + THEMES[theme]][i : i + 2], 16) / 255 for i in (0, 2, 4)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    cones = np.array([[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]) @ rgb
    mixed = [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
    lab: np.ndarray = np.array(mixed) @ np.cbrt(cones)
    return lab


def contrast(one: np.ndarray, other: np.ndarray) -> float:
    """The contrast of two colours as WCAG 2 counts it."""
    light, dark = sorted((float(rgb @ [0.2126, 0.7152, 0.0722]) for rgb in (one, other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("eyes", EYES)
def test_roles_are_told_apart_by_colour_with_any_kind_of_eyes(eyes: str, theme: str) -> None:
    seen = {role: oklab(np.clip(np.array(EYES[eyes]) @ colour(f"role-{role}", theme), 0, 1)) for role in Role}
    for one, other in itertools.combinations(Role, 2):
        hatched_alike = (one in DROPPED_BY_DEFAULT) == (other in DROPPED_BY_DEFAULT)
        distance = float(np.linalg.norm(seen[one] - seen[other]))
        assert distance > (0.11 if hatched_alike else 0.06), (str(one), str(other), distance)


@pytest.mark.parametrize("theme", THEMES)
def test_tiles_stand_out_from_the_page_and_their_names_are_read(theme: str) -> None:
    page = colour("card", theme)
    for role in Role:
        tile = colour(f"role-{role}", theme)
        assert contrast(tile, page) > 1.6, str(role)
        assert max(contrast(tile, np.ones(3)), contrast(tile, np.zeros(3))) > 4.5, str(role)


@pytest.mark.parametrize("theme", THEMES)
def test_text_is_read_on_everything_it_stands_on(theme: str) -> None:
    for below in ("page", "card", "level", "level2"):
        assert contrast(colour("text", theme), colour(below, theme)) > 7
    for below in ("page", "card", "level"):
        assert contrast(colour("faint", theme), colour(below, theme)) > 4.5
    assert contrast(colour("accent", theme), colour("card", theme)) > 4.5
