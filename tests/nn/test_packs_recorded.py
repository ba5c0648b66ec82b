"""Every case that Torch7 recorded of dpnn's and rnn's classes: as nn's own, number for number and field for field."""

from __future__ import annotations

from typing import Any

import pytest

import clearstate as cs
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Table
from clearstate.nn.t7.files import to_graph, to_live
from tests.nn import test_promises as promises
from tests.nn import test_recorded as recorded
from tests.nn import test_written as written
from tests.recordings import PACKS, case, names

pytestmark = pytest.mark.filterwarnings("default")


@pytest.mark.parametrize("name", names(PACKS))
def test_the_protocol_gives_torch7s_output_and_gradients(name: str) -> None:
    recorded.test_the_protocol_gives_torch7s_output_and_gradients(name)


@pytest.mark.parametrize("name", names(PACKS))
def test_plain_autograd_gives_torch7s_output_and_gradients(name: str) -> None:
    recorded.test_plain_autograd_gives_torch7s_output_and_gradients(name)


@pytest.mark.parametrize("name", names(PACKS))
def test_every_class_keeps_the_three_promises(name: str) -> None:
    promises.test_every_class_keeps_the_three_promises(name)


@pytest.mark.parametrize("name", names(PACKS))
def test_every_class_is_the_same_after_a_file_a_pickle_and_a_copy(name: str) -> None:
    promises.test_every_class_is_the_same_after_a_file_a_pickle_and_a_copy_in_use_and_cleared(name)


@pytest.mark.parametrize("name", names(PACKS))
def test_a_plain_call_leaves_nothing_behind(name: str) -> None:
    promises.test_a_plain_call_leaves_nothing_behind(name)


def at(value: Any, path: str) -> Any:
    """What is at a path of a graph: several may lead to one object, and either file may name another one first."""
    for name in path.split(".")[1:]:
        table = value.state if isinstance(value, Object) else value
        value = table.get(float(name) if name.isdigit() else name) if isinstance(table, Table) else None
    return value


@pytest.mark.parametrize("name", names(PACKS))
def test_a_module_is_written_with_every_field_that_torch7_wrote(name: str) -> None:
    cleared = cs.clear_state(t7.load(case(name) / "before.t7"))
    ours = to_graph(to_live(t7.load(case(name) / "before.t7")).clear_state())
    assert t7.compare(cleared, ours) == []
    theirs = written.fields(cleared)
    assert {path: kind for path, kind in theirs.items() if written.kinds(at(ours, path)) != kind} == {}


@pytest.mark.parametrize("name", names(PACKS))
def test_a_module_is_the_same_after_a_file_whatever_work_left_on_it(name: str) -> None:
    written.test_a_module_is_the_same_after_a_file_whatever_work_left_on_it(name)
