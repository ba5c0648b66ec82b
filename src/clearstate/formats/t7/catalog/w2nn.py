"""w2nn: waifu2x's layers and losses. Its losses keep a loss for each sample beside the total."""

from ..meaning.classes import absent, register, table, tensor

register("w2nn.LeakyReLU", transient=tensor("negative"))
register("w2nn.InplaceClip01")
register("w2nn.ScaleTable", transient=table("gradInput") | tensor("grad_tmp scale"))
register("w2nn.ShakeShakeTable", transient=tensor("alpha beta first second") | absent("gradOutput"))
register(
    "w2nn.AuxiliaryLossTable",
    transient=table("gradInput output_table") | tensor("output_tensor"),
)
register("w2nn.GradWeight")
register("w2nn.Print")
register("w2nn.PrintTable")
register("w2nn.DepthExpand2x", transient=absent("shape"))

# Convolutions whose weight is fixed. Their constructors take the bias away.
register("w2nn.EdgeFilter", "nn.SpatialConvolution")
register("w2nn.RandomBinaryConvolution", "nn.SpatialConvolution")

HUBER = tensor("diff diff_abs square_loss_buff linear_loss_buff")
register("w2nn.ClippedMSECriterion", "nn.Criterion", transient=tensor("diff diff_pow2") | table("instance_loss"))
register("w2nn.ClippedWeightedHuberCriterion", "nn.Criterion", constant="weight", transient=HUBER)
register("w2nn.WeightedMSECriterion", "nn.Criterion", constant="weight", transient=tensor("diff loss"))
register("w2nn.L1Criterion", "nn.Criterion", transient=tensor("diff linear_loss_buff"))
register("w2nn.LBPCriterion", "nn.Criterion", transient=HUBER | tensor("input target"))
register("w2nn.PSNRCriterion", "nn.Criterion", transient=tensor("image diff"))
register(
    "w2nn.SSIMCriterion",
    "nn.Criterion",
    transient=tensor("mu1 mu2 mu1_sq mu2_sq mu1_mu2 sigma1_sq sigma2_sq sigma12 ssim_map"),
)
register("w2nn.AuxiliaryLossCriterion", "nn.Criterion", transient=table("gradInput criterions instance_loss"))
