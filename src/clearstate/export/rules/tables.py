"""Layers that take tables apart and put them together: of them nothing is left but which value goes where."""

from __future__ import annotations

from typing import Any

from ... import nn
from ...nn.declarations.dimensions import dimension_of
from ...nn.layers.nngraph import JustElement, JustTable
from ..values import Value
from .table import Unmapped, rule


@rule(nn.Identity, nn.Contiguous, nn.PrintSize, becomes="nothing: it passes on")
def identity(m: Any, x: Any, to: Any) -> Any:
    return x


@rule(nn.SplitTable, becomes="x.unbind(dim)")
def split(m: nn.SplitTable, x: Value, to: Any) -> Any:
    dim = dimension_of(x.tensor, m.dimension, m.n_input_dims)
    return to.code(f"{{0}}.unbind({dim})", x, results=x.shape[dim])


@rule(nn.SelectTable, becomes="an entry of the table")
def select(m: nn.SelectTable, table: Any, to: Any) -> Any:
    return table[m.index]


@rule(nn.NarrowTable, becomes="some entries of the table")
def narrow(m: nn.NarrowTable, table: Any, to: Any) -> Any:
    return list(table[m.offset : m.offset + m.length])


@rule(nn.FlattenTable, becomes="one table")
def flatten(m: Any, table: Any, to: Any) -> Any:
    return _flat(table)


def _flat(table: Any) -> list[Any]:
    if isinstance(table, Value):
        return [table]
    return [entry for part in (table.values() if isinstance(table, dict) else table) for entry in _flat(part)]


@rule(nn.ZipTable, becomes="tables of entries")
def zipped(m: Any, table: Any, to: Any) -> Any:
    if not isinstance(table, list) or not all(isinstance(part, list) for part in table):
        raise Unmapped("its input is no table of tables")
    return [list(entries) for entries in zip(*table, strict=True)]


@rule(nn.ZipTableOneToMany, becomes="tables of entries")
def zipped_with(m: Any, table: Any, to: Any) -> Any:
    one, many = table
    return [[one, entry] for entry in many]


@rule(JustElement, becomes="the entry of the table")
def just_element(m: Any, table: Any, to: Any) -> Any:
    return table[0]


@rule(JustTable, becomes="a table of one")
def just_table(m: Any, table: Any, to: Any) -> Any:
    return [table]
