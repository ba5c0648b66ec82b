"""Tables of connections between input and output planes, one row ``[from, to]`` a connection.

Planes are counted from 0 here, from 1 in files. Follows Torch7's ``nn.tables``.

>>> import clearstate.nn as nn
>>> nn.SpatialConvolutionMap(nn.tables.one_to_one(3), 5, 5)(torch.ones(3, 8, 8)).shape
torch.Size([3, 4, 4])
"""

from __future__ import annotations

import torch
from torch import Tensor


def full(n_input: int, n_output: int) -> Tensor:
    """Every input plane to every output plane.

    >>> full(2, 2).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    return _rows([(i, o) for o in range(n_output) for i in range(n_input)])


def one_to_one(n_planes: int) -> Tensor:
    """Each input plane to the output plane of its number.

    >>> one_to_one(2).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    return _rows([(i, i) for i in range(n_planes)])


def random(n_input: int, n_output: int, n_from: int) -> Tensor:
    """Each output plane from ``n_from`` input planes drawn at random, no plane again before all others had their turn.

    >>> random(6, 4, 2).shape
    torch.Size([8, 2])
    """
    if not 0 < n_from <= n_input:
        raise ValueError(f"{n_from} planes cannot be drawn from {n_input}")
    rows: list[tuple[int, int]] = []
    drawn: list[int] = []
    for o in range(n_output):
        if len(drawn) < n_from:
            drawn = torch.randperm(n_input).tolist()
        rows += [(i, o) for i in drawn[:n_from]]
        drawn = drawn[n_from:]
    return _rows(rows)


oneToOne = one_to_one


def _rows(rows: list[tuple[int, int]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.get_default_dtype()).reshape(-1, 2)
