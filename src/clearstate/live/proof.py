"""Proof that an attribute is not needed: without it, a run gives the same numbers, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..roles import Role
from .baseline import Baseline
from .clearing import restore
from .evidence import judge
from .holdings import Attribute, modules, parts
from .shadow import shadow
from .together import is_work

Place = tuple[int, str]
"""An attribute: the id of its module, and its name."""


def proved_unneeded(model: torch.nn.Module, sample: Any, baseline: Baseline | None = None) -> set[Place]:
    """The attributes of unknown role without which the model gives the same on a sample.

    The model is not run: a shadow of it is, in evaluation mode, with copies of the buffers and the same random
    numbers, once as it is and twice without the attributes in question. Where leaving all out fails, halves are tried.
    What the class's methods read and never write is no leftover of work, and stays.

    Args:
        model: any module.
        sample: an input; a tuple is the arguments, a dict the keyword arguments.

    Raises:
        Exception: what the model itself raises on the sample as it is.

    >>> class Layer(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale, self.last = torch.tensor(2.0), None
    ...     def forward(self, x):
    ...         self.last = x.clone()
    ...         return self.scale * x
    >>> layer = Layer()
    >>> _ = layer(torch.ones(2))
    >>> [name for _, name in proved_unneeded(layer, torch.ones(2))]
    ['last']
    """
    unknown = [
        j.attribute for j in judge(list(modules(model)), baseline) if j.role is Role.UNKNOWN and is_work(j.attribute)
    ]
    places = [(id(a.module), a.name) for a in unknown]
    expected = _run(model, sample, ())
    if not places:
        return set()
    if not _equal(_run(model, sample, ()), expected):
        return set()  # a model that is never twice the same proves nothing
    return set(_search(model, sample, expected, places))


def _search(model: torch.nn.Module, sample: Any, expected: Any, places: Sequence[Place]) -> list[Place]:
    if _same_without(model, sample, expected, places):
        return list(places)
    if len(places) == 1:
        return []
    half = len(places) // 2
    return _search(model, sample, expected, places[:half]) + _search(model, sample, expected, places[half:])


def _same_without(model: torch.nn.Module, sample: Any, expected: Any, places: Sequence[Place]) -> bool:
    try:
        return all(_equal(found, expected) for found in _run_twice(model, sample, places))
    except Exception:  # whatever the model raises without them, it needs them
        return False


def _run(model: torch.nn.Module, sample: Any, without: Sequence[Place]) -> Any:
    return _outputs(_prepared(model, without), sample)


def _run_twice(model: torch.nn.Module, sample: Any, without: Sequence[Place]) -> tuple[Any, Any]:
    other = _prepared(model, without)
    return _outputs(other, sample), _outputs(other, sample)


def _prepared(model: torch.nn.Module, without: Sequence[Place]) -> torch.nn.Module:
    other, made = shadow(model, own_buffers=True)
    for number, name in without:
        module = made[number]
        restore(Attribute("", module, name, module.__dict__[name]), None, [])
    for module in made.values():
        module.__dict__["training"] = False
    return other


def _outputs(model: torch.nn.Module, sample: Any) -> Any:
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        if isinstance(sample, dict):
            return model(**sample)
        return model(*sample) if isinstance(sample, tuple) else model(sample)


def _equal(a: Any, b: Any) -> bool:
    """Whether two outputs have the same form and the same bits."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return (
            isinstance(a, Tensor)
            and isinstance(b, Tensor)
            and a.shape == b.shape
            and a.dtype == b.dtype
            and (a.is_meta or bool(torch.equal(a.nan_to_num(), b.nan_to_num()) and torch.equal(a.isnan(), b.isnan())))
        )
    if type(a) is not type(b):
        return False
    ours, theirs = dict(parts(a)), dict(parts(b))
    if ours or theirs:
        return ours.keys() == theirs.keys() and all(_equal(ours[key], theirs[key]) for key in ours)
    return bool(a == b) if isinstance(a, int | float | str | bool | None) else True
