"""Containers: what they hold is converted, and of themselves remains which value goes where."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from ... import nn
from ...nn.declarations.dimensions import dimension_of
from ...nn.layers.conversion import dtype_of
from ..calls import Call, call
from ..values import Value
from .arithmetic import items, joined
from .table import Unmapped, rule


def _children(m: Any) -> Iterable[tuple[str, torch.nn.Module]]:
    return m.children_in_order()  # type: ignore[no-any-return]


@rule(nn.Sequential, nn.Maxout, nn.SpatialLPPooling, nn.LayerNormalization, becomes="its modules", container=True)
def sequential(m: Any, x: Any, to: Any) -> Any:
    for name, child in m._modules.items():
        x = to.child(child, name, x)
    return x


@rule(torch.nn.Sequential, becomes="its modules", container=True)
def stock_sequential(m: torch.nn.Sequential, x: Any, to: Any) -> Any:
    for name, child in m.named_children():
        x = to.child(child, name, x)
    return x


@rule(nn.Concat, nn.DepthConcat, becomes="torch.cat", container=True)
def concat(m: nn.Concat, x: Any, to: Any) -> Any:
    parts = [to.child(child, name, x) for name, child in _children(m)]
    dim = dimension_of(parts[0].tensor, m.dimension, None)
    if isinstance(m, nn.DepthConcat):
        return to.code(call("cat_centred", Call("", items(len(parts)).items, "[]"), dim), *parts)
    return joined(parts, dim, to)


@rule(nn.ConcatTable, becomes="its modules", container=True)
def concat_table(m: Any, x: Any, to: Any) -> Any:
    return [to.child(child, name, x) for name, child in _children(m)]


@rule(nn.ParallelTable, becomes="its modules", container=True)
def parallel_table(m: Any, table: Any, to: Any) -> Any:
    if not isinstance(table, list):
        raise Unmapped("its input is no table with the keys 1 to n")
    return [to.child(child, name, entry) for (name, child), entry in zip(_children(m), table, strict=False)]


@rule(nn.MapTable, becomes="its module, for each entry", container=True)
def map_table(m: nn.MapTable, table: Any, to: Any) -> Any:
    if not isinstance(table, list):
        raise Unmapped("its input is no table with the keys 1 to n")
    if m.shared and m.module is not None:
        return [to.child(m.module, "0", entry) for entry in table]
    return [to.child(child, name, entry) for (name, child), entry in zip(_children(m), table, strict=False)]


@rule(nn.Parallel, becomes="x.unbind(dim), torch.cat", container=True)
def parallel(m: nn.Parallel, x: Value, to: Any) -> Any:
    along = dimension_of(x.tensor, m.input_dimension, None)
    parts = to.code(f"{{0}}.unbind({along})", x, results=x.shape[along])
    outputs = [to.child(child, name, part) for (name, child), part in zip(_children(m), parts, strict=False)]
    return joined(outputs, dimension_of(outputs[0].tensor, m.output_dimension, None), to)


@rule(nn.DataParallelTable, nn.Decorator, nn.NaN, nn.Profile, nn.GPU, becomes="its module", container=True)
def around(m: Any, x: Any, to: Any) -> Any:
    return to.child(m.get(0), "0", x)


@rule(nn.DontCast, becomes="its module, x.to(dtype)", container=True)
def dont_cast(m: Any, x: Any, to: Any) -> Any:
    if m.castin:
        own = next((t.dtype for t in (*m.inner.parameters(), *m.inner.buffers()) if t.is_floating_point()), None)
        x = _cast(x, dtype_of(m.module_type) if own is None else own, to)
    made = to.child(m.inner, "0", x)
    return _cast(made, m.around.dtype, to) if m.castout else made


def _cast(table: Any, dtype: torch.dtype, to: Any) -> Any:
    if isinstance(table, list):
        return [_cast(part, dtype, to) for part in table]
    if isinstance(table, dict):
        return {key: _cast(part, dtype, to) for key, part in table.items()}
    return table if table.tensor.dtype is dtype else to.code(f"{{0}}.to({dtype})", table)


@rule(nn.CReLU, becomes="torch.cat((x, -x), 1).relu()", container=True)
def crelu(m: nn.CReLU, x: Value, to: Any) -> Any:
    channels = x.ndim - m.n_input_dims
    negative = to.code("-{0}", x)
    both = to.code(f"torch.cat(({{0}}, {{1}}), {channels})", x, negative)
    return to.child(m.get(len(m) - 1), str(len(m) - 1), both)


@rule(nn.Bottle, becomes="its module, between two reshapes", container=True)
def bottle(m: nn.Bottle, x: Value, to: Any) -> Any:
    fused = x.ndim - m.n_input_dim + 1
    if fused <= 1:
        return to.child(m.inner, "0", x)
    flat = to.code(f"{{0}}.flatten(0, {fused - 1})", x)
    output = to.child(m.inner, "0", flat)
    each = output.shape[0] // math.prod(x.shape[: fused - 1])
    sizes = ", ".join(f"{{1}}.shape[{i}]" for i in range(fused - 1))
    last = "-1" if fused > 1 else str(each)
    return to.code(f"{{0}}.unflatten(0, ({sizes}, {last}))", output, x)


@rule(nn.gModule, becomes="its modules", container=True)
def graph(m: nn.gModule, input: Any, to: Any) -> Any:
    values: list[Any] = [input]
    for step, module in list(m.nodes())[1:]:
        value = values[step.parents[0]] if len(step.parents) == 1 else [values[i] for i in step.parents]
        if step.select is not None:
            value = value[step.select]
        elif module is not None:
            to.named(str(step.annotations.get("name", "")))
            value = to.child(module, str(step.name), value if step.parents else [])
            to.named("")
        values.append(value)
    return values[-1]


@rule(nn.WeightNorm, becomes="WeightNorm")
def weight_norm(m: Any, x: Value, to: Any) -> Any:
    inner, own = m.inner, m.effective_weight().detach()
    inner._parameters["weight"] = torch.nn.Parameter(own)
    try:
        steps = to.recorded(inner, x)
    finally:
        inner._parameters["weight"] = None
    if len(steps) != 1 or steps[0].layer is None or not hasattr(steps[0].layer.module, "weight"):
        raise Unmapped(f"the layer inside, {inner}, is not one layer of PyTorch")
    layer = steps[0].layer
    stock = layer.module.weight
    if stock.numel() == own.numel() and stock.shape[: m.output_dim + 1] == own.shape[: m.output_dim + 1]:
        turned = stock.movedim(m.output_dim, 0).shape
        made = call("WeightNorm", layer.constructor, None if m.output_dim == 0 else m.output_dim)
        made = made if m.output_dim else call("WeightNorm", layer.constructor)
        state = {"v": m.v.view(turned), "g": m.g.view(-1, *[1] * (len(turned) - 1)), "layer__bias": m.bias}
        return to.layer(x, made, layer.kind, **state)
    raise Unmapped("its weight has another form in PyTorch")
