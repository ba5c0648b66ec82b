"""What Python writes, Torch7 can run: field by field the recorded file of the same case."""

from __future__ import annotations

from typing import Any

import pytest

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Storage, Table, Tensor
from clearstate.nn.t7.files import to_graph, to_live
from tests.nn.recorded import all_cases
from tests.recordings import case


def kinds(value: Any) -> Any:
    """The type of a field's value: its Torch7 class, or Python's name for it."""
    return value.typename if isinstance(value, Object | Tensor | Storage) else type(value).__name__


def fields(value: Any, path: str = "", seen: set[int] | None = None) -> dict[str, str]:
    """Every field of every module in a graph, with its type."""
    seen = set() if seen is None else seen
    found = {path: kinds(value)}
    if isinstance(value, Object | Table) and id(value) not in seen:
        seen.add(id(value))
        state = value.state if isinstance(value, Object) else value
        for key, item in state.items() if isinstance(state, Table) else ():
            if isinstance(key, str | float):
                found |= fields(item, f"{path}.{key:g}" if isinstance(key, float) else f"{path}.{key}", seen)
    return found


@pytest.mark.parametrize("name", all_cases())
def test_a_module_is_written_with_every_field_that_torch7_wrote(name: str) -> None:
    recorded = cs.clear_state(t7.load(case(name) / "before.t7"))
    live = to_live(t7.load(case(name) / "before.t7")).clear_state()
    written = to_graph(live)
    assert t7.compare(recorded, written) == []
    if name.startswith("gModule"):
        return  # its nodes have many paths, and no order of their own; `compare` has been to each
    theirs, ours = fields(recorded), fields(written)
    assert {path: kind for path, kind in theirs.items() if ours.get(path) != kind} == {}


@pytest.mark.parametrize("name", all_cases())
def test_a_module_is_the_same_after_a_file_whatever_work_left_on_it(name: str) -> None:
    live = to_live(t7.load(case(name) / "before.t7"))
    written = to_graph(live)
    again = to_graph(to_live(t7.loads(t7.dumps(written))))
    assert t7.compare(written, again) == []
    assert name.startswith("gModule") or fields(written) == fields(again)


def test_indices_that_modules_share_are_shared_in_python_and_in_the_next_file() -> None:
    table = Tensor.of([[1.0, 2.0], [2.0, 1.0]])
    layers = [to_graph(nn.SpatialConvolutionMap([[0, 1], [1, 0]], 3, 3)) for _ in range(3)]
    for layer in layers[:2]:
        layer["connTable"] = table
    read = to_live(Table.of(layers))
    assert read[0].conn_table is read[1].conn_table
    assert read[0].conn_table is not read[2].conn_table
    assert read[0].conn_table.tolist() == [[0, 1], [1, 0]]
    again = to_graph(read)
    assert again[1]["connTable"] is again[2]["connTable"]
    assert again[1]["connTable"] is not again[3]["connTable"]
    assert again[1]["connTable"].numpy().tolist() == [[1, 2], [2, 1]]
