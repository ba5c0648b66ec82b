"""Optimizer state in Torch7 files: the tables that torch/optim's functions keep, known by what is in them.

optim mixes settings and state in one table, so only the fields that hold state are named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..codec.objects import Table, Tensor

STATES: tuple[tuple[frozenset[str], frozenset[str]], ...] = tuple(
    (frozenset(marks.split()), frozenset(fields.split()))
    for marks, fields in (
        ("m v denom", "m v denom t"),  # adam
        ("m u max", "m u max t"),  # adamax
        ("m tmp", "m tmp"),  # rmsprop
        ("paramVariance delta accDelta", "paramVariance paramStd delta accDelta"),  # adadelta
        ("paramVariance paramStd", "paramVariance paramStd"),  # adagrad
        ("ax eta_t mu_t", "ax eta_t mu_t t"),  # asgd
        ("delta stepsize sign", "delta stepsize sign"),  # rprop
        ("dfdx", "dfdx deltaParameters decayParameters"),  # sgd, nag
    )
)
"""For each kind of state: the tensors it is known by, and the fields that go with it."""


def optimizer_fields(table: Table) -> Mapping[Any, Any]:
    """The fields of a plain table that are optimizer state, empty where it is none.

    >>> state = Table(learningRate=0.1, evalCounter=7.0, dfdx=Tensor.of([1.0, 2.0]))
    >>> sorted(optimizer_fields(state))
    ['dfdx']
    """
    for marks, fields in STATES:
        if all(type(table.get(mark)) is Tensor or (mark in ("eta_t", "mu_t") and mark in table) for mark in marks):
            return {key: table[key] for key in fields if key in table}
    return {}
