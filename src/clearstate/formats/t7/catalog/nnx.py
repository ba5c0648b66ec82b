"""nnx: layers of images, some of them older than nn's own, in nn's name space."""

from ..meaning.classes import absent, register, storage, tensor

# The nets and functions inside are modules in fields; they leave what this one then holds too. A forward asks for the
# sizes of `coef`, so it is of two dimensions from the beginning.
register(
    "nn.SpatialNormalization",
    constant="kernel",
    transient=tensor("coef", number=1, dims=2)
    | tensor("inConvo inMean inputZeroMean inputZeroMeanSq inConvoVar inVar inStdDev thstd")
    | absent("input inStdDevNotUnit stdDev"),
)
register("nn.SpatialPadding")
register(
    "nn.SpatialClassifier",
    transient=tensor("inputF inputT outputF gradOutputF gradOutputT gradInputF") | absent("outputT gradInputT"),
)
register("nn.SpatialLinear", parameter="weight bias", gradient="gradWeight gradBias")
register("nn.SpatialUpSampling", transient=storage("outputSize inputSize", 4))
register("nn.SpatialDownSampling")
register("nn.SpatialReSampling")

register("nn.SaturatedLU")
register("nn.Minus")
register("nn.MultiSoftMax", transient=tensor("_input _output _gradInput _gradOutput"))
