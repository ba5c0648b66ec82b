"""A criterion alone as PyTorch's loss, which takes an input and a target; compared with it on a sample."""

from __future__ import annotations

from typing import Any

import torch

from .. import nn
from ..errors import ConversionError
from . import pieces
from .builder import describe, difference
from .rebuilding import generated
from .rules.losses import loss_call, loss_of
from .rules.table import Unmapped, class_name
from .source import imports

CLASSES = 5
"""Of the sample, where no weights say how many there are."""


def stock_loss(criterion: Any, sample: Any = None, tolerance: float | None = None) -> torch.nn.Module:
    """The loss that a criterion is. Where all targets are ignored, PyTorch's is nan, Torch7's 0.

    Args:
        criterion: a live criterion; it stays as it is.
        sample: ``[input, target]``; made unless given.
        tolerance: how far the two may be apart; by the type unless given.

    Raises:
        ConversionError: there is none, or it is not equal.

    >>> stock_loss(nn.ClassNLLCriterion()), stock_loss(nn.MSECriterion(False)).reduction
    (NLLLoss(), 'sum')
    """
    try:
        constructor, state = loss_call(criterion)
        loss = loss_of(criterion)
    except Unmapped as error:
        raise ConversionError(f"a criterion cannot be converted: {error}") from None
    text = str(constructor)
    body = "\n\n".join(pieces.sources(pieces.used(text)))
    room: dict[str, Any] = {"nn": torch.nn}
    if body:
        room = vars(generated("\n".join(['"""A loss, converted by clearstate."""', "", *imports(body), "", "", body])))
    made: torch.nn.Module = eval(text, {**room, "torch": torch})
    weight = state["weight"]
    if weight is not None:
        made.register_buffer("weight", weight.detach().clone())
    if sample is None:
        sample = _made(criterion, weight, loss.sample)
    input, target = sample
    due = criterion(input, target)
    if loss.classes:
        target = (target if isinstance(target, torch.Tensor) else torch.tensor(target)).long()
    ours = made(input, target)
    distance, allowed = difference(ours, due, tolerance)
    if not distance <= allowed:
        how = describe(ours, due, distance, allowed)
        raise ConversionError(f"{class_name(criterion)} as {constructor} does not give the same: {how}")
    return made.train(criterion.training)


def _made(criterion: Any, weight: torch.Tensor | None, sample: Any) -> list[Any]:
    """An input and a target that suit the weight, of its type."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        input, target = sample(CLASSES if weight is None else weight.shape[-1])
        if isinstance(criterion, nn.WeightedMSECriterion):
            input, target = torch.randn_like(criterion.weight), torch.randn_like(criterion.weight)
    dtype = torch.get_default_dtype() if weight is None else weight.dtype
    return [part.to(dtype) if part.is_floating_point() else part for part in (input, target)]
