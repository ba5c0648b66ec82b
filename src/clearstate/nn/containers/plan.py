"""The plan of a graph of modules: its nodes in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from ..protocol.nodes import Node


class Step(NamedTuple):
    """What one node of a graph does.

    ``name`` is the child that is called (``None``: the input is passed on), ``parents`` are the steps whose values
    it gets, ``select`` is the entry it takes of a split, ``splits`` the number of entries that its value must have,
    ``done`` the steps whose values nobody reads afterwards.
    """

    name: str | None
    parents: tuple[int, ...]
    select: int | None
    splits: int | None
    annotations: dict[str, Any]
    done: tuple[int, ...] = ()


class Planned(Protocol):
    """A net that is a graph, as its drawings and its files know it."""

    typename: str
    plan: list[Step]
    n_inputs: int
    verbose: bool
    _modules: dict[str, torch.nn.Module | None]

    def nodes(self) -> Iterator[tuple[Step, torch.nn.Module | None]]:
        """The steps with their modules."""

    def add_module(self, name: str, module: torch.nn.Module | None) -> None:
        """Takes a module under a name that steps call it by."""


def planned(steps: Sequence[Step]) -> list[Step]:
    """The steps, each told which values nobody reads after it."""
    last_use = {parent: i for i, step in enumerate(steps) for parent in step.parents}
    done: dict[int, list[int]] = {}
    for parent, i in last_use.items():
        done.setdefault(i, []).append(parent)
    return [step._replace(done=tuple(done.get(i, ()))) for i, step in enumerate(steps)]


def step_label(net: Planned, step: Step) -> str:
    """The name of a step, or else what it does."""
    if "name" in step.annotations:
        return str(step.annotations["name"])
    if step.name is not None:
        return str(net._modules[step.name])
    return Node(select=step.select, splits=step.splits).label()
