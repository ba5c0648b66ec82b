"""What every rank does in `test_distributed`: its processes are forked by one that has loaded PyTorch and done nothing.

``python -m tests.live.ranks WORLD FOLDER`` writes what each rank found to ``FOLDER/rank-0-of-2.json``.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn import Linear, Module, Parameter, Sequential
from torch.nn.parallel import DistributedDataParallel

import clearstate as cs

dcp: Any = torch.distributed.checkpoint

PATIENCE = timedelta(seconds=15)
"""How long a rank waits for the others in a collective that they do not come to."""


class Layer(Module):
    """Keeps its output, in an attribute, a list and a dict, beside a constant."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.project = Linear(size, size)
        self.stride = torch.tensor(2.0)
        self.seen: Tensor | None = None
        self.outputs: list[Tensor] = []
        self.maps: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(x) / self.stride
        self.seen, self.maps["y"] = y, y
        self.outputs.append(y)
        return y

    def is_bare(self) -> bool:
        return self.seen is None and self.outputs == [] and self.maps == {} and float(self.stride) == 2


def net() -> Any:
    """Sizes that neither 2 nor 4 ranks share evenly."""
    torch.manual_seed(1)
    return Sequential(Layer(6), Layer(6))


def step(model: Any, factor: float = 1.0) -> Tensor:
    torch.manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    output: Tensor = model(factor * torch.randn(3, 6))
    output.sum().backward()  # type: ignore[no-untyped-call]
    return output.detach()


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def bits(model: Module) -> dict[str, Tensor]:
    """A copy of this rank's part of the state."""
    return {name: local(value).detach().clone() for name, value in model.state_dict().items()}


@contextmanager
def no_collective() -> Iterator[None]:
    """Refuses any communication of ranks inside."""
    with CommDebugMode() as watch:  # type: ignore[no-untyped-call]
        yield
    assert not watch.get_total_counts(), watch.get_comm_counts()


def clears_and_goes_on(wrapped: Any, layers: list[Layer]) -> None:
    """Clearing takes what must go, leaves what must stay, and the next step is the one that it would have been."""
    expected = step(wrapped)
    objects = dict(wrapped.named_parameters())
    before = bits(wrapped)
    with no_collective():
        assert cs.inspect(wrapped).select("transient")
        assert cs.clear_state(wrapped) is wrapped
        assert not cs.inspect(wrapped).select("transient")
    assert all(layer.is_bare() for layer in layers)
    assert all(parameter is objects[name] for name, parameter in wrapped.named_parameters())
    after = bits(wrapped)
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert torch.equal(step(wrapped), expected)
    cs.clear_state(wrapped)
    assert all(layer.is_bare() for layer in layers)


def ddp(folder: Path) -> None:
    model = net()
    clears_and_goes_on(DistributedDataParallel(model), list(model))


def fsdp1(folder: Path) -> None:
    model = net()
    clears_and_goes_on(
        FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True), list(model)
    )


def sharded(mesh: DeviceMesh | None = None) -> Any:
    model = net()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def fsdp2(folder: Path) -> None:
    model = sharded()
    clears_and_goes_on(model, list(model))
    assert all(isinstance(parameter, DTensor) for parameter in model.parameters())


def compiled_fsdp2(folder: Path) -> None:
    model = sharded()
    compiled: Any = torch.compile(model, backend="eager")
    assert cs.unwrap(compiled) is model
    clears_and_goes_on(compiled, list(model))


def fsdp2_with_a_baseline(folder: Path) -> None:
    """What `fully_shard` makes at the first forward is not taken for something that work left."""
    model = sharded()
    with cs.observe(model) as baseline:
        expected = step(model)
    with no_collective():
        cs.clear_state(model, baseline=baseline)
    assert all(layer.is_bare() for layer in model)
    assert torch.equal(step(model), expected)


def cleared_in_the_middle_of_backward(folder: Path) -> None:
    """A stand-in taken while gradients flow has nothing of the work and can be saved; the step ends as without it."""
    model, plain = sharded(), sharded()
    expected = step(plain)
    objects = dict(model.named_parameters())
    taken: list[Any] = []

    def middle(grad: Tensor) -> None:
        with no_collective(), cs.cleared(model) as light:
            assert all(layer.is_bare() for layer in light)
            assert not any(layer.is_bare() for layer in model)
            taken.append({name: local(value).detach().clone() for name, value in light.state_dict().items()})

    torch.manual_seed(dist.get_rank())
    before = bits(model)
    output = model(torch.randn(3, 6))
    model[0].seen.register_hook(middle)
    output.sum().backward()
    assert len(taken) == 1
    assert taken[0].keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in taken[0].items())
    assert torch.equal(output.detach(), expected)
    assert all(parameter is objects[name] for name, parameter in model.named_parameters())
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(local(ours.grad), local(theirs.grad))


def a_sample(folder: Path) -> None:
    """With a sample on every rank, tables made without a graph are proved unneeded, and training goes on."""
    for wrapped in (sharded(), DistributedDataParallel(net())):
        layers: Any = list(cs.unwrap(wrapped).children())
        expected = step(wrapped)
        before = bits(wrapped)
        for layer in layers:
            layer.seen = torch.ones(3)
        x = torch.randn(3, 6)
        cs.clear_state(wrapped, sample=x)
        assert all(layer.is_bare() for layer in layers)
        assert all(torch.equal(value, before[name]) for name, value in bits(wrapped).items())
        assert torch.equal(step(wrapped), expected)


def dtensor(folder: Path) -> None:
    """Attributes that are ``DTensor`` themselves: by the same evidence, and counted as this rank has them."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    layer: Any = Linear(6, 6, bias=False)
    layer.weight = Parameter(distribute_tensor(layer.weight.detach(), mesh, [Shard(0)]))
    layer.mesh = mesh
    layer.anchors = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
    layer.view = layer.weight.view(6, 6)
    layer.squared = layer.weight * layer.weight
    anchors, weight = layer.anchors, layer.weight
    with no_collective():
        pieces = [entry for entry in cs.inspect(layer).entries if entry.role is not cs.Role.SLACK]  # of uneven shares
        found = {entry.path: (str(entry.role), entry.evidence, entry.bytes) for entry in pieces}
        rows = local(weight).shape[0]
        assert found == {
            "weight": ("parameter", "structural", rows * 24),
            "view": ("parameter", "alias", 0),
            "squared": ("transient", "computed", rows * 24),
            "anchors": ("unknown", "none", 32 // dist.get_world_size()),
        }, found
        cs.clear_state(layer)
    assert not hasattr(layer, "squared")
    assert layer.anchors is anchors
    assert layer.weight is weight
    assert layer.mesh is mesh
    assert local(layer.view).data_ptr() == local(weight).data_ptr()
    layer.mesh = None
    again = copy.deepcopy(layer)
    assert torch.equal(local(again.weight), local(weight))


def one_rank_alone(folder: Path) -> None:
    """One rank clears, inspects and makes a stand-in while the others do nothing: nobody is waited for."""
    model = sharded()
    expected = step(model)
    for alone in range(dist.get_world_size()):
        if dist.get_rank() == alone:
            cs.inspect(model)
            with cs.cleared(model) as light:
                assert all(layer.is_bare() for layer in light)
            cs.clear_state(model)
            assert all(layer.is_bare() for layer in model)
        dist.barrier()
    assert torch.equal(step(model), expected)


def every_rank_the_same(folder: Path) -> None:
    """All ranks find the same pieces in the same roles, whatever their shares are."""
    model = sharded()
    step(model)
    mine = [(entry.path, str(entry.role), entry.evidence) for entry in cs.inspect(model).entries]
    everyones: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyones, [piece for piece in mine if not piece[0].endswith("<unseen>")])
    assert all(other == everyones[0] for other in everyones)


def the_watch_sees_collectives(folder: Path) -> None:
    """`no_collective` would notice one."""
    try:
        with no_collective():
            dist.all_reduce(torch.ones(1))
    except AssertionError:
        return
    raise AssertionError("an all_reduce was not noticed")


def saved(folder: Path) -> None:
    """Saves a trained and cleared model, and what it answers, for another number of ranks to load."""
    model = sharded()
    step(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(0.1 * parameter.grad)
    cs.clear_state(model, drop=["gradient"])
    world = dist.get_world_size()
    dcp.save({"model": get_model_state_dict(model)}, checkpoint_id=folder / f"model-of-{world}")
    answer = model(torch.ones(1, 6))
    if dist.get_rank() == 0:
        torch.save(answer.detach(), folder / f"answer-of-{world}.pt")


def loaded(folder: Path) -> None:
    """Loads what two ranks saved into a model of as many ranks as there are here, and clears that."""
    if dist.get_world_size() == 2:
        return
    model = sharded()
    step(model)
    cs.clear_state(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    state = get_model_state_dict(model)
    dcp.load({"model": state}, checkpoint_id=folder / "model-of-2")
    model.load_state_dict(state)
    answer = model(torch.ones(1, 6)).detach()
    assert torch.equal(answer, torch.load(folder / "answer-of-2.pt"))
    cs.clear_state(model)
    assert torch.equal(model(torch.ones(1, 6)).detach(), answer)


CHECKS: dict[str, Callable[[Path], None]] = {
    check.__name__: check
    for check in (
        the_watch_sees_collectives,
        ddp,
        fsdp1,
        fsdp2,
        compiled_fsdp2,
        fsdp2_with_a_baseline,
        cleared_in_the_middle_of_backward,
        a_sample,
        dtensor,
        one_rank_alone,
        every_rank_the_same,
        saved,
        loaded,
    )
}


def run(rank: int, world: int, folder: Path) -> None:
    """All checks on one rank, one after the other; what failed is written down."""
    torch.set_num_threads(1)
    place = f"file://{folder / f'store-of-{world}'}"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=world, timeout=PATIENCE)
    found: dict[str, str] = {}
    for name, check in CHECKS.items():
        try:
            check(folder)
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc()
        (folder / f"rank-{rank}-of-{world}.json").write_text(json.dumps(found))
        if found[name]:  # the others wait for this rank in vain
            os._exit(1)
    dist.barrier()
    dist.destroy_process_group()


def main(world: int, folder: Path) -> int:
    warnings.simplefilter("ignore")
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                run(rank, world, folder)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])))
