"""A recorded case as live modules: the module before it was cleared, and what Torch7 computed with it.

Files count from 1, Python from 0: here is said which inputs and targets are indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from clearstate.formats import t7
from clearstate.nn.protocol.ownership import mapped, tensors
from clearstate.nn.protocol.stateful import Stateful
from clearstate.nn.t7.files import to_live
from tests.recordings import CASES, case

INDEX_INPUTS: dict[str, tuple[int, ...] | None] = {
    "LookupTable": None,
    "Index": (1,),
    "IndexLinear": (0,),
    "LookupTableMaskZero": (),
}
"""Classes whose input is made of indices: all of it (``None``), or which entries of the table."""

INDEX_TARGETS = frozenset(
    (
        "ClassNLLCriterion",
        "ClassSimplexCriterion",
        "CrossEntropyCriterion",
        "MultiCriterion",
        "MultiMarginCriterion",
        "ParallelCriterion",
        "SpatialClassNLLCriterion",
    )
)
"""Criterions whose target is made of indices."""


@dataclass
class Recorded:
    """A module and its recording."""

    module: Any
    input: Any
    target: Any
    output: Any
    grad_output: Any
    grad_input: Any
    grad_parameters: list[Tensor]
    typename: str

    @property
    def within(self) -> float:
        """How near our numbers are: Torch7's loops add floats in an order of their own, and the recorded batch of
        SpatialContrastiveNormalization was computed with ``coef`` of when the module was of float."""
        floats = any(t.dtype is torch.float32 for t in tensors(self.input))
        stale = self.typename == "nn.SpatialContrastiveNormalization" and self.input.dim() == 4
        return 1e-6 if floats or stale else 1e-10


def dense(grad: Any, parameter: Tensor) -> Tensor:
    """A recorded gradient; IndexLinear records that of its weight as rows and their keys, one pair a backward."""
    if isinstance(grad, Tensor):
        return grad
    made = torch.zeros_like(parameter)
    for keys, rows in zip(grad["keys"], grad["gradWeight"], strict=True):
        made.index_add_(0, keys - 1, rows)
    return made


def distinct(parameters: list[Tensor], grads: list[Any]) -> list[Tensor]:
    """The recorded gradients, each once: Torch7 lists a shared parameter as often as it is met (once a clone of
    MapTable), and the recording has a copy of it each time."""
    kept: list[tuple[Tensor, Tensor]] = []
    for parameter, grad in zip(parameters, (dense(g, p) for g, p in zip(grads, parameters, strict=True)), strict=True):
        if not any(torch.equal(parameter, p) and torch.equal(grad, g) for p, g in kept):
            kept.append((parameter, grad))
    return [grad for _, grad in kept]


def read(name: str, *, draws: bool = True) -> Recorded:
    """The case of this name; random layers give the recorded draws, unless ``draws`` is false."""
    folder = case(name)
    graph = t7.load(folder / "before.t7")
    io = to_live(t7.load(folder / "io.t7"))
    module = to_live(graph)
    short = graph.typename.partition(".")[2]
    input, target = io["input"], io.get("target")
    if short in INDEX_INPUTS:
        which = INDEX_INPUTS[short]
        if which is None:
            input = mapped(input, from_zero)
        else:
            input = (
                [mapped(part, from_zero) if i in which else part for i, part in enumerate(input)] if which else input
            )
    if short == "MultiLabelMarginCriterion":
        target = target - 1  # 0, which ends the classes, is -1
    elif short in INDEX_TARGETS:
        target = mapped(target, from_zero) if not isinstance(target, int) else target - 1
    for inner in module.modules():
        if draws and isinstance(inner, Stateful) and hasattr(inner, "draw"):
            drawn = mapped(inner.__dict__[inner.transient[0]], lambda t: t.clone())
            inner.draw = lambda *_, drawn=drawn: drawn
    if io.get("train") is not None:
        module.train(io["train"])
    return Recorded(
        module,
        input,
        target,
        io["output"],
        io.get("gradOutput"),
        io.get("gradInput"),
        distinct(io.get("parameters") or [], io.get("gradParameters") or []),
        graph.typename,
    )


def from_zero(indices: Tensor) -> Tensor:
    """Indices of a file as Python's."""
    return torch.where(indices > 0, indices - 1, indices)


def all_cases() -> list[str]:
    return list(CASES)


def assert_close(ours: Any, theirs: Any, what: str, within: float = 1e-10) -> None:
    """Equal to 1e-10, tensor by tensor; numbers too. An empty tensor equals an empty table."""
    if isinstance(theirs, int | float):
        number = ours.item() if isinstance(ours, Tensor) else float(ours)
        assert abs(number - theirs) <= within * max(1, abs(theirs)), f"{what}: {number} is not {theirs}"
        return
    mine, due = ([t for t in tensors(v) if t.numel()] for v in (ours, theirs))
    assert len(mine) == len(due), f"{what}: {len(mine)} tensors, not {len(due)}"
    for i, (a, b) in enumerate(zip(mine, due, strict=True)):
        assert a.numel() == b.numel(), f"{what} {i}: {tuple(a.shape)}, not {tuple(b.shape)}"
        assert a.squeeze().shape == b.squeeze().shape, f"{what} {i}: {tuple(a.shape)}, not {tuple(b.shape)}"
        x, y = a.detach().double().reshape(b.shape), b.double()
        wrong = ~torch.isclose(x, y, rtol=within, atol=within, equal_nan=True)
        assert not wrong.any(), f"{what} {i}: {int(wrong.sum())} of {y.numel()} differ, by {(x - y).abs().max():.3g}"
