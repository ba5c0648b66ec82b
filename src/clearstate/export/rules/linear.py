"""Layers with a weight matrix, and those that compare with, or look up, its rows."""

from __future__ import annotations

from typing import Any

import torch

from ... import nn
from ..calls import Call, call
from ..values import Value
from .table import Unmapped, rule


@rule(nn.Linear, becomes="nn.Linear")
def linear(m: nn.Linear, x: Value, to: Any) -> Any:
    outputs, inputs = m.weight.shape
    bias = None if m.bias is not None else False
    return to.layer(x, call("nn.Linear", inputs, outputs, bias=bias), "fc", weight=m.weight, bias=m.bias)


@rule(nn.LinearWeightNorm, becomes="WeightNormLinear")
def linear_weight_norm(m: nn.LinearWeightNorm, x: Value, to: Any) -> Any:
    outputs, inputs = m.v.shape
    bias = None if m.bias is not None else False
    made = call("WeightNormLinear", inputs, outputs, bias=bias, eps=None if m.eps == 1e-16 else m.eps)
    return to.layer(x, made, "fc", v=m.v, g=m.g, bias=m.bias)


@rule(nn.Bilinear, becomes="nn.Bilinear")
def bilinear(m: nn.Bilinear, table: Any, to: Any) -> Any:
    outputs, first, second = m.weight.shape
    made = call("nn.Bilinear", first, second, outputs, bias=None if m.bias is not None else False)
    return to.layer(table, made, "bilinear", code="{layer}({0}, {1})", weight=m.weight, bias=m.bias)


@rule(nn.PartialLinear, becomes="PartialLinear")
def partial_linear(m: nn.PartialLinear, x: Value, to: Any) -> Any:
    outputs, inputs = m.weight.shape
    bias = None if m.bias is None else m.bias[0]
    made = call("PartialLinear", inputs, outputs, len(m.partition), bias=None if bias is not None else False)
    return to.layer(x, made, "fc", weight=m.weight, bias=bias, partition=m.partition.long())


@rule(nn.LookupTable, becomes="nn.Embedding")
def lookup_table(m: nn.LookupTable, x: Value, to: Any) -> Any:
    rows, size = m.weight.shape
    padding = m.padding_value if m.padding_value is not None and m.padding_value < rows else None
    made = call(
        "nn.Embedding",
        rows,
        size,
        padding_idx=padding,
        max_norm=m.max_norm,
        norm_type=None if m.max_norm is None or m.norm_type in (None, 2) else float(m.norm_type),
        scale_grad_by_freq=True if m.should_scale_grad_by_freq else None,
    )
    index = x if x.tensor.dtype is torch.int64 else to.code("{0}.long()", x)
    return to.layer(index, made, "embedding", weight=m.weight)


@rule(nn.Cosine, becomes="Cosine")
def cosine(m: nn.Cosine, x: Value, to: Any) -> Any:
    outputs, inputs = m.weight.shape
    return to.layer(x, call("Cosine", inputs, outputs), "cosine", weight=m.weight)


@rule(nn.Euclidean, becomes="Euclidean")
def euclidean(m: nn.Euclidean, x: Value, to: Any) -> Any:
    return to.layer(x, call("Euclidean", *m.weight.shape), "euclidean", weight=m.weight)


@rule(nn.WeightedEuclidean, becomes="WeightedEuclidean")
def weighted_euclidean(m: nn.WeightedEuclidean, x: Value, to: Any) -> Any:
    return to.layer(x, call("WeightedEuclidean", *m.weight.shape), "euclidean", weight=m.weight, scale=m.diag_cov)


@rule(nn.IndexLinear, becomes="SparseLinear")
def index_linear(m: nn.IndexLinear, table: Any, to: Any) -> Any:
    if m.normalize:
        raise Unmapped("it normalizes by the largest values it has seen")
    made = call("SparseLinear", m.input_size, m.output_size)
    state = {"weight": m.weight, "bias": m.bias}

    def summed(keys: Value, *rest: Value) -> Any:
        index = to.code(f"{{0}} + {m.offset + 1}", keys) if m.offset + 1 else keys
        code = "{layer}(" + ", ".join(f"{{{i}}}" for i in range(1 + len(rest))) + ")"
        return to.again(made, "fc", index, *rest, code=code, **state)

    keys, values, *counts = table
    if isinstance(keys, Value):
        return summed(keys, values, *counts)
    rows = [summed(key, value) for key, value in zip(keys, values, strict=True)]
    return to.code(stacked(len(rows)), *rows)


@rule(nn.SparseLinear, becomes="SparseLinear")
def sparse_linear(m: nn.SparseLinear, x: Any, to: Any) -> Any:
    outputs, inputs = m.weight.shape
    made = call("SparseLinear", inputs, outputs)
    samples = x if isinstance(x, list) else [x]
    rows = []
    for sample in samples:
        features, values = to.code("{0}.unbind(-1)", sample, results=2)
        rows.append(to.again(made, "fc", features, values, code="{layer}({0}, {1})", weight=m.weight.t(), bias=m.bias))
    return to.code(stacked(len(rows)), *rows) if isinstance(x, list) else rows[0]


def stacked(count: int) -> Call:
    """Source that stacks so many inputs: ``torch.stack([{0}, {1}])``."""
    return Call("torch.stack", (Call("", tuple(f"{{{i}}}" for i in range(count)), "[]"),))
