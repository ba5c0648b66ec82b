"""What Torch7's own clearState gets wrong, and what is right here: one test a fault."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate as cs
import clearstate.nn as nn
from clearstate.nn.protocol.ownership import mapped, tensors
from clearstate.nn.protocol.stateful import KEPT
from clearstate.nn.t7.files import to_graph
from clearstate.testing import check_promises
from tests.nn.recorded import read

Made = Callable[[], tuple[Any, Any]]
"""Makes a module and an input."""


def worked(module: Any, input: Any) -> Any:
    """The module after a forward and a backward."""
    output = module.forward(input)
    module.backward(input, mapped(output, torch.ones_like))
    return module


def images(*size: int) -> Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(0)) + 0.1


PASSING: dict[str, Made] = {
    "SelectTable": lambda: (nn.SelectTable(1), [images(2, 3), images(4)]),
    "Identity": lambda: (nn.Identity(), images(2, 3)),
    "Identity of a table": lambda: (nn.Identity(), [images(2, 3), [images(4)]]),
    "ReLU in place": lambda: (nn.ReLU(True), images(2, 3)),
    "a net that begins in place": lambda: (nn.Sequential(nn.Threshold(0.5, 0.1, True), nn.Square()), images(2, 3)),
    "ParallelTable": lambda: (nn.ParallelTable().add(nn.Identity()).add(nn.Tanh()), [images(2), images(3)]),
    "ConcatTable": lambda: (nn.ConcatTable().add(nn.Identity()).add(nn.Identity()), images(2)),
    "FlattenTable": lambda: (nn.FlattenTable(), [images(2), [images(3), images(4)]]),
    "NarrowTable": lambda: (nn.NarrowTable(0, 2), [images(2), images(3), images(4)]),
    "ZipTable": lambda: (nn.ZipTable(), [[images(2), images(3)], [images(2), images(3)]]),
    "L1Penalty": lambda: (nn.L1Penalty(0.1), images(3)),
    "Contiguous": lambda: (nn.Contiguous(), images(3)),
    "View": lambda: (nn.View(6), images(2, 3)),
    "Select": lambda: (nn.Select(0, 1), images(2, 3)),
    "Narrow": lambda: (nn.Narrow(0, 0, 1), images(2, 3)),
    "Dropout in evaluation": lambda: (nn.Dropout(0.5).evaluate(), images(2, 3)),
    "WhiteNoise in evaluation": lambda: (nn.WhiteNoise().evaluate(), images(2, 3)),
    "MapTable": lambda: (nn.MapTable(nn.Identity()), [images(2), images(3)]),
    "GradientReversal": lambda: (nn.GradientReversal(), images(2)),
}


@pytest.mark.parametrize("name", PASSING)
def test_clearing_leaves_the_callers_input_as_it_was(name: str) -> None:
    module, input = PASSING[name]()
    before = mapped(input, lambda t: t.clone())
    held = list(tensors(input))
    worked(module, input).clear_state()
    assert [t is h for t, h in zip(tensors(input), held, strict=True)] == [True] * len(held)
    assert all(torch.equal(a, b) for a, b in zip(tensors(input), tensors(before), strict=True))


def test_clearing_leaves_what_the_caller_gave_to_backward() -> None:
    net, grad = nn.Identity(), torch.ones(3)
    net.forward(torch.zeros(3))
    assert net.backward(torch.zeros(3), grad) is not grad
    net.clear_state()
    assert grad.tolist() == [1, 1, 1]


def test_clearing_printsize_leaves_the_callers_input(capsys: pytest.CaptureFixture[str]) -> None:
    x = images(2, 3)
    before = x.clone()
    worked(nn.PrintSize("here"), x).clear_state()
    assert torch.equal(x, before)
    assert "2 3" in capsys.readouterr().out.replace("x", " ").replace(",", "")


FAILING: dict[str, Made] = {
    "MM": lambda: (nn.MM(), [images(2, 3), images(3, 4)]),
    "MV": lambda: (nn.MV(), [images(2, 3), images(3)]),
    "Index": lambda: (nn.Index(0), [images(4, 3), torch.tensor([3, 0, 3])]),
    "SpatialFractionalMaxPooling": lambda: (nn.SpatialFractionalMaxPooling(2, 2, 3, 3), images(2, 3, 8, 8)),
    "VolumetricFractionalMaxPooling": lambda: (nn.VolumetricFractionalMaxPooling(2, 2, 2, 2, 2, 2), images(1, 5, 5, 5)),
    "SparseLinear": lambda: (nn.SparseLinear(10, 2), torch.tensor([[0, 0.5], [9, 2.0]])),
    "IndexLinear": lambda: (nn.IndexLinear(10, 2, True), [torch.tensor([0, 9]), torch.tensor([0.5, 2.0])]),
    "VolumetricFullConvolution of a table": lambda: (
        nn.VolumetricFullConvolution(2, 3, 3, 3, 3, 2, 2, 2),
        [images(2, 3, 3, 3), images(3, 8, 8, 8)],
    ),
    "LinearWeightNorm in evaluation": lambda: (nn.LinearWeightNorm(3, 2).evaluate(), images(4, 3)),
    "CriterionTable": lambda: (nn.CriterionTable(nn.MSECriterion()), [images(3), images(3) + 1]),
    "a graph that ends in a criterion": lambda: (graph_of_loss(), [images(2, 3), images(2, 2)]),
}


def graph_of_loss() -> Any:
    x, y = nn.Identity()(), nn.Identity()()
    loss = nn.MSECriterion()([nn.Linear(3, 2)(x), y])
    return nn.gModule([x, y], [loss])


@pytest.mark.parametrize("name", FAILING)
def test_it_works_after_clearing_as_it_did_before(name: str) -> None:
    module, input = FAILING[name]()
    check_promises(module, input)
    worked(module, input)
    if name == "CriterionTable":
        assert module.grad_input[0].shape == input[0].shape
        assert module.grad_input[0].abs().sum() > 0


def test_an_l1cost_can_be_cleared() -> None:
    loss = nn.L1Cost()
    assert loss.forward(torch.tensor([1.0, -2.0])) == 3
    loss.backward(torch.tensor([1.0, -2.0]))
    assert loss.clear_state() is loss
    assert loss.grad_input.numel() == 0


RETURNING: dict[str, Made] = {
    "Collapse": lambda: (nn.Collapse(2), images(2, 3, 4)),
    "WhiteNoise": lambda: (nn.WhiteNoise(), images(3)),
    "Convert": lambda: (nn.Convert("bf", "bf"), images(2, 3)),
    "GPU": lambda: (nn.GPU(nn.Linear(3, 2), 0), images(2, 3)),
    "Kmeans": lambda: (nn.Kmeans(2, 3), images(4, 3)),
    "MapTable": lambda: (nn.MapTable(nn.Linear(3, 2)), [images(3), images(3)]),
    "OneHot": lambda: (nn.OneHot(5), torch.tensor([0, 4])),
}


@pytest.mark.parametrize("name", RETURNING)
def test_clearing_returns_the_module_and_leaves_no_output(name: str) -> None:
    module, input = RETURNING[name]()
    module.forward(input)
    assert list(tensors(module.output))
    assert module.clear_state() is module
    assert not [t for t in tensors([module.output, module.grad_input]) if t.numel()]
    assert cs.inspect(module).by_role().get(cs.Role.TRANSIENT, 0) == 0


def test_the_clones_of_a_maptable_go_and_come_back_as_one_with_the_module() -> None:
    net: Any = nn.MapTable(nn.Linear(3, 2))
    xs = [images(3), images(3) + 1]
    first = [t.clone() for t in worked(net, xs).output]
    assert len(net) == 2
    grad = net.get(0).weight.grad.clone()
    net.clear_state()
    assert len(net) == 1
    assert torch.equal(net.get(0).weight.grad, grad)
    again = net.forward(xs)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert net.get(1).weight is net.get(0).weight


def test_clones_that_are_trained_for_themselves_stay() -> None:
    net = nn.MapTable(nn.Linear(3, 2), shared=False)
    worked(net, [images(3), images(3)]).update_parameters(1.0)
    net.clear_state()
    assert len(net) == 2
    assert net.get(0).weight is not net.get(1).weight


def test_a_dataparalleltable_is_cleared_inside() -> None:
    net = nn.DataParallelTable(0).add(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), [0, 1])
    check_promises(net, images(4, 3))
    worked(net, images(4, 3)).clear_state()
    assert all(not list(filter(Tensor.numel, tensors([m.output, m.grad_input]))) for m in net.list_modules())


@pytest.mark.parametrize(
    "make, size",
    [
        (lambda: nn.SpatialConvolution(2, 3, 3, 3), (1, 2, 5, 5)),
        (lambda: nn.SpatialConvolutionMM(2, 3, 3, 3), (1, 2, 5, 5)),
        (lambda: nn.SpatialFullConvolution(2, 3, 3, 3), (1, 2, 5, 5)),
        (lambda: nn.VolumetricConvolution(2, 3, 2, 2, 2), (1, 2, 3, 3, 3)),
        (lambda: nn.SpatialMaxPooling(2, 2), (1, 2, 4, 4)),
        (lambda: nn.Dropout(0.5), (2, 3)),
    ],
)
def test_a_change_of_type_between_forwards_changes_all_that_was_left(make: Any, size: tuple[int, ...]) -> None:
    module = make()
    worked(module, images(*size))
    module.double()
    x = images(*size).double()
    worked(module, x)
    assert {t.dtype for t in tensors([module.output, module.grad_input])} == {torch.float64}
    fresh = copy.deepcopy(module).clear_state().evaluate()
    assert torch.equal(module.evaluate().forward(x), fresh.forward(x))
    module.float()
    assert module.forward(x.float()).dtype is torch.float32


def test_clearing_keeps_the_sharing_of_gradients() -> None:
    a: Any = nn.Linear(3, 3)
    b = a.clone("weight", "bias", "grad_weight", "grad_bias")
    net = nn.Sequential(a, b)
    worked(net, images(2, 3)).clear_state()
    assert a.weight is b.weight
    assert a.weight.grad is b.weight.grad
    net.zero_grad_parameters()
    worked(net, images(2, 3))
    assert a.weight.grad is b.weight.grad
    assert a.weight.grad.abs().sum() > 0


def test_clearing_keeps_gradients_as_views_of_the_flat_one() -> None:
    net: Any = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))
    flat, grads = net.get_parameters()
    net.zero_grad_parameters()
    worked(net, images(4, 3)).clear_state()
    assert grads.abs().sum() > 0
    grads.fill_(7)
    assert {g for p in net.parameters() for g in p.grad.flatten().tolist()} == {7}
    flat.fill_(1)
    assert {w for p in net.parameters() for w in p.flatten().tolist()} == {1}


INSIDE: dict[str, Made] = {
    "SpatialContrastiveNormalization": lambda: (nn.SpatialContrastiveNormalization(2), images(2, 9, 9)),
    "SpatialSubtractiveNormalization": lambda: (nn.SpatialSubtractiveNormalization(2), images(2, 9, 9)),
    "SpatialDivisiveNormalization": lambda: (nn.SpatialDivisiveNormalization(2), images(2, 9, 9)),
    "TanhShrink": lambda: (nn.TanhShrink(), images(3)),
    "PartialLinear": lambda: (nn.PartialLinear(3, 4), images(2, 3)),
    "CriterionTable": lambda: (nn.CriterionTable(nn.MSECriterion()), [images(3), images(3) + 1]),
    "VolumetricFullConvolution": lambda: (nn.VolumetricFullConvolution(2, 1, 2, 2, 2), images(2, 3, 3, 3)),
    "SpatialFullConvolution of a table": lambda: (
        nn.SpatialFullConvolution(2, 3, 3, 3, 2, 2),
        [images(2, 3, 3), images(3, 8, 8)],
    ),
    "WeightedEuclidean": lambda: (nn.WeightedEuclidean(3, 2), images(4, 3)),
    "CMaxTable": lambda: (nn.CMaxTable(), [images(3), images(3) + 1]),
    "CMinTable": lambda: (nn.CMinTable(), [images(3), images(3) + 1]),
    "CMul": lambda: (nn.CMul(3), images(2, 3)),
    "CAdd": lambda: (nn.CAdd(3), images(2, 3)),
    "Add": lambda: (nn.Add(3), images(2, 3)),
    "Normalize": lambda: (nn.Normalize(2), images(2, 3)),
    "LayerNormalization": lambda: (nn.LayerNormalization(3), images(2, 3)),
    "DontCast": lambda: (nn.DontCast(nn.Linear(3, 2)), images(2, 3)),
    "ZipTableOneToMany": lambda: (nn.ZipTableOneToMany(), [images(2), [images(3), images(4)]]),
    "CosineDistance": lambda: (nn.CosineDistance(), [images(2, 3), images(2, 3) + 1]),
    "SpatialUpSamplingBilinear": lambda: (nn.SpatialUpSamplingBilinear(2), images(2, 3, 3)),
    "SpatialUpSamplingNearest": lambda: (nn.SpatialUpSamplingNearest(2), images(2, 3, 3)),
    "IndexLinear": lambda: (nn.IndexLinear(10, 2, True), [torch.tensor([0, 9]), torch.tensor([0.5, 2.0])]),
    "SparseLinear": lambda: (nn.SparseLinear(10, 2), torch.tensor([[0, 0.5], [9, 2.0]])),
    "WeightNorm": lambda: (nn.WeightNorm(nn.Linear(3, 2)), images(4, 3)),
    "Concat": lambda: (nn.Concat(1).add(nn.Linear(3, 2)).add(nn.Linear(3, 1)), images(4, 3)),
    "DepthConcat": lambda: (
        nn.DepthConcat(0).add(nn.SpatialConvolution(2, 1, 1, 1)).add(nn.SpatialConvolution(2, 2, 3, 3)),
        images(2, 5, 5),
    ),
    "Padding": lambda: (nn.Padding(0, 2, 1), images(3, 2)),
    "JoinTable": lambda: (nn.JoinTable(0), [images(2), images(3)]),
    "Parallel": lambda: (nn.Parallel(0, 0).add(nn.Linear(3, 2)).add(nn.Linear(3, 2)), images(2, 3)),
    "MixtureTable": lambda: (nn.MixtureTable(), [images(2, 2), [images(2, 3), images(2, 3)]]),
    "Reshape": lambda: (nn.Reshape(6), images(4, 2, 3)),
    "Bottle": lambda: (nn.Bottle(nn.Linear(3, 2)), images(4, 2, 3)),
    "SpatialMaxPooling": lambda: (nn.SpatialMaxPooling(2, 2), images(2, 4, 4)),
    "VolumetricMaxPooling": lambda: (nn.VolumetricMaxPooling(2, 2, 2), images(2, 4, 4, 4)),
    "L1Penalty": lambda: (nn.L1Penalty(0.1), images(3)),
    "Cosine": lambda: (nn.Cosine(3, 2), images(4, 3)),
}


@pytest.mark.parametrize("name", INSIDE)
def test_nothing_of_work_stays_in_a_module_nor_in_one_held_in_a_field(name: str) -> None:
    module, input = INSIDE[name]()
    module.clear_state()
    before = held(module)
    worked(module, input)
    left = held(module)
    assert left != before, "work leaves something"
    module.clear_state()
    assert held(module) == before
    check_promises(module, input)


def held(module: Any) -> dict[str, Any]:
    """Every attribute of every module inside that is no parameter or buffer: numbers, and sizes of tensors."""
    found: dict[str, Any] = {}
    for path, inner in module.named_modules():
        kept = {name: getattr(inner, name) for name in KEPT} if isinstance(inner, nn.Module | nn.Criterion) else {}
        for name, value in {**inner.__dict__, **kept}.items():
            if name not in ("_parameters", "_buffers", "_modules", "_former", "_constructed"):
                sizes = [tuple(t.shape) for t in tensors(value) if t.numel()]
                found[f"{path}.{name}"] = value if isinstance(value, int | float | str) else sizes
    return found


@pytest.mark.parametrize("kind", ["Spatial", "Volumetric"])
def test_clearing_an_unpooling_drops_its_hold_of_the_indices_and_not_the_pooling(kind: str) -> None:
    size = 2 if kind == "Spatial" else 3
    pooling = getattr(nn, f"{kind}MaxPooling")(*[2] * size)
    unpooling = getattr(nn, f"{kind}MaxUnpooling")(pooling)
    net = nn.Sequential(pooling, unpooling)
    check_promises(net, images(2, *[4] * size))
    worked(net, images(2, *[4] * size)).clear_state()
    assert unpooling.pooling is pooling
    assert pooling.indices.numel() == 0
    assert cs.inspect(net).by_role().get(cs.Role.TRANSIENT, 0) == 0


STATE: dict[str, tuple[Made, str]] = {
    "LinearWeightNorm v": (lambda: (nn.LinearWeightNorm(3, 2), images(4, 3)), "v g"),
    "WeightNorm": (lambda: (nn.WeightNorm(nn.Linear(3, 2)), images(4, 3)), "v g"),
    "WeightedEuclidean": (lambda: (nn.WeightedEuclidean(3, 2), images(4, 3)), "weight diag_cov"),
    "Constant": (lambda: (nn.Constant(torch.tensor([3.0, 4.0])), images(2, 3)), "value"),
    "SpatialConvolutionMap": (
        lambda: (nn.SpatialConvolutionMap(nn.tables.full(2, 3), 3, 3), images(2, 5, 5)),
        "conn_table",
    ),
    "SpatialSubtractiveNormalization": (lambda: (nn.SpatialSubtractiveNormalization(2), images(2, 9, 9)), "kernel"),
    "AddConstant": (lambda: (nn.AddConstant(2.5), images(3)), "constant_scalar"),
    "Kmeans": (lambda: (nn.Kmeans(2, 3), images(4, 3)), "cluster_sample_count weight"),
    "PartialLinear": (lambda: (partly(), images(2, 3)), "partition"),
}


def partly() -> Any:
    layer = nn.PartialLinear(3, 4)
    layer.set_partition(torch.tensor([0, 2]))
    return layer


@pytest.mark.parametrize("name", STATE)
def test_clearing_keeps_what_the_model_is_made_of(name: str) -> None:
    make, names = STATE[name]
    module, input = make()
    module.forward(input)
    kept = {name: copy.deepcopy(mapped(getattr(module, name), lambda t: t.detach().clone())) for name in names.split()}
    module.clear_state()
    for attribute, value in kept.items():
        now = getattr(module, attribute)
        assert torch.equal(now, value) if isinstance(value, Tensor) else now == value, attribute


LOSSES: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    "MSECriterion": lambda: (nn.MSECriterion(), images(3), images(3) + 1),
    "ClassNLLCriterion": lambda: (nn.ClassNLLCriterion(), images(2, 3), torch.tensor([0, 2])),
    "CrossEntropyCriterion": lambda: (nn.CrossEntropyCriterion(), images(2, 3), torch.tensor([0, 2])),
    "BCECriterion": lambda: (nn.BCECriterion(), images(3) / 2, torch.tensor([0.0, 1.0, 1.0])),
    "CosineEmbeddingCriterion": lambda: (
        nn.CosineEmbeddingCriterion(),
        [images(2, 3), images(2, 3) + 1],
        torch.tensor([1.0, -1.0]),
    ),
    "MultiMarginCriterion": lambda: (nn.MultiMarginCriterion(), images(2, 3), torch.tensor([0, 2])),
    "ParallelCriterion": lambda: (
        nn.ParallelCriterion().add(nn.MSECriterion(), 0.5).add(nn.AbsCriterion()),
        [images(2), images(3)],
        [images(2) + 1, images(3) - 1],
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_criterions_are_cleared_too(name: str) -> None:
    loss, input, target = LOSSES[name]()
    check_promises(loss, input, target)
    loss.forward(input, target)
    loss.backward(input, target)
    assert [t for t in tensors(loss.grad_input) if t.numel()]
    assert loss.clear_state() is loss
    assert not [t for t in tensors(loss.grad_input) if t.numel()]
    assert cs.inspect(loss).by_role().get(cs.Role.TRANSIENT, 0) == 0


@pytest.mark.parametrize("case", ["gModule-1", "gModule-2", "gModule-3"])
def test_a_cleared_graph_holds_no_data_in_its_nodes_nor_its_authors_paths(case: str) -> None:
    recorded = read(case)
    net = recorded.module
    net.backward(recorded.input, mapped(net.forward(recorded.input), torch.ones_like))
    net.clear_state()
    sizes = sum(parameter.numel() for parameter in {id(p): p for p in net.parameters()}.values())
    gc.collect()
    graph = to_graph(net)
    inventory = cs.inspect(graph)
    transient = [e for e in inventory.entries if e.role is cs.Role.TRANSIENT and e.type != "torch.LongStorage"]
    assert sum(e.bytes for e in transient) == 0  # sizes that Reshape's constructor makes are no data
    assert inventory.by_role()[cs.Role.PARAMETER] == 8 * sizes
    assert not [e.path for e in inventory.entries if "_debugLabel" in e.path]


def test_a_part_of_a_flattened_net_is_written_without_the_rest(tmp_path: Any) -> None:
    net: Any = nn.Sequential(nn.Linear(1000, 100), nn.Linear(100, 2))
    net.get_parameters()
    cs.save(cs.clear_state(net.get(1)), tmp_path / "part.t7")
    assert (tmp_path / "part.t7").stat().st_size < 5000
    assert torch.equal(cs.load(tmp_path / "part.t7").weight, net.get(1).weight)
