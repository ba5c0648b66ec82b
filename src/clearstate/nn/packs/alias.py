"""torchx's way to draw from many classes at once: a class at random, kept, or swapped for the one it is paired with."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...formats import t7


class AliasMultinomial:
    """Draws classes in proportion to their probabilities, in a time that does not grow with how many there are.

    Args:
        j: the class that each is swapped for, from 0; -1 for one that is always kept.
        q: how likely each is kept.

    Follows torchx's ``AliasMultinomial.lua``: Vose, "A linear algorithm for generating random numbers with a given
    distribution", 1991.

    >>> AliasMultinomial.of(torch.tensor([0.0, 1.0])).draw(3)
    tensor([1, 1, 1])
    """

    def __init__(self, j: Tensor, q: Tensor, extra: dict[Any, Any] | None = None) -> None:
        self.j = j
        self.q = q
        self.extra = extra or {}

    @classmethod
    def of(cls, probabilities: Tensor) -> AliasMultinomial:
        """For classes as likely as these numbers are in proportion."""
        likely = probabilities.double()
        share = (likely / likely.sum() * len(likely)).tolist()
        other = [-1] * len(share)
        small = [i for i, value in enumerate(share) if value < 1]
        large = [i for i, value in enumerate(share) if value >= 1]
        while small and large:
            less, more = small.pop(), large.pop()
            other[less] = more
            share[more] -= 1 - share[less]
            (small if share[more] < 1 else large).append(more)
        kept = [min(value, 1.0) if pair >= 0 else 1.0 for value, pair in zip(share, other, strict=True)]
        return cls(torch.tensor(other), torch.tensor(kept, dtype=probabilities.dtype))

    def draw(self, *size: int) -> Tensor:
        """Classes from 0, as many as the size says."""
        first = torch.randint(len(self.j), size)
        kept = torch.rand(size, dtype=self.q.dtype) < self.q[first]
        return torch.where(kept, first, self.j[first])

    @classmethod
    def read(cls, obj: t7.Object, reading: Any) -> AliasMultinomial:
        """That of a file."""
        own = dict(obj.fields)
        j, q = (reading.value(own.pop(name)) for name in ("J", "q"))
        for left_by_work in ("_kk", "__kk", "_q", "_mask"):
            own.pop(left_by_work, None)
        return cls(j.long() - 1, q, {name: reading.value(value) for name, value in own.items()})

    def written(self, writing: Any) -> t7.Object:
        """That which goes to a file."""
        fields = {"J": writing.tensor(self.j + 1), "q": writing.tensor(self.q), "dpnn_parameters": ["J", "q"]}
        own = {**self.extra, **fields}
        made = {name: value if isinstance(value, t7.Tensor) else writing.value(value) for name, value in own.items()}
        return t7.Object("torch.AliasMultinomial", t7.Table(made))
