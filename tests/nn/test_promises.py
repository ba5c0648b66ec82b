"""The three promises, for every recorded case: as constructed, references survive, nothing is lost."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.nn.protocol.ownership import mapped, tensors
from clearstate.nn.protocol.stateful import KEPT
from clearstate.testing import check_io, check_promises
from tests.nn.recorded import all_cases, read


@pytest.mark.parametrize("name", all_cases())
def test_every_class_keeps_the_three_promises(name: str) -> None:
    recorded = read(name)
    check_promises(recorded.module, recorded.input, recorded.target)


@pytest.mark.parametrize("name", all_cases())
def test_every_class_is_the_same_after_a_file_a_pickle_and_a_copy_in_use_and_cleared(name: str) -> None:
    recorded = read(name, draws=False)
    check_io(recorded.module, recorded.input, recorded.target)


@pytest.mark.parametrize("name", all_cases())
def test_a_plain_call_leaves_nothing_behind(name: str) -> None:
    recorded = read(name)
    module = recorded.module.clear_state()
    before = {path: {*m.__dict__, *KEPT} for path, m in module.named_modules()}
    input = mapped(recorded.input, lambda t: t.clone())
    module(input, recorded.target) if isinstance(module, nn.Criterion) else module(input)
    assert {path: {*m.__dict__, *KEPT} for path, m in module.named_modules()} == before
    assert cs.inspect(module).by_role().get(cs.Role.TRANSIENT, 0) == 0


def test_no_tensor_of_work_lives_after_clearing_nor_a_net_after_its_last_reference() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.ConcatTable().add(nn.Identity()).add(nn.Linear(4, 2)))
    x = torch.randn(5, 3)
    gc.collect()
    gc.disable()
    try:
        net.forward(x)
        net.backward(x, [torch.ones(5, 4), torch.ones(5, 2)])
        watched = [weakref.ref(t.untyped_storage()) for t in tensors([m.output for m in net.modules()])]
        net.clear_state()
        assert not [ref for ref in watched if ref() is not None]
        net.forward(x)
        alive = weakref.ref(net)
        del net
        assert alive() is None, "a net that was run is freed without the garbage collector"
    finally:
        gc.enable()
