"""What becomes of each layer of a net: to be read before anything is converted, and afterwards as a report."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .program import Row
from .rules import class_name, rule_of


class Coverage:
    """The layers of a net, each with what it becomes. Printed, it is a table.

    >>> import clearstate.nn as nn
    >>> print(coverage(nn.Sequential().add(nn.Linear(3, 2)).add(nn.Kmeans(2, 2))))
    0  nn.Linear  nn.Linear
    1  nn.Kmeans  cannot be converted: there is no rule for this class
    """

    def __init__(self, rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
        self.rows = list(rows)
        self.notes = list(notes)
        """What to know besides: weights that part."""

    @property
    def missing(self) -> list[Row]:
        """The layers that cannot be converted."""
        return [row for row in self.rows if row.becomes is None]

    @property
    def complete(self) -> bool:
        """Whether all can be converted."""
        return not self.missing

    @property
    def largest_difference(self) -> float:
        """The largest absolute difference of any layer's output; 0 where nothing was run."""
        return max((row.difference for row in self.rows if row.difference is not None), default=0.0)

    def __str__(self) -> str:
        cells = [
            (
                row.path or "-",
                row.typename,
                f"cannot be converted: {row.reason}" if row.becomes is None else row.becomes,
                "" if row.difference is None else f"{row.difference:.2g}",
            )
            for row in self.rows
        ]
        widths = [max((len(cell[i]) for cell in cells), default=0) for i in range(4)]
        lines = (
            "  ".join(part.ljust(width) for part, width in zip(cell, widths, strict=True)).rstrip() for cell in cells
        )
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"Coverage({len(self.rows)} layers, {len(self.missing)} missing)"


def coverage(model: torch.nn.Module) -> Coverage:
    """What becomes of each layer of a net, by its class; nothing is run.

    Args:
        model: a live Torch7 net.

    Returns:
        one row a layer, those inside containers included.

    >>> import clearstate.nn as nn
    >>> coverage(nn.Sequential().add(nn.Linear(3, 2)).add(nn.Tanh())).complete
    True
    """
    rows: list[Row] = []
    _collect(model, "", rows, set())
    return Coverage(rows)


def unmapped(model: torch.nn.Module) -> list[Row]:
    """The layers of classes that have no rule."""
    return coverage(model).missing


def _collect(module: torch.nn.Module, path: str, rows: list[Row], met: set[int]) -> None:
    if id(module) in met:
        return
    met.add(id(module))
    rule = rule_of(module)
    if rule is None:
        rows.append(Row(path, class_name(module), None, reason="there is no rule for this class"))
        return
    if not rule.container:
        rows.append(Row(path, class_name(module), rule.becomes))
        return
    for name, child in module.named_children():
        _collect(child, f"{path}.{name}" if path else name, rows, met)
