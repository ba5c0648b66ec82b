"""Nets of every kind train in PyTorch's way and in Torch7's, to the same weights, and PyTorch's tools work on them."""

from __future__ import annotations

import copy
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate.nn as nn


def plain() -> Any:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.BatchNormalization(8), nn.Linear(8, 3), nn.LogSoftMax())


def convolutional() -> Any:
    return nn.Sequential(
        nn.View(1, 2, 3).set_num_input_dims(1),
        nn.SpatialConvolution(1, 4, 2, 2),
        nn.ReLU(True),
        nn.SpatialBatchNormalization(4),
        nn.View(8).set_num_input_dims(3),
        nn.Linear(8, 3),
        nn.LogSoftMax(),
    )


def residual() -> Any:
    block = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    whole = nn.Sequential(nn.ConcatTable().add(block).add(nn.Identity()), nn.CAddTable())
    return nn.Sequential(whole, nn.Linear(6, 3), nn.LogSoftMax())


def tables() -> Any:
    branches = nn.ConcatTable().add(nn.Linear(6, 4)).add(nn.Sequential(nn.Linear(6, 4), nn.Sigmoid()))
    return nn.Sequential(branches, nn.CMulTable(), nn.Linear(4, 3), nn.LogSoftMax())


def graph() -> Any:
    x = nn.Identity()()
    h = nn.Tanh()(nn.Linear(6, 5)(x))
    return nn.gModule([x], [nn.LogSoftMax()(nn.CAddTable()([nn.Linear(5, 3)(h), nn.Linear(6, 3)(x)]))])


def shared() -> Any:
    first = nn.Linear(6, 6)
    return nn.Sequential(
        first, nn.Tanh(), first.clone("weight", "bias", "grad_weight", "grad_bias"), nn.Linear(6, 3), nn.LogSoftMax()
    )


NETS: dict[str, Callable[[], Any]] = {f.__name__: f for f in (plain, convolutional, residual, tables, graph, shared)}


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(16, 6, generator=generator), torch.randint(3, (16,), generator=generator)


@pytest.fixture(params=list(NETS))
def net(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(5)
    return NETS[request.param]()


def test_both_ways_of_training_give_the_same_weights(net: Any) -> None:
    x, y = data()
    other = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    criterion = nn.ClassNLLCriterion()
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.nll_loss(net(x.clone()), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        other.zero_grad_parameters()
        assert criterion.forward(other.forward(x), y) == pytest.approx(loss.item(), abs=1e-5)
        other.backward(x, criterion.backward(other.output, y))
        other.update_parameters(0.1)
        other.clear_state()
    assert losses[-1] < losses[0]
    for a, b in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


def test_flat_parameters_train_the_net(net: Any) -> None:
    x, y = data()
    flat, grads = net.get_parameters()
    assert flat.numel() == sum(p.numel() for p in net.parameters())
    criterion = nn.CrossEntropyCriterion()
    first = None
    for _ in range(5):
        grads.zero_()
        loss = criterion.forward(net.forward(x), y)
        first = loss if first is None else first
        net.backward(x, criterion.backward(net.output, y))
        flat.add_(grads, alpha=-0.1)
        net.clear_state()
    assert loss < first
    storage = flat.untyped_storage().data_ptr()
    assert all(p.untyped_storage().data_ptr() == storage for p in net.parameters())


def test_conversions_keep_parameters_on_one_storage(net: Any) -> None:
    net.get_parameters()
    net.double()
    storages = {p.untyped_storage().data_ptr() for p in net.parameters()}
    assert len(storages) == 1
    assert {p.dtype for p in net.parameters()} == {torch.float64}
    assert net.forward(data()[0].double()).dtype == torch.float64


def test_nets_compile_into_one_graph(net: Any) -> None:
    x, _ = data()
    net.evaluate()
    compiled = torch.compile(net, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x.clone()), net(x.clone()), atol=1e-6)


def test_nets_are_exported(net: Any) -> None:
    x, _ = data()
    net.evaluate()
    program = torch.export.export(net, (x,))
    assert torch.allclose(program.module()(x.clone()), net(x.clone()), atol=1e-6)


def test_nets_are_called_with_other_parameters(net: Any) -> None:
    x, _ = data()
    net.evaluate()
    doubled = {name: 2 * p for name, p in net.named_parameters()}
    expected = copy.deepcopy(net)
    with torch.no_grad():
        for p in expected.parameters():
            p.mul_(2)
    assert torch.allclose(torch.func.functional_call(net, doubled, (x.clone(),)), expected(x.clone()), atol=1e-6)


def test_hooks_run_in_both_ways_of_calling(net: Any) -> None:
    x, _ = data()
    seen: list[str] = []
    for path, module in net.named_modules():
        if path:
            module.register_forward_hook(lambda *_, path=path: seen.append(path))
    net(x.clone())
    plain_calls, seen[:] = list(seen), []
    net.forward(x)
    assert seen == plain_calls != []


def _train(rank: int, port: int, results: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(5)
    net = torch.nn.parallel.DistributedDataParallel(residual())
    x, y = data()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.nll_loss(net(x[rank::2]), y[rank::2]).backward()
        optimizer.step()
    results[rank] = [p.detach().tolist() for p in net.parameters()]
    torch.distributed.destroy_process_group()


def test_two_processes_train_one_net() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with torch.multiprocessing.Manager() as manager:
        results = manager.dict()
        torch.multiprocessing.spawn(  # type: ignore[attr-defined]
            _train, (port, results), nprocs=2
        )
        assert results[0] == results[1]
        torch.manual_seed(5)
        net = residual()
        x, y = data()
        for _ in range(3):
            net.zero_grad()
            torch.nn.functional.nll_loss(net(x), y).backward()
            with torch.no_grad():
                for p in net.parameters():
                    p.sub_(0.1 * p.grad)
        for ours, theirs in zip(net.parameters(), results[0], strict=True):
            assert torch.allclose(ours, torch.tensor(theirs), atol=1e-5)
