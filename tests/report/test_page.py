"""What a report is before any browser opens it: one whole file, told apart from every other."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
from clearstate.inventory import Entry, Inventory
from clearstate.report import page, write
from clearstate.roles import Role
from tests.recordings import EXAMPLES, REPO, case

ASSETS = REPO / "src/clearstate/report/assets"


def piece(path: str, size: int = 8, kind: str = "torch.FloatTensor") -> Entry:
    return Entry(path, "", kind, Role.PARAMETER, size, "declared", "float32", (2,))


def data(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    value: dict[str, Any] = json.loads(found[1])
    return value


def test_the_policy_allows_the_scripts_and_styles_of_the_page_by_their_hashes_and_nothing_else() -> None:
    text = page(cs.inspect(EXAMPLES / "digits.t7"))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert parts.pop("default-src") == "'none'"
    for directive, element in (("script-src", "script"), ("style-src", "style")):
        bodies = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies]
        assert hashes
        assert parts.pop(directive) == " ".join(f"'sha256-{value}'" for value in hashes)
    assert parts == {"base-uri": "'none'", "form-action": "'none'"}


def test_no_element_and_no_style_of_the_page_points_anywhere() -> None:
    text = page(cs.inspect(EXAMPLES / "digits.t7"))
    markup = re.sub(r"(?s)<script>.*?</script>", "", text)
    assert not re.findall(r"\b(?:src|href|action|data|poster|srcset)=|url\(|@import", markup)


def test_nothing_of_ours_makes_markup_of_text() -> None:
    scripts = [path for path in ASSETS.glob("*.js") if path.name != "charts.js"]
    assert len(scripts) > 3
    for path in scripts:
        assert not re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|Function\(", path.read_text()
        )


def test_totals_and_notes_are_read_without_any_script() -> None:
    found = cs.inspect(EXAMPLES / "digits.t7")
    found = Inventory(found.source, found.kind, found.size, found.entries, found.modules, ("a note & more",))
    text = re.sub(r"(?s)<script.*?</script>", "", page(found))
    assert "Torch7 file, binary, 8-byte long, <b>4.9 MB</b>, 68 pieces in 14 modules" in text
    assert "<li>a note &amp; more</li>" in text
    assert re.search(r"<tr data-role=transient>.*?outputs and work buffers.*?goes.*?38.*?4.6 MB.*?93.5%", text)


def test_a_report_of_the_same_model_is_the_same_file() -> None:
    assert page(cs.inspect(EXAMPLES / "digits.t7")) == page(cs.inspect(EXAMPLES / "digits.t7"))
    assert cs.inspect(EXAMPLES / "digits.t7").to_html() == page(cs.inspect(EXAMPLES / "digits.t7"))


def test_pieces_before_and_after_are_matched_by_path_and_class() -> None:
    before = Inventory("a", "k", 24, (piece("x"), piece("x", 4, "function"), piece("gone", 12)))
    after = Inventory("b", "k", 10, (piece("x", 4, "function"), piece("x", 5), piece("new", 1)))
    found = data(page(before, after))["pieces"]
    assert list(zip(found["rest"], found["before"], found["after"], strict=True)) == [
        ("x", 8, 5),
        ("x", 4, 4),
        ("gone", 12, None),
        ("new", None, 1),
    ]


def test_bytes_on_the_page_add_up_to_the_sizes_of_both_files() -> None:
    done = cs.clear_file(EXAMPLES / "digits.t7", dry_run=True)
    found = data(page(done.before, done.after))
    assert sum(n or 0 for n in found["pieces"]["before"]) == done.before.size
    assert sum(n or 0 for n in found["pieces"]["after"]) == done.after.size


def test_an_empty_model_has_a_report() -> None:
    found = data(page(Inventory("", "nothing", 0, ())))
    assert found["pieces"]["home"] == []


def test_a_live_module_has_a_report() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2))
    found = data(cs.inspect(model).to_html())
    assert found["modules"] == {"path": ["", "0"], "type": ["Sequential", "Linear"], "above": [-1, 0]}
    assert found["pieces"]["rest"] == [".weight", ".bias"]


def test_the_graph_of_a_file_is_that_of_the_net_that_the_file_makes() -> None:
    for name in ("gModule-1", "gModule-2", "gModule-3"):
        path = case(name) / "before.t7"
        (of_file,) = cs.inspect(path).graphs
        net: Any = cs.load(path)
        (of_net,) = cs.inspect(net).graphs
        assert len(of_file.nodes) == len(of_net.nodes) > 5
        for there, here in zip(of_file.nodes, of_net.nodes, strict=True):
            assert there.reads == here.reads
            assert (there.module is None) == (here.module is None)
            if there.module is not None and here.module is not None:
                assert there.label == here.label == net.get_submodule(here.module).typename


def test_programs_get_the_graph_that_the_report_draws() -> None:
    found = json.loads(cs.inspect(case("gModule-1") / "before.t7").to_json())
    (graph,) = found["graphs"]
    paths = found["modules"].keys()
    assert all(node["module"] in paths for node in graph["nodes"] if node["module"] is not None)
    assert all(before < i for i, node in enumerate(graph["nodes"]) for before in node["reads"])
    assert any(node["module"] for node in graph["nodes"])
    assert "graphs" not in cs.inspect(EXAMPLES / "digits.t7").to_dict()


def test_a_damaged_graph_is_drawn_as_far_as_it_goes_or_not_at_all() -> None:
    from clearstate.formats import t7

    def net(nodes: Any) -> t7.Object:
        return t7.Object("nn.gModule", t7.Table(modules=t7.Table(), forwardnodes=nodes))

    node = t7.Object("nngraph.Node", t7.Table(data=t7.Table(mapindex=t7.Table.of([3.0]), annotations=1.0)))
    last = t7.Object("nngraph.Node", t7.Table(data=t7.Table(mapindex=t7.Table.of([node["data"], t7.Table()]))))
    (drawn,) = cs.inspect(net(t7.Table.of([node, last]))).graphs
    assert [(step.label, step.reads) for step in drawn.nodes] == [("input", ()), ("output", (0,))]
    for nodes in (None, 1.0, "x", t7.Table(), t7.Table.of([1.0]), t7.Table.of([t7.Object("x", t7.Table(data=2.0))])):
        assert cs.inspect(net(nodes)).graphs == ()
    assert cs.inspect(net(t7.Table.of([node, node]))).graphs == ()
    assert cs.inspect(t7.Object("nn.gModule", b"")).graphs == ()


def test_a_report_replaces_a_report_and_no_other_file(tmp_path: Path) -> None:
    found = cs.inspect(EXAMPLES / "digits.t7")
    report, model = tmp_path / "report.html", tmp_path / "model.t7"
    write(report, Inventory("old", "old", 0, ()))
    write(report, found)
    assert report.read_text(encoding="utf-8") == page(found)
    model.write_bytes(b"a model")
    with pytest.raises(cs.ClearstateError, match="is no report but another file: it is left alone"):
        write(model, found)
    assert model.read_bytes() == b"a model"


def test_the_charts_that_are_shipped_are_those_that_are_pinned_and_their_licences_come_along() -> None:
    pinned = json.loads((REPO / "tools/charts/package-lock.json").read_text())["packages"]
    versions = {name.removeprefix("node_modules/"): found["version"] for name, found in pinned.items() if name}
    banner = (ASSETS / "charts.js").read_text(encoding="utf-8").splitlines()[0]
    named = dict(part.rsplit(" ", 1) for part in banner.removeprefix("/*! ").partition(": terms")[0].split(", "))
    assert {"echarts", "zrender", "@dagrejs/dagre"} <= set(named)
    assert named == {name: versions[name] for name in named}
    terms = (ASSETS / "charts-licences.txt").read_text(encoding="utf-8")
    for name, version in named.items():
        assert f"{name} {version}: LICENSE" in terms
    assert "Apache License" in terms
    assert "echarts 6.1.0: NOTICE" in terms
