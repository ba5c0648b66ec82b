"""rnn's layer of tables: a tensor made as large as another one."""

from __future__ import annotations

from typing import Any

from ..declarations.bad_input import expect_table
from ..protocol.module import Module


class ExpandAs(Module):
    """Expands the second tensor of a table to the size of the first. Follows rnn's ``ExpandAs.lua``.

    >>> import torch
    >>> [t.shape for t in ExpandAs()([torch.ones(2, 3), torch.ones(1, 3)])]
    [torch.Size([2, 3]), torch.Size([2, 3])]
    """

    def update_output(self, input: Any) -> list[Any]:
        expect_table(input, 2)
        first, second = input
        return [first, second.expand_as(first)]
