"""The map of the house in CONTRIBUTING.md is that of the source."""

from __future__ import annotations

import re

import pytest

from tests.recordings import REPO

PAGE = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
SOURCE = REPO / "src" / "clearstate"
WALKS = {match[1]: match[2] for match in re.finditer(r"^\* \*\*(.+?)\*\*(.+(?:\n  .+)*)", PAGE, re.M)}
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))


def test_there_are_three_walks() -> None:
    assert len(WALKS) == 3


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_names_at_most_eight_files_in_order_and_none_twice(walk: str) -> None:
    files = re.findall(r"`([\w/]+\.py)`", WALKS[walk])
    assert 4 <= len(files) <= 8
    assert len(set(files)) == len(files)
    assert [name for name in files if not (SOURCE / name).is_file()] == []


def test_each_room_on_the_map_is_there() -> None:
    drawn = PAGE[PAGE.index("```text") : PAGE.index("```", PAGE.index("```text") + 3)]
    rooms = {path.name for path in PACKAGES}
    assert {name for name in re.findall(r"(\w+)/", drawn) if name not in rooms} == set()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_each_room_says_what_lives_there(package: object) -> None:
    text = (package / "__init__.py").read_text(encoding="utf-8")  # type: ignore[operator]
    assert re.match(r'"""\w.{30,}', text)
