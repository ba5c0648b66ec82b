"""fast-neural-style and texture_nets: the layers of feed-forward style transfer. They are in nn's name space.

Both have an `nn.InstanceNormalization`, which makes a batch normalization (``bn``) for each size of batch; that of
texture_nets has running statistics.
"""

from collections.abc import Mapping
from typing import Any

from ..meaning.classes import absent, register, tensor, value, where


def has_statistics(module: Mapping[Any, Any]) -> bool:
    """Whether it is texture_nets' class."""
    return module.get("running_mean") is not None


register(
    "nn.InstanceNormalization",
    parameter="weight bias",
    gradient="gradWeight gradBias",
    buffer="running_mean running_var",
    transient=absent("bn")
    | where(has_statistics, value("prev_batch_size", -1))
    | where(has_statistics, {**absent("prev_N")}, value("prev_N", -1)),
)
register("nn.ShaveImage")
register("nn.TotalVariation", transient=tensor("x_diff y_diff"))
register("nn.GramMatrix", transient=tensor("buffer"))
register("nn.ContentLoss", constant="target", transient=value("loss", 0))
register("nn.StyleLoss", constant="target", transient=value("loss", 0) | absent("agg_out _target"))
register("nn.DeepDreamLoss", transient=tensor("clipped"))
register(
    "nn.PerceptualCriterion",
    "nn.Criterion",
    transient=tensor("grad_net_output") | absent("total_content_loss content_losses total_style_loss style_losses"),
)
