"""Equal modules in a row are one line of the report's tree and one tile of its map, until they are opened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from selenium.webdriver.common.keys import Keys

import clearstate as cs
from clearstate.formats import t7
from clearstate.inventory import Entry, Inventory
from clearstate.report.columns import columns
from clearstate.roles import Role
from clearstate.wording import size_text

from .conftest import Page

Open = Callable[..., Page]


def layered(layers: int = 12, experts: int = 5, odd: int | None = None) -> Inventory:
    """A net of equal layers with equal experts in them; one of the layers may be larger. Names are by the alphabet."""
    modules, entries = {"": "Net", "head": "Linear", "layers": "ModuleList"}, []
    for i in sorted(range(layers), key=str):
        home = f"layers.{i}"
        modules |= {home: "my.Block", f"{home}.mlp": "MLP", f"{home}.mlp.experts": "ModuleList"}
        for k in range(experts):
            path = f"{home}.mlp.experts.{k}"
            modules[path] = "Linear"
            entries.append(Entry(f"{path}.weight", path, "torch.Tensor", Role.PARAMETER, 4000, "x", "float32", (1000,)))
        size = 2000 + 400 * (i == odd)
        entries.append(Entry(f"{home}.mlp.mask", f"{home}.mlp", "t", Role.BUFFER, size, "x", "float32", (size // 4,)))
    entries.append(Entry("head.weight", "head", "torch.Tensor", Role.PARAMETER, 4000, "x", "float32", (1000,)))
    return Inventory("net.pt", "a checkpoint", sum(entry.bytes for entry in entries), tuple(entries), modules)


def lines(page: Page) -> list[str]:
    """The lines of the tree, indented by level."""
    script = """return [...document.querySelectorAll("#lines tr[data-line]")]
        .map((row) => " ".repeat(row.ariaLevel - 1) + row.cells[0].textContent)"""
    found: list[str] = page.run(script)
    return found


def active(page: Page) -> str:
    return "".join(page.texts("#lines tr.active td:first-child"))


def focus(page: Page) -> None:
    page.run("document.getElementById('lines').focus()")


def test_rows_are_those_of_equal_modules_and_modules_are_in_natural_order() -> None:
    found = columns(layered(odd=4))
    assert found["equal"]["text"][:2] == ["layers.0-3: 4 x Block", "layers.5-11: 7 x Block"]
    assert found["equal"]["path"][:2] == ["layers.0-3", "layers.5-11"]
    assert "layers.7.mlp.experts.0-4" in found["equal"]["path"]
    paths = found["modules"]["path"]
    assert [paths[i] for i in found["equal"]["modules"][1]] == [f"layers.{i}" for i in range(5, 12)]
    assert [path for path in paths if path.count(".") == 1] == [f"layers.{i}" for i in range(12)]
    assert all(above < i for i, above in enumerate(found["modules"]["above"]))


def test_modules_that_are_equal_before_but_not_after_are_no_row() -> None:
    assert columns(layered())["equal"]["text"][0] == "layers.0-11: 12 x Block"
    assert columns(layered(), layered(odd=0))["equal"]["text"][0] == "layers.1-11: 11 x Block"


def test_live_modules_and_torch7_files_have_rows_as_in_the_terminal() -> None:
    net = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(5)))
    assert columns(cs.inspect(net))["equal"] == {
        "path": ["0-4"],
        "text": ["0-4: 5 x Linear"],
        "modules": [[1, 2, 3, 4, 5]],
    }
    layers = [t7.Object("nn.Linear", t7.Table(weight=t7.Tensor.of([1.0]))) for _ in range(11)]
    found = columns(cs.inspect(t7.Object("nn.Sequential", t7.Table(modules=t7.Table.of(layers)))))["equal"]
    assert (found["path"], found["text"]) == (["modules[1-11]"], ["(1-11): 11 x nn.Linear"])


def test_the_tree_shows_equal_layers_as_one_line_that_opens(opened: Open) -> None:
    page = opened(layered())
    assert lines(page) == ["Net", " head", " layers", "  layers.0-11: 12 x Block"]
    cells = page.texts("#lines tr[data-line='3'] td")
    assert cells == ["layers.0-11: 12 x Block", "my.Block", size_text(12 * 22_000), "98.5%"]
    page.all("#lines tr[data-line='3'] .sign")[0].click()
    assert lines(page)[4:] == [f"   {i}" for i in range(12)]
    page.all("#lines tr[data-line='3'] .sign")[0].click()
    assert len(lines(page)) == 4


def test_the_tree_is_walked_and_opened_by_keys_and_shows_its_modules_in_the_map(opened: Open) -> None:
    page = opened(layered())
    focus(page)
    page.press(Keys.END)
    assert active(page) == "layers.0-11: 12 x Block"
    page.press(Keys.ARROW_RIGHT)
    assert page.all("#lines tr.active")[0].get_attribute("aria-expanded") == "true"
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.SPACE, Keys.ARROW_DOWN, Keys.ENTER)
    assert active(page) == "mlp"
    assert page.crumbs() == ["Net", "layers ModuleList", "layers.0-11: 12 x Block", "1 my.Block", "mlp MLP"]
    page.press(Keys.ARROW_LEFT)
    assert active(page) == "1"
    page.press(Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    assert lines(page) == ["Net", " head", " layers", "  layers.0-11: 12 x Block"]
    page.press(Keys.HOME, Keys.ARROW_LEFT)
    assert lines(page) == ["Net"]


def test_the_map_draws_a_row_as_one_tile_with_what_is_in_one_of_them_as_large_as_all(opened: Open) -> None:
    page = opened(layered())
    page.run("document.querySelector('#maps .canvas').focus()")
    said = page["said"]
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert said.text.startswith("layers.0-11 · layers.0-11: 12 x Block · 264 kB, ")
    page.press(Keys.ARROW_DOWN)
    assert said.text.startswith("layers.0-11.mlp · MLP · 264 kB, ")
    page.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert said.text.startswith("layers.0-11.mlp.experts.0-4 · ")
    page.press(Keys.ARROW_DOWN)
    assert said.text.startswith(
        "layers.0-11.mlp.experts.0-4.weight · torch.Tensor, float32 1000 · parameter: x · 240 kB, "
    )
    page.press(Keys.ENTER)
    assert page.crumbs()[-1] == "layers.0-11: 12 x Block"
    page.press(Keys.ARROW_DOWN)
    assert said.text.startswith("layers.0 · my.Block · 22.0 kB, ")
    page.press(Keys.ENTER)
    assert page.crumbs()[-1] == "0 my.Block"
    page.press(Keys.ESCAPE, Keys.ESCAPE, Keys.ESCAPE)
    assert page.crumbs() == ["Net"]


def test_a_piece_of_the_table_is_shown_in_its_own_layer(opened: Open) -> None:
    page = opened(layered())
    page.search("layers.7.mlp.experts.3")
    page.soon(lambda: len(page.rows()) == 1)
    page.all("#table tr[data-at]")[0].click()
    assert page["said"].text.startswith("layers.7.mlp.experts.3.weight · ")
    assert page.crumbs()[2:4] == ["layers.0-11: 12 x Block", "7 my.Block"]


def test_before_and_after_have_the_same_rows(opened: Open) -> None:
    page = opened(layered(), layered(odd=0))
    assert "  layers.1-11: 11 x Block" in lines(page)
    cells = page.texts("#lines tr[data-line]:last-child td, #lines tr[data-line] td")
    at = cells.index("layers.1-11: 11 x Block")
    assert cells[at : at + 5] == ["layers.1-11: 11 x Block", "my.Block", "242 kB", "242 kB", "90.3%"]


@pytest.mark.parametrize("equal", [True, False])
def test_100_000_pieces_make_a_tree_of_no_more_rows_than_a_screen_holds(opened: Open, equal: bool) -> None:
    modules, entries = {"": "Net", "layers": "ModuleList"}, []
    for i in range(10_000):
        home = f"layers.{i}"
        modules[home] = "Linear"
        for k in range(10):
            size = 400 if equal else 400 + 4 * (i % 2)
            entries.append(Entry(f"{home}.w{k}", home, "t", Role.PARAMETER, size, "x", "float32", (size // 4,)))
    page = opened(Inventory("x", "y", sum(e.bytes for e in entries), tuple(entries), modules))
    focus(page)
    page.press(Keys.END, Keys.ARROW_RIGHT, Keys.END)
    page.soon(lambda: active(page) == "9999")
    assert int(page.run("return document.querySelectorAll('#lines *').length")) < 500
    assert page.run("return document.getElementById('lines').getAttribute('aria-rowcount')") == str(10_003 + equal)
    page.press(Keys.ENTER)
    assert page.crumbs()[-1] == "9999 Linear"


def test_a_model_without_modules_has_no_tree_and_one_without_rows_no_word_of_them(opened: Open) -> None:
    piece: Any = Entry("w", "", "t", Role.PARAMETER, 8, "x", "float32", (2,))
    assert not opened(Inventory("x", "y", 8, (piece,)))["tree"].is_displayed()
    page = opened(cs.inspect(torch.nn.Sequential(torch.nn.Linear(2, 2))))
    assert page["tree"].is_displayed()
    assert not page["equal"].is_displayed()
