"""Numbers and tensors that an input is added to or multiplied with, tables combined, dimensions made one number."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from ... import nn
from ...nn.declarations.dimensions import dimension_of
from ..calls import Call, call, text
from ..values import Value, leaves
from .table import Unmapped, rule


@rule(nn.Add, nn.CAdd, becomes="Shift")
def add(m: Any, x: Value, to: Any) -> Any:
    one = isinstance(m, nn.Add) and m.one_number
    return _learned(x, m.bias, "Shift", "shift", "bias", to, laid=not one)


@rule(nn.CMul, nn.Mul, becomes="Scale")
def mul(m: Any, x: Value, to: Any) -> Any:
    return _learned(x, m.weight, "Scale", "scale", "weight", to, laid=isinstance(m, nn.CMul))


def _learned(x: Value, learned: Tensor, function: str, kind: str, name: str, to: Any, *, laid: bool) -> Any:
    """A layer with one learned tensor, in a shape that broadcasts as Torch7 lays it over the input."""
    shape, count = x.shape, learned.numel()
    if not laid or shape == tuple(learned.shape) or shape[1:] == tuple(learned.shape):
        value = learned
    elif math.prod(shape) == count:
        value = learned.reshape(shape)
    elif len(shape) == learned.dim() and all(a in (1, b) for a, b in zip(learned.shape, shape, strict=True)):
        value = learned
    elif len(shape) > 1 and math.prod(shape[1:]) == count:
        value = learned.reshape(shape[1:])
    else:
        value = learned.reshape(1, -1)
    return to.layer(x, call(function, *value.shape), kind, **{name: value})


@rule(nn.AddConstant, becomes="x + number")
def add_constant(m: nn.AddConstant, x: Value, to: Any) -> Any:
    constant = m.constant_scalar
    if not isinstance(constant, Tensor):
        return to.code(f"{{0}} + {text(constant)}", x)
    return to.layer(x, call("Fixed", *constant.shape), "constant", code="{0} + {layer}()", value=constant)


@rule(nn.MulConstant, becomes="x * number")
def mul_constant(m: nn.MulConstant, x: Value, to: Any) -> Any:
    return to.code("-{0}" if m.constant_scalar == -1 else f"{{0}} * {text(m.constant_scalar)}", x)


@rule(nn.Constant, becomes="Fixed")
def constant(m: nn.Constant, x: Value, to: Any) -> Any:
    value = m.value
    code = "{layer}().clone()"
    if m.n_input_dim is not None and x.ndim > m.n_input_dim:
        code = f"{{layer}}().expand(len({{0}}), {', '.join(['-1'] * value.dim())})"
    return to.layer(x, call("Fixed", *value.shape), "constant", code=code, value=value)


def _alike(table: list[Value], to: Any) -> list[Value]:
    """The tensors of a table in the shape of the first one."""
    first = table[0]
    return [first, *(t if t.shape == first.shape else to.code("{0}.reshape({1}.shape)", t, first) for t in table[1:])]


def _all_tensors(table: Any, count: int | None = None) -> list[Value]:
    if not isinstance(table, list) or not table or not all(isinstance(part, Value) for part in table):
        raise Unmapped("its input is no table of tensors")
    if count is not None and len(table) != count:
        raise Unmapped(f"its input is no table of {count} tensors")
    return table


MANY = 8
"""Tensors that are written with signs between them; more are a list that is summed up, or multiplied."""


def _chained(table: Any, to: Any, sign: str, count: int | None = None) -> Any:
    parts = _alike(_all_tensors(table, count), to)
    if len(parts) > MANY:
        return to.code(Call({"+": "sum", "*": "math.prod"}[sign], (items(len(parts)),)), *parts)
    return to.code(f" {sign} ".join(f"{{{i}}}" for i in range(len(parts))), *parts)


@rule(nn.CAddTable, becomes="x + y")
def c_add(m: Any, table: Any, to: Any) -> Any:
    return _chained(table, to, "+")


@rule(nn.CSubTable, becomes="x - y")
def c_sub(m: Any, table: Any, to: Any) -> Any:
    return _chained(table, to, "-", 2)


@rule(nn.CMulTable, becomes="x * y")
def c_mul(m: Any, table: Any, to: Any) -> Any:
    return _chained(table, to, "*")


@rule(nn.CDivTable, becomes="x / y")
def c_div(m: Any, table: Any, to: Any) -> Any:
    return _chained(table, to, "/", 2)


@rule(nn.CMaxTable, becomes="torch.maximum(x, y)")
def c_max(m: Any, table: Any, to: Any) -> Any:
    return _pairwise(table, to, "torch.maximum({0}, {1})")


@rule(nn.CMinTable, becomes="torch.minimum(x, y)")
def c_min(m: Any, table: Any, to: Any) -> Any:
    return _pairwise(table, to, "torch.minimum({0}, {1})")


def _pairwise(table: Any, to: Any, code: str) -> Any:
    best, *others = _alike(_all_tensors(table), to)
    for other in others:
        best = to.code(code, best, other)
    return best


@rule(nn.CAddTensorTable, becomes="[x + y, ...]")
def add_tensor(m: Any, table: Any, to: Any) -> Any:
    added, others = table
    return [to.code("{0} + {1}", _alike([added, other], to)[1], added) for other in others]


@rule(nn.MM, becomes="torch.matmul")
def mm(m: nn.MM, table: Any, to: Any) -> Any:
    a, b = (f"{{{i}}}.transpose(-1, -2)" if turned else f"{{{i}}}" for i, turned in enumerate((m.trans_a, m.trans_b)))
    return to.code(f"{a} @ {b}", *_all_tensors(table, 2))


@rule(nn.MV, becomes="torch.matmul")
def mv(m: nn.MV, table: Any, to: Any) -> Any:
    matrix = "{0}.transpose(-1, -2)" if m.trans else "{0}"
    return to.code(f"({matrix} @ {{1}}.unsqueeze(-1)).squeeze(-1)", *_all_tensors(table, 2))


@rule(nn.MixtureTable, becomes="a weighted sum")
def mixture(m: nn.MixtureTable, table: Any, to: Any) -> Any:
    gater, experts = table
    along = gater.ndim - 1
    if isinstance(experts, Value):
        dim = (along if m.dim is None else m.dim) % experts.ndim
        size = ["1"] * experts.ndim
        if along:
            size[0] = "-1"
        size[dim] = str(gater.shape[-1])
        return to.code(f"({{0}}.view({', '.join(size)}) * {{1}}).sum({dim})", gater, experts)
    parts = _alike(_all_tensors(experts), to)
    size = ["-1" if along else "1", *["1"] * (parts[0].ndim - 1)]
    shares = to.code(f"{{0}}.unbind({along})", gater, results=len(parts))
    terms = [
        to.code(f"{{0}}.view({', '.join(size)}) * {{1}}", share, part)
        for share, part in zip(shares, parts, strict=True)
    ]
    return to.code(" + ".join(f"{{{i}}}" for i in range(len(terms))), *terms)


@rule(nn.DotProduct, becomes="(x * y).sum(-1)")
def dot(m: Any, table: Any, to: Any) -> Any:
    keep = ", keepdim=True" if table[0].ndim == 1 else ""
    return to.code(f"({{0}} * {{1}}).sum(-1{keep})", *_all_tensors(table, 2))


@rule(nn.CosineDistance, becomes="cosine")
def cosine_distance(m: Any, table: Any, to: Any) -> Any:
    made = to.code("cosine({0}, {1})", *_all_tensors(table, 2))
    return to.code("{0}.unsqueeze(0)", made) if table[0].ndim == 1 else made


@rule(nn.PairwiseDistance, becomes="torch.linalg.vector_norm(x - y)")
def pairwise(m: nn.PairwiseDistance, table: Any, to: Any) -> Any:
    keep = ", keepdim=True" if table[0].ndim == 1 else ""
    return to.code(f"torch.linalg.vector_norm({{0}} - {{1}}, {text(m.norm)}, -1{keep})", *_all_tensors(table, 2))


@rule(nn.Max, becomes="x.max(dim)")
def maximum(m: Any, x: Value, to: Any) -> Any:
    return _extreme(m, x, to, "max")


@rule(nn.Min, becomes="x.min(dim)")
def minimum(m: Any, x: Value, to: Any) -> Any:
    return _extreme(m, x, to, "min")


def _extreme(m: Any, x: Value, to: Any, name: str) -> Any:
    keep = ", keepdim=True" if x.ndim == 1 else ""
    return to.code(f"{{0}}.{name}({m.dimension_of(x.tensor)}{keep}).values", x)


@rule(nn.Sum, nn.Mean, becomes="x.sum(dim), x.mean(dim)")
def total(m: Any, x: Value, to: Any) -> Any:
    keep = ", keepdim=True" if x.ndim == 1 or not m.squeeze else ""
    return to.code(f"{{0}}.{'mean' if m.size_average else 'sum'}({m.dimension_of(x.tensor)}{keep})", x)


@rule(nn.JoinTable, becomes="torch.cat")
def join(m: nn.JoinTable, table: Any, to: Any) -> Any:
    parts = _all_tensors(table)
    return joined(parts, dimension_of(parts[0].tensor, m.dimension, m.n_input_dims), to)


def joined(parts: list[Value], dim: int, to: Any) -> Any:
    """The tensors one after the other along a dimension."""
    if len(parts) == 1:
        return parts[0]
    if not all(value.ndim == parts[0].ndim for value in leaves(parts)):
        raise Unmapped("what it joins differs in the number of dimensions")
    return to.code(call("torch.cat", items(len(parts)), dim), *parts)


def items(count: int) -> Any:
    """A tuple of the first inputs, in a `Call`."""
    return Call("", tuple(f"{{{i}}}" for i in range(count)))
