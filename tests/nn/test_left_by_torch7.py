"""Objects as Torch7 leaves them after forward and backward, of classes that no recording has: built by hand from its
Lua sources, read from a file, run, cleared and written, against sums in numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import clearstate as cs
from clearstate.formats import t7
from clearstate.formats.t7.codec.objects import Value
from clearstate.nn import Criterion
from clearstate.roles import Role
from clearstate.testing import check_io, check_promises

NUMBERS = np.random.default_rng(0)


class Left(NamedTuple):
    """A module in use, what its constructor leaves, and what Torch7 computes."""

    used: t7.Object
    fresh: t7.Object
    input: Any
    output: Any
    grad_output: Any
    grad_input: Any
    gradients: tuple[Any, ...] = ()
    target: Any = None


def random(*size: int) -> Any:
    return NUMBERS.standard_normal(size)


def full(value: Any) -> t7.Tensor:
    return t7.Tensor.of(np.asarray(value, np.float64))


def empty() -> t7.Tensor:
    return t7.Tensor("torch.DoubleTensor")


def longs(*values: int) -> t7.Storage:
    return t7.Storage.of("torch.LongStorage", values)


def module(name: str, **fields: Value) -> t7.Object:
    made = {"gradInput": empty(), "output": empty(), "_type": "torch.DoubleTensor"}
    return t7.Object(f"nn.{name}", t7.Table({**made, **fields}))


def criterion(name: str, **fields: Value) -> t7.Object:
    return t7.Object(f"nn.{name}", t7.Table({"gradInput": empty(), "output": 0.0, **fields}))


def cosine_distance(*size: int) -> Left:
    a, b, scale = random(*size), random(*size), random(size[0] if len(size) > 1 else 1)
    first, second = np.atleast_2d(a), np.atleast_2d(b)
    w1 = (first * second).sum(1, keepdims=True)
    w22, w32 = (1 / ((v * v).sum(1, keepdims=True) + 1e-12) for v in (first, second))
    w = np.sqrt(w22 * w32)
    grads = [
        ((other - w1 * square * own) * w * scale[:, None]).reshape(size)
        for own, other, square in ((first, second, w22), (second, first, w32))
    ]
    output = (w1 * w)[:, 0]
    work = {"buffer": w1 * w32, "w1": w1, "w22": w22, "w32": w32, "w": w, "ones": np.ones_like(w), "_input1": a}
    used = module("CosineDistance", gradInput=t7.Table.of(map(full, grads)), output=full(output))
    used.state.update({name: full(value) for name, value in work.items()})
    fresh = module("CosineDistance", gradInput=t7.Table.of([empty(), empty()]))
    return Left(used, fresh, [a, b], output, scale, grads)


def bilinear(bias: bool, outputs: int) -> Left:
    weight, b, x, y, grad = random(outputs, 3, 4), random(outputs), random(5, 3), random(5, 4), random(5, outputs)
    output = np.einsum("bi,kij,bj->bk", x, weight, y) + b * bias
    grads = [np.einsum("bk,kij,bj->bi", grad, weight, y), np.einsum("bk,kij,bi->bj", grad, weight, x)]
    learnt = [np.einsum("bk,bi,bj->kij", grad, x, y), grad.sum(0)][: 1 + bias]
    state = {"weight": full(weight), "gradWeight": full(learnt[0])}
    if bias:
        state |= {"bias": full(b), "gradBias": full(learnt[1])}
    work = {"buff1": full(x), "buff2": full(y), "output": full(output), "gradInput": t7.Table.of(map(full, grads))}
    fresh = module("Bilinear", gradInput=t7.Table.of([empty(), empty()]), **state)
    return Left(module("Bilinear", **state, **work), fresh, [x, y], output, grad, grads, tuple(learnt))


def kmeans(scale: float | None) -> Left:
    weight, x = random(3, 2), random(7, 2)
    squares = ((weight[:, None] - x) ** 2).sum(2)
    nearest = squares.argmin(0)
    count = np.bincount(nearest, minlength=3).astype(float)
    pull = np.zeros_like(weight)
    np.add.at(pull, nearest, (scale or 1) * (weight[nearest] - x))
    grad = pull / (count + 1e-7)[:, None]
    state = {"k": 3.0, "dim": 2.0, "weight": full(weight), "gradWeight": full(grad), "clusterSampleCount": full(count)}
    if scale:
        state["scale"] = scale
    names = "_expandedSamples _clusterDistances _temp _tempExpanded _tempWeight _tempWeightExp _expandedWeight"
    work: dict[str, Value] = {
        name: full(random(2, 3)) for name in f"{names} _minScore _cscAdder _ccounts _gradWeight _gradWeight2".split()
    }
    work |= {"_minIndx": t7.Tensor.of(nearest + 1, "torch.LongTensor"), "loss": float(squares.min(0).sum())}
    work |= {"output": full(nearest + 1), "gradInput": full(0 * x)}
    fresh = module("Kmeans", loss=0.0, **state)
    return Left(module("Kmeans", **state, **work), fresh, x, nearest.astype(float), random(7), 0 * x, (grad,))


def linear_weight_norm(bias: bool, training: bool, *batch: int) -> Left:
    v, g, b, x, grad = random(4, 3), random(4, 1), random(4), random(*batch, 3), random(*batch, 4)
    norm = np.sqrt((v * v).sum(1, keepdims=True))
    weight = v * g / norm
    rows, above = np.atleast_2d(x), np.atleast_2d(grad)
    of_weight = above.T @ rows
    of_g = (of_weight * v / norm).sum(1, keepdims=True)
    scratch = v * g / norm / norm * of_g  # backward leaves this in `weight`
    learnt = [of_weight * g / norm - scratch, of_g, above.sum(0)][: 2 + bias]
    state = {"v": full(v), "g": full(g), "gradV": full(learnt[0]), "gradG": full(of_g), "eps": 1e-16}
    state |= {"inputSize": 3.0, "outputSize": 4.0, "train": training}
    if bias:
        state |= {"bias": full(b), "gradBias": full(learnt[2])}
    output = x @ weight.T + b * bias
    work = {"weight": full(scratch), "norm": full(norm), "scale": full(g / norm), "addBuffer": full(np.ones(len(rows)))}
    work |= {"output": full(output), "gradInput": full(grad @ weight)}
    fresh = module("LinearWeightNorm", weight=full(weight), norm=empty(), scale=empty(), **state)
    used = module("LinearWeightNorm", **state, **work)
    return Left(used, fresh, x, output, grad, grad @ weight, tuple(learnt))


def mixture_table(gater: Any, experts: Any, along: int, table: bool, dim: int | None) -> Left:
    """``dim`` is the constructor's; the first forward writes it down where there was none."""
    batch, size = gater.ndim == 2, [1] * experts.ndim
    size[0] = len(gater) if batch else 1
    size[along] = gater.shape[-1]
    gate = gater.reshape(size)
    output = (gate * experts).sum(along)
    grad = random(*output.shape)
    apart = np.expand_dims(grad, along)
    others = tuple(d for d in range(experts.ndim) if d != along and not (batch and d == 0))
    of_gater, of_experts = (apart * experts).sum(others), apart * gate * np.ones_like(experts)
    known = 2.0 if batch else 1.0

    def parts(values: Any) -> list[Any]:
        return [values.take(i, along) for i in range(values.shape[along])]

    inputs, grads = (parts(experts), parts(of_experts)) if table else (experts, of_experts)
    kept = t7.Table.of([full(of_gater), t7.Table.of(map(full, grads)) if table else full(grads)])
    work = {name: full(random(3)) for name in "_gaterView _expert _expertView _sum _expertView2".split()}
    used = module("MixtureTable", gradInput=kept, output=full(output), size=longs(*size), size2=longs(*size))
    used.state.update({"batchSize": float(size[0]), "backwardSetup": False, "dimG": known, "_expert2": empty(), **work})
    used.state.update({"table": True} if table else {}, dim=float(dim or known))
    fresh = module("MixtureTable", gradInput=t7.Table(), size=longs(), size2=longs(), batchSize=0.0, dim=used["dim"])
    fresh["backwardSetup"] = False
    return Left(used, fresh, [gater, inputs], output, grad, [of_gater, grads])


def multi_label_margin(size_average: bool, *size: int) -> Left:
    x = random(*size)
    rows = np.atleast_2d(x)
    due = np.zeros(rows.shape, np.int64)  # from 1, as Torch7 counts, and ended by 0
    due[:, :2] = 1 + NUMBERS.permuted(np.tile(np.arange(rows.shape[1]), (len(rows), 1)), axis=1)[:, :2]
    due[0, :4] = [2, 2, 0, 1]
    loss, grad, share = 0.0, np.zeros_like(rows), 1 / rows.shape[1] / (len(rows) if size_average else 1)
    named = np.zeros_like(rows)
    for i, classes in enumerate(due):
        right = [c - 1 for c in classes[: list(classes).index(0)]]
        named[i, right] = 1
        for c in right:
            for other in set(range(rows.shape[1])) - set(right):
                margin = 1 - rows[i, c] + rows[i, other]
                if margin > 0:
                    loss += float(margin * share)
                    grad[i, c] -= share
                    grad[i, other] += share
    fresh = criterion("MultiLabelMarginCriterion", sizeAverage=size_average, isTarget=empty())
    work = {"isTarget": full(named), "output": loss, "gradInput": full(grad), "output_tensor": full([loss])}
    used = criterion("MultiLabelMarginCriterion", sizeAverage=size_average, **work)
    return Left(used, fresh, x, loss, None, grad.reshape(size), target=(due - 1).reshape(size))


def divergence(size_average: bool, *size: int) -> Left:
    x, p = random(*size), np.abs(random(*size))
    p.flat[0], p.flat[1] = 0, -0.5  # which count for nothing
    share = 1 / x.size if size_average else 1.0
    loss = sum(float(q * (np.log(q) - y)) for q, y in zip(p.flat, x.flat, strict=True) if q > 0) * share
    grad = np.where(p > 0, -p * share, 0)
    fresh = criterion("DistKLDivCriterion", sizeAverage=size_average)
    work = {"output": loss, "gradInput": full(grad), "output_tensor": full([loss])}
    return Left(criterion("DistKLDivCriterion", sizeAverage=size_average, **work), fresh, x, loss, None, grad, target=p)


LEFT: dict[str, Callable[[], Left]] = {
    "CosineDistance of a batch": lambda: cosine_distance(5, 3),
    "CosineDistance of vectors": lambda: cosine_distance(4),
    "CosineDistance of a batch of one": lambda: cosine_distance(1, 7),
    "Bilinear": lambda: bilinear(True, 2),
    "Bilinear to one number without bias": lambda: bilinear(False, 1),
    "Kmeans": lambda: kmeans(None),
    "Kmeans with a scale": lambda: kmeans(0.5),
    "LinearWeightNorm": lambda: linear_weight_norm(True, True, 5),
    "LinearWeightNorm of a vector without bias": lambda: linear_weight_norm(False, True),
    "LinearWeightNorm in evaluation": lambda: linear_weight_norm(True, False, 5),
    "MixtureTable": lambda: mixture_table(random(5, 3), random(5, 3, 6), 1, True, None),
    "MixtureTable of images": lambda: mixture_table(random(5, 3), random(5, 6, 3, 2), 2, True, None),
    "MixtureTable of one tensor": lambda: mixture_table(random(5, 3), random(5, 6, 3, 2), 2, False, 3),
    "MixtureTable of numbers": lambda: mixture_table(random(5, 3), random(5, 3), 1, True, None),
    "MixtureTable of a sample": lambda: mixture_table(random(3), random(3, 6), 0, True, None),
    "MixtureTable of a sample's one tensor": lambda: mixture_table(random(3), random(4, 3, 6), 1, False, 2),
    "MultiLabelMarginCriterion": lambda: multi_label_margin(True, 3, 5),
    "MultiLabelMarginCriterion added up": lambda: multi_label_margin(False, 3, 5),
    "MultiLabelMarginCriterion of a sample": lambda: multi_label_margin(True, 6),
    "DistKLDivCriterion": lambda: divergence(True, 4, 5),
    "DistKLDivCriterion added up": lambda: divergence(False, 2, 3, 4),
}


def live(value: Any) -> Any:
    if isinstance(value, list):
        return [live(v) for v in value]
    return torch.from_numpy(np.ascontiguousarray(value)) if isinstance(value, np.ndarray) else value


def in_words(value: Value) -> Any:
    if isinstance(value, t7.Tensor):
        return f"{value.typename} {value.size}"
    if isinstance(value, t7.Storage):
        return f"{value.typename} {value.numpy().tolist()}"
    fields = value.state if isinstance(value, t7.Object) else value
    return {key: in_words(v) for key, v in fields.items()} if isinstance(fields, dict) else value


@pytest.fixture(params=LEFT)
def left(request: pytest.FixtureRequest) -> Left:
    return LEFT[request.param]()


@pytest.fixture
def path(left: Left, tmp_path: Path) -> Path:
    t7.save(left.used, tmp_path / "used.t7")
    return tmp_path / "used.t7"


def test_it_computes_what_torch7_does(left: Left, path: Path) -> None:
    net: Any = cs.load(path)
    given = [live(left.input), live(left.target)] if isinstance(net, Criterion) else [live(left.input)]
    net.zero_grad(set_to_none=True)
    output = net.forward(*given)
    assert output == pytest.approx(left.output, rel=1e-10)
    grad = net.backward(*given) if isinstance(net, Criterion) else net.backward(*given, live(left.grad_output))
    torch.testing.assert_close(grad, live(left.grad_input), rtol=1e-10, atol=1e-10)
    learnt: list[Tensor | None] = [parameter.grad for parameter in net.parameters()]
    torch.testing.assert_close(learnt, live(list(left.gradients)), rtol=1e-10, atol=1e-10)


def test_cleared_it_is_as_constructed_and_nothing_is_lost(left: Left, path: Path, tmp_path: Path) -> None:
    assert not cs.inspect(path).select(Role.UNKNOWN)
    due = in_words(left.fresh)
    cs.clear_file(path, tmp_path / "cleared.t7")
    assert in_words(t7.load(tmp_path / "cleared.t7")) == due
    cs.save(cs.load(path).clear_state(), tmp_path / "live.t7")
    assert in_words(t7.load(tmp_path / "live.t7")) == due
    assert cs.verify(path, tmp_path / "cleared.t7")


def test_it_keeps_the_promises(left: Left, path: Path) -> None:
    for check in (check_promises, check_io):
        check(cs.load(path), live(left.input), live(left.target))
