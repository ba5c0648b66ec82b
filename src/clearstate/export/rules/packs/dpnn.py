"""dpnn's layers."""

from __future__ import annotations

from typing import Any

from ....nn.packs import dpnn
from ...calls import call, text
from ...values import Value
from ..normalization import as_batch
from ..table import rule


@rule(dpnn.Inception, becomes="its modules", container=True)
def inception(m: Any, x: Value, to: Any) -> Any:
    return as_batch(x, 4, to, lambda batch: to.child(m.inner, "0", batch))


@rule(dpnn.Clip, becomes="x.clamp, with the gradient of x")
def clip(m: Any, x: Value, to: Any) -> Any:
    return straight(x, f"clamp({text(m.minval)}, {text(m.maxval)})", to)


def straight(x: Value, method: str, to: Any) -> Any:
    """What a method of the tensor gives, with the gradient of the tensor itself."""
    return to.code(f"{{0}} + ({{0}}.{method} - {{0}}).detach()", x)


@rule(dpnn.CategoricalEntropy, becomes="nothing: its penalty is for training in Torch7")
def categorical_entropy(m: Any, x: Value, to: Any) -> Any:
    return x


@rule(dpnn.ReverseTable, becomes="the table in reverse")
def reverse_table(m: Any, table: Any, to: Any) -> Any:
    return list(reversed(table))


@rule(dpnn.SpatialFeatNormalization, becomes="(x - mean) / std")
def feature_normalization(m: Any, x: Value, to: Any) -> Any:
    made = call("Fixed", len(m.mean), 1, 1)
    mean = to.layer(x, made, "mean", code="{0} - {layer}()", value=m.mean.view(-1, 1, 1))
    return to.layer(mean, made, "std", code="{0} / {layer}()", value=m.std.view(-1, 1, 1))
