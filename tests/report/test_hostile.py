"""Names in files are hostile: whatever they are, they are text in the report, and nothing of them runs."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable

import pytest
from selenium.webdriver.common.keys import Keys

import clearstate as cs
from clearstate.formats import t7
from clearstate.inventory import Entry, Graph, GraphNode, Inventory
from clearstate.report import page as page_of
from clearstate.roles import Role

from .conftest import Page

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "\"><svg onload=alert(1)>'",
    "${alert(1)}`$title$data",
    "{a|rich} {b} {c} %s \\u003cb\\u003e",
    "line\nbreak\r\x00\x1b[31m\u2028\u2029",
    "\u202etxt.exe",
    "\udcff\ud800",
    "__proto__",
    "constructor",
    "&lt;b&gt;&amp;",
    "javascript:alert(1)",
]


def hostile_model() -> Inventory:
    entries, modules = [], {"": HOSTILE[0]}
    nodes = [GraphNode(HOSTILE[0], None, ())]
    for i, name in enumerate(HOSTILE):
        path = f"modules[{i + 1}].{name}"
        modules[path] = name
        entries.append(Entry(f"{path}.{name}", path, name, list(Role)[i % 12], 1000 + i, name, name, (3,), name))
        nodes.append(GraphNode(name, path, (i, 0)))
    notes = tuple(HOSTILE)
    graph = Graph(HOSTILE[0], HOSTILE[1], tuple(nodes))
    return Inventory(HOSTILE[0], HOSTILE[2], 13_078, tuple(entries), modules, notes, (graph,))


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_adds_an_element_or_an_attribute_to_the_page(name: str) -> None:
    def tags(text: str) -> list[str]:
        return re.findall(r"<[^>]*>?", re.sub(r"(?s)<style>.*?</style>|<script>.*?</script>", "", text))

    def model(word: str) -> Inventory:
        entry = Entry(word, word, word, Role.UNKNOWN, 8, word, word, (2,), word)
        return Inventory(word, word, 8, (entry,), {"": word, word: word}, (word,), (Graph(word, word, ()),))

    plain = re.sub(r"[^/\\]", "x", name)
    assert tags(page_of(model(name))) == tags(page_of(model(plain)))


def test_the_data_of_the_page_holds_no_character_that_means_anything_in_html() -> None:
    text = page_of(hostile_model())
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    assert text.isascii() or all(ord(c) < 0x2028 or ord(c) > 0x2029 for c in text)
    assert not set(found[1]) & set("<>&\u2028\u2029\n")
    assert found[1].isascii()
    paths = json.loads(found[1])["modules"]["path"]
    assert f"modules[1].{HOSTILE[0]}" in paths
    assert "modules[8].\\u202etxt.exe" in paths  # what turns the text around it is seen, not obeyed


def test_a_page_of_names_that_are_no_text_can_be_written_at_all() -> None:
    page_of(hostile_model()).encode()


def test_a_name_of_a_million_dots_does_not_keep_anybody_waiting(opened: Callable[..., Page]) -> None:
    name = "a." * 500_000 + "w"
    entries = [Entry(name, "", "torch.FloatTensor", Role.PARAMETER, 4, "none", "float32", (1,))] * 20
    page = opened(Inventory("x", "a file", 80, tuple(entries), {"": "Net", "a": "Net", "a.a": "Net"}))
    assert len(page.rows()) == 20
    assert len(page.rows()[0][0]) == 2000
    page.press("/")
    page.search("parameter")
    page.soon(lambda: page.count() == "20 pieces, 80 B")


def test_hostile_names_run_nothing_in_a_browser_wherever_they_are_shown(opened: Callable[..., Page]) -> None:
    page = opened(hostile_model(), hostile_model())
    page.run("window.alert = () => { window.hacked = true; }")
    assert page.driver.title == HOSTILE[0].rpartition("/")[2]
    assert [html.unescape(text) for text in page.texts("#notes li")][:3] == HOSTILE[:3]
    assert page.rows()[-1][0].startswith("modules[1].</script><script>alert(1)</script>")
    assert len(page.rows()) == len(HOSTILE)
    page.run("document.querySelector('#maps .canvas').focus()")
    for _ in HOSTILE:
        page.press(
            Keys.ARROW_DOWN, Keys.ENTER, Keys.ARROW_DOWN, Keys.ESCAPE, Keys.ESCAPE, Keys.ESCAPE, Keys.ARROW_RIGHT
        )
        page.press(Keys.ARROW_RIGHT)
    page.run("document.getElementById('graph').focus()")
    page.press(Keys.ARROW_DOWN, *[Keys.ARROW_RIGHT] * len(HOSTILE))
    page.search("<img src=x")
    page.soon(lambda: len(page.rows()) == 1)
    assert page.run("return window.hacked") is None
    assert page.run("return document.scripts.length") == 3
    assert page.run("return document.querySelectorAll('img, svg, iframe, b b').length") == 0


def test_a_module_called_script_in_a_torch7_file_is_a_module_of_that_name(opened: Callable[..., Page]) -> None:
    name = HOSTILE[0]
    inner = t7.Object("nn.Linear", t7.Table(weight=t7.Tensor.of([1.0, 2.0])))
    page = opened(cs.inspect(t7.Object("nn.Sequential", t7.Table(modules=t7.Table({name: inner})))))
    assert page.rows()[0][0] == f"modules.{name}.weight"
    assert page.run("return document.scripts.length") == 3
