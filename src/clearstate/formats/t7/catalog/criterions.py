"""nn's criterions: Torch7 gave them no `clearState`, so their buffers and gradients stayed in every file.

Class weights are constants. The tensors that hold one number are made as the constructor makes them where the C code
behind them writes to their first element without resizing them: an empty one would crash Torch7.
"""

from ..meaning.classes import absent, holding, register, table, tensor, tensors, value

OUTPUT = absent("output_tensor")
"""The loss as a tensor of one element, which the first forward makes."""

register("nn.Criterion", None, transient=tensor("gradInput") | value("output", 0))

for name in "Abs DistKLDiv Margin SmoothL1 SoftMargin".split():
    register(f"nn.{name}Criterion", "nn.Criterion", transient=OUTPUT)

# Regression. `diagHessianInput` is what nn's hessian.lua leaves.
register("nn.MSECriterion", "nn.Criterion", transient=OUTPUT | absent("diagHessianInput"))
register("nn.SpatialAutoCropMSECriterion", "nn.MSECriterion")
register("nn.WeightedMSECriterion", "nn.MSECriterion", constant="weight", transient=absent("buffer"))
register("nn.L1Cost", "nn.Criterion", transient=OUTPUT | absent("diagHessianInput"))

# Classes. `buffer` and `term1` to `term3` are those of the versions of BCECriterion before 2016.
register("nn.BCECriterion", "nn.Criterion", constant="weights", transient=OUTPUT | absent("buffer term1 term2 term3"))
for name in "ClassNLLCriterion SpatialClassNLLCriterion".split():
    register(
        f"nn.{name}",
        "nn.Criterion",
        constant="weights",
        transient=tensor("output_tensor", number=0)
        | tensor("total_weight_tensor", number=1)
        | tensor("target", "torch.LongTensor", number=0),
    )
register("nn.CrossEntropyCriterion", "nn.Criterion")
register("nn.ClassSimplexCriterion", "nn.MSECriterion", constant="simplex", transient=tensor("_target"))
register("nn.MultiMarginCriterion", "nn.Criterion", constant="weights", transient=OUTPUT | absent("target_tensor"))
register("nn.MultiLabelMarginCriterion", "nn.Criterion", transient=OUTPUT | tensor("isTarget"))
register("nn.MultiLabelSoftMarginCriterion", "nn.Criterion", constant="weights", transient=absent("_buffer1 _buffer2"))

# Pairs.
register("nn.HingeEmbeddingCriterion", "nn.Criterion", transient=absent("buffer ty"))
register("nn.L1HingeEmbeddingCriterion", "nn.Criterion", transient=tensors("gradInput", 2))
register(
    "nn.CosineEmbeddingCriterion",
    "nn.Criterion",
    transient=tensors("gradInput", 2) | absent("buffer w1 w22 w w32 _outputs _idx _y"),
)
register(
    "nn.MarginRankingCriterion",
    "nn.Criterion",
    transient=tensors("gradInput", 2, number=0) | absent("_output dist mask"),
)
register(
    "nn.DistanceRatioCriterion",
    "nn.Criterion",
    transient=absent("_expMinusX _expMinusY _sumExpMinusXY _logSumExpMinusXY loss dX dY"),
)

# Criterions around others. ModuleCriterion's constructor does not call that of Criterion.
register("nn.MultiCriterion", "nn.Criterion", constant="weights")
register("nn.ParallelCriterion", "nn.Criterion", transient=table("gradInput"))
register("nn.ModuleCriterion", "nn.Criterion", transient=absent("input target output gradInput"))
register("nn.CriterionTable", transient=holding("gradInput", "criterion.gradInput"))
