"""An inventory as people see it: printed, and in a notebook."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import torch
from torch.nn import Linear, Sequential

import clearstate as cs
from clearstate.inventory import SHOWN


def worked() -> Any:
    model: Any = Sequential(Linear(3, 2))
    model[0].seen = model(torch.ones(5, 3))
    model[0].stride = torch.tensor(2.0)
    return model


def test_a_printed_inventory_says_where_the_model_is_and_how_each_piece_that_may_go_was_judged() -> None:
    lines = str(cs.inspect(worked())).splitlines()
    assert lines[0] == "Sequential: a live module on cpu, 76 B"
    assert [line.split() for line in lines[1:4]] == [
        ["transient", "40", "B", "52.6%"],
        ["parameter", "32", "B", "42.1%"],
        ["unknown", "4", "B", "5.3%"],
    ]
    assert lines[4].split() == ["0.seen", "40", "B", "transient:", "computed"]
    assert lines[5].split(maxsplit=3) == ["0.stride", "4", "B", "unknown: nothing tells what it is for"]
    assert len(lines) == 6


def test_where_much_may_go_the_largest_are_named_and_the_rest_is_counted() -> None:
    model = worked()
    model[0].seen = {i: torch.ones(10 + i, requires_grad=True) * 2 for i in range(30)}
    text = str(cs.inspect(model))
    assert "0.seen[29]" in text
    assert "0.seen[2]" not in text
    assert f"and {31 - SHOWN} more" in text


class Reader(HTMLParser):
    """Collects the words of a page, and refuses tags that are left open or that fetch or run anything.

    A frame is allowed that is cut off from the page and holds its own text.
    """

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert tag in ("div", "details", "summary", "b", "table", "tr", "th", "td", "ul", "li", "iframe")
        if tag == "iframe":
            assert dict(attributes)["sandbox"] == "allow-scripts"
            assert (dict(attributes)["srcdoc"] or "").startswith("<!doctype html>")
            assert {"src", "onload"}.isdisjoint(dict(attributes))
        else:
            assert not attributes
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(page: str) -> list[str]:
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    return reader.words


def test_a_notebook_gets_a_table_with_evidence_and_device_that_fetches_nothing() -> None:
    model = worked()
    model[0].register_forward_hook(print)
    words = read(cs.inspect(model)._repr_html_())
    assert words[0] == "Sequential: a live module on cpu, 76 B"
    at = words.index("0.seen")
    assert words[at : at + 7] == ["0.seen", "40 B", "transient", "computed", "float32", "5 x 2", "cpu"]
    assert "a forward hook, print, hangs on 0" in words


def test_whatever_a_path_is_called_it_is_text_in_the_page() -> None:
    model = worked()
    model[0].seen = {"</td><script>alert(1)</script>&": model(torch.ones(5, 3))}
    model.__class__ = type("<b onclick=x>", (Sequential,), {})
    words = read(cs.inspect(model)._repr_html_())
    assert any("<script>alert(1)</script>&" in word for word in words)
    assert words[0].startswith("<b onclick=x>: ")


def test_json_says_of_each_piece_in_memory_where_it_is() -> None:
    model = worked()
    model[0].stride = model[0].stride.to("meta")
    entries = json.loads(cs.inspect(model).to_json())["entries"]
    devices = {entry["path"]: entry["device"] for entry in entries}
    assert devices == {"0.weight": "cpu", "0.bias": "cpu", "0.seen": "cpu", "0.stride": "meta"}


def test_json_of_a_file_has_no_devices() -> None:
    from clearstate.formats import t7

    found = cs.inspect(t7.Object("nn.Identity", t7.Table(output=t7.Tensor.of([1.0, 2.0])))).to_dict()
    assert found["entries"]
    assert not any("device" in entry for entry in found["entries"])


def test_a_file_is_shown_by_its_roles_only() -> None:
    from clearstate.formats import t7

    found = cs.inspect(t7.Object("nn.Identity", t7.Table(output=t7.Tensor.of([1.0, 2.0]))))
    assert str(found).splitlines()[0] == "nn.Identity: Torch7 objects, 16 B"
    assert len(str(found).splitlines()) == 2
    assert read(found._repr_html_())[-3:] == ["transient", "16 B", "100.0%"]
