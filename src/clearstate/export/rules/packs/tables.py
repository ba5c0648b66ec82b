"""rnn's layer of tables."""

from __future__ import annotations

from typing import Any

from ....nn.packs import tables
from ..table import rule


@rule(tables.ExpandAs, becomes="y.expand_as(x)")
def expand_as(m: Any, table: Any, to: Any) -> Any:
    first, second = table
    return [first, to.code("{0}.expand_as({1})", second, first)]
