"""The bytes of what is no plain dense tensor: counted as they are, or said to be missing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import Linear

import clearstate as cs


def sizes(model: Any) -> dict[str, int]:
    return {entry.path: entry.bytes for entry in cs.inspect(model).entries}


def test_the_gradient_of_a_sparse_embedding_is_counted_by_the_rows_it_has() -> None:
    table = torch.nn.Embedding(1000, 64, sparse=True)
    table(torch.tensor([1, 2])).sum().backward()
    assert sizes(table) == {"weight": 1000 * 64 * 4, "weight.grad": 2 * 64 * 4 + 2 * 8}


@pytest.mark.filterwarnings("ignore:Sparse .* support is in beta")
@pytest.mark.parametrize(
    "layout, expected",
    [
        ("to_sparse_coo", 100 * (4 + 2 * 8)),
        ("to_sparse_csr", 100 * (4 + 8) + 101 * 8),
        ("to_sparse_csc", 100 * (4 + 8) + 101 * 8),
    ],
)
def test_sparse_parameters_buffers_and_constants_are_counted_by_what_they_are_made_of(
    layout: str, expected: int
) -> None:
    model: Any = Linear(1, 1)
    matrix = getattr(torch.eye(100), layout)()
    model.register_buffer("buffer", matrix)
    model.constant = matrix.clone()
    model.parameter = torch.nn.Parameter(matrix.clone())
    found = sizes(model)
    assert [found[name] for name in ("buffer", "constant", "parameter")] == [expected] * 3
