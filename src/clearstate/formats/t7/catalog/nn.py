"""nn: the layers and containers. Criterions are in `criterions`.

Most buffers do not exist until the first forward makes them; where the constructor makes one, it is an empty tensor.
Where it leaves a tensor with a size and no values (``output`` of CMul, ``coef`` of SpatialDivisiveNormalization), an
empty one does: the next forward resizes it. Where the next forward would not, the size stays: `zeros`.
"""

from collections.abc import Mapping
from typing import Any

from ..meaning.classes import absent, clones, emptied, register, storage, table, tensor, tensors, value, where, zeros

# What `parameters` returns and nn's hessian.lua leaves, on any module.
register(
    "nn.Module",
    None,
    parameter="weight bias",
    gradient="gradWeight gradBias",
    transient=tensor("output gradInput")
    | absent("diagHessianInput diagHessianWeight diagHessianBias inputSq weightSq biasSq"),
)

COPIES = absent("_input _gradOutput")
"""Contiguous copies of what the module was given."""

COLUMNS = absent("finput fgradInput") | COPIES
"""The unfolded input of a convolution and its gradient."""

# Layers that leave no more than their output and gradient.
for name in (
    "Abs Contiguous ELU Exp FeatureLPPooling GatedLinearUnit GradientReversal HardShrink HardTanh Identity "
    "LeakyReLU Log LogSoftMax Mul Narrow Power PrintSize ReLU6 Replicate Select Sigmoid SoftMax SoftPlus SoftShrink "
    "SpatialAdaptiveAveragePooling SpatialAveragePooling SpatialLogSoftMax SpatialReflectionPadding "
    "SpatialReplicationPadding SpatialSoftMax SpatialSubSampling SpatialZeroPadding SplitTable Sqrt Square Squeeze "
    "Tanh TanhShrink TemporalConvolution TemporalSubSampling Threshold Transpose Unsqueeze "
    "VolumetricAveragePooling VolumetricReplicationPadding ZeroGrad"
).split():
    register(f"nn.{name}")
register("nn.Clamp", "nn.HardTanh")
register("nn.ReLU", "nn.Threshold")
for name in "AddConstant MulConstant".split():
    register(f"nn.{name}", constant="constant_scalar")
register("nn.Constant", constant="value")

# Fully connected layers.
register("nn.Linear", transient=absent("addBuffer"))
register("nn.Bilinear", transient=tensors("gradInput", 2) | absent("buff1 buff2"))
register("nn.Add", transient=tensor("_ones", number=1))
register("nn.CAdd", constant="size", transient=absent("_output _bias _gradBias _gradOutput _expand _repeat"))
register(
    "nn.CMul",
    constant="size",
    transient=absent("_input _output _weight _gradInput _gradOutput _gradWeight _expand _repeat _sum"),
)
register("nn.Cosine", transient=absent("_input _weight _gradOutput _sum _inputNorm _weightNorm __norm"))
EUCLIDEAN = absent("_input _output _gradOutput _weight _div _sum _expand _expand2 _expand3 _repeat _repeat2")
register("nn.Euclidean", transient=EUCLIDEAN)
register(
    "nn.WeightedEuclidean",
    parameter="diagCov",
    gradient="gradDiagCov",
    transient=EUCLIDEAN | absent("_diagCov _expand4 _repeat3"),
)
register("nn.PartialLinear", constant="partition allcolumns", transient=absent("buffer addBuffer"))
register("nn.PReLU", transient=absent("gradWeightBuf gradWeightBuf2"))

# `weight` is computed from `v` and `g` in training only, and evaluation reads it.
register(
    "nn.LinearWeightNorm",
    "nn.Linear",
    parameter="bias v g",
    gradient="gradBias gradV gradG",
    buffer="weight",
    transient=tensor("norm scale"),
)


def on_gpu(module: Mapping[Any, Any]) -> bool:
    """Whether a module was converted to a CUDA type."""
    kind = module.get("_type")
    return isinstance(kind, str) and kind.startswith("torch.Cuda")


# `type` makes the indices' copies for the GPU, and no later call does. `inputs` and `nBackward` are those of 2015.
register(
    "nn.LookupTable",
    transient=where(on_gpu, emptied("_count _input _sorted _indices"), absent("_count _input _sorted _indices"))
    | absent("copiedInput")
    | table("inputs")
    | value("nBackward", 0),
)


def has_no_gradient(module: Mapping[Any, Any]) -> bool:
    """Whether a SparseLinear's gradients are zero: no backward since they were zeroed."""
    return module.get("sparseUpdate") == 0


# With `lastInput` gone, gradients that are kept have to be zeroed and applied as a whole: state 2.
register(
    "nn.SparseLinear",
    transient=table("gradInput")
    | absent("formatted_input lastInput legacyMode")
    | where(has_no_gradient, value("sparseUpdate", 0), value("sparseUpdate", 2)),
)

# `gradWeight` is made of what `running` collects, one entry a backward; `counter` counts these.
register(
    "nn.IndexLinear",
    gradient="gradBias",
    transient=tensor("gradWeight gradWeightBuffer valuesBuffer normalizedValues")
    | table("running.cumSumSizes running.keys running.gradWeight sizesCache cumSumSizesCache")
    | value("running.counter", 1)
    | absent("keys zerokeys updateKeys updateKeysBuffer values sizes cumSumSizes lkeys lvalues isFlat noBatch"),
)
register(
    "nn.Kmeans",
    buffer="clusterSampleCount",
    transient=value("loss", 0)
    | absent("_expandedSamples _clusterDistances _temp _tempExpanded _tempWeight _tempWeightExp _expandedWeight")
    | absent("_minScore _minIndx _cscAdder _ccounts _gradWeight _gradWeight2"),
)

# Convolutions. `connTableRev` is that of the first versions.
for name in (
    "SpatialConvolution SpatialConvolutionLocal SpatialConvolutionMM SpatialDepthWiseConvolution "
    "TemporalRowConvolution VolumetricConvolution"
).split():
    register(f"nn.{name}", transient=COLUMNS)
for name in "Spatial Volumetric".split():
    register(f"nn.{name}DilatedConvolution", f"nn.{name}Convolution")
for name in "SpatialConvolutionMap SpatialFullConvolutionMap".split():
    register(f"nn.{name}", constant="connTable connTableRev")
register("nn.SpatialFullConvolution", transient=COLUMNS | tensor("ones") | absent("zeroScalar"))
register("nn.VolumetricFullConvolution", transient=COPIES | tensor("ones finput fgradInput") | absent("zeroScalar"))

# Pooling. `iheight` and its like are the size of the last input, which unpooling reads.
MAXIMA = tensor("indices", "torch.LongTensor")
register("nn.SpatialMaxPooling", transient=MAXIMA | absent("iheight iwidth"))
register("nn.VolumetricMaxPooling", transient=MAXIMA | absent("itime iheight iwidth"))
for name in "Spatial Volumetric".split():
    register(f"nn.{name}DilatedMaxPooling", f"nn.{name}MaxPooling")
    register(f"nn.{name}FractionalMaxPooling", transient=absent("indices randomSamples"))
for name in "SpatialAdaptiveMaxPooling TemporalDynamicKMaxPooling TemporalMaxPooling".split():
    register(f"nn.{name}", transient=absent("indices"))
register("nn.SpatialMaxUnpooling", transient=absent("indices oheight owidth"))
register(
    "nn.VolumetricMaxUnpooling",
    transient=absent("indices otime oheight owidth dT dH dW padT padH padW"),
)
register("nn.SpatialUpSamplingNearest", transient=storage("inputSize outputSize", 4))
register("nn.SpatialUpSamplingBilinear", transient=storage("inputSize outputSize", 4) | COPIES)
register("nn.UpSampling", transient=storage("inputSize outputSize", 5) | COPIES)
register("nn.PixelShuffle", transient=absent("_intermediateShape _outShape _shuffleIn _shuffleOut"))

# Normalization. The last fields of the first are those of its versions before 2016.
register(
    "nn.BatchNormalization",
    buffer="running_mean running_var running_std",
    transient=COPIES | absent("save_mean save_std buffer buffer2 centered std normalized"),
)
for name in "Spatial Volumetric".split():
    register(f"nn.{name}BatchNormalization", "nn.BatchNormalization")
register("nn.SpatialContrastiveNormalization", constant="kernel")
register(
    "nn.SpatialSubtractiveNormalization",
    constant="kernel",
    transient=tensor("coef") | absent("_coef _inpsz ones localsums adjustedsums"),
)
register(
    "nn.SpatialDivisiveNormalization",
    constant="kernel",
    transient=tensor("coef") | absent("_coef ones localstds adjustedstds thresholdedstds"),
)
register("nn.SpatialCrossMapLRN", transient=absent("scale paddedRatio accumRatio"))
register(
    "nn.Normalize",
    transient=absent("_output _indices _gradInput buffer buffer2 norm normp cross"),
)

# Noise, and activations with a buffer.
for name in "Dropout RReLU SpatialDropout VolumetricDropout WhiteNoise".split():
    register(f"nn.{name}", transient=tensor("noise"))
register("nn.LogSigmoid", transient=absent("buffer"))
register("nn.SoftMin", transient=absent("mininput"))
register("nn.SoftSign", transient=absent("temp tempgrad"))
register("nn.L1Penalty", transient=absent("loss"))

# Shape and reduction. The first element of `batchsize` is the last batch's size.
register("nn.Reshape", constant="size", transient=COPIES | storage("batchsize", after="size"))
register("nn.View", constant="size")
register("nn.Padding", transient=storage("outputSize", 0))
register("nn.Collapse", transient=absent("_input"))
register("nn.OneHot", transient=absent("_single _input"))
register("nn.Sum", transient=absent("_gradOutput"))
register("nn.Mean", "nn.Sum")
for name in "Max Min".split():
    register(f"nn.{name}", transient=absent("_output _indices"))
register("nn.Index", transient=tensors("gradInput", 2))
register(
    "nn.MaskedSelect",
    transient=tensor("_maskIndices _maskIndexBuffer", "torch.LongTensor")
    | tensor("_maskIndexBufferCPU", "torch.FloatTensor")
    | tensor("_gradBuffer")
    | tensor("_gradMask", "torch.ByteTensor"),
)

# Tables in, or out, or both.
for name in "CAddTable CAddTensorTable CDivTable CSubTable SelectTable".split():
    register(f"nn.{name}", transient=table("gradInput"))
register("nn.CMulTable", transient=table("gradInput") | absent("tout"))
BEST = table("gradInput") | tensor("mask gradMaxVals") | absent("maskByteTensor")
register("nn.CMaxTable", transient=BEST | tensor("maxIdx maxVals"))
register("nn.CMinTable", transient=BEST | tensor("minIdx minVals"))
register("nn.JoinTable", transient=table("gradInput") | storage("size", 0))
register("nn.FlattenTable", transient=table("output gradInput input_map"))
for name in "NarrowTable ZipTable".split():
    register(f"nn.{name}", transient=table("output gradInput"))
register("nn.ZipTableOneToMany", transient=table("output gradInput") | tensor("gradInputEl"))
register(
    "nn.MixtureTable",
    transient=table("gradInput")
    | storage("size size2", 0)
    | value("batchSize", 0)
    | value("backwardSetup", False)
    | absent("table dimG _gaterView _expert _expertView _expert2 _expertView2 _sum"),
)
for name in "MM MV".split():
    register(f"nn.{name}", transient=tensors("gradInput", 2))
register("nn.DotProduct", transient=tensors("gradInput", 2) | absent("buffer"))
register(
    "nn.CosineDistance",
    transient=tensors("gradInput", 2) | absent("buffer w w1 w22 w32 ones _input1 _input2"),
)
register("nn.PairwiseDistance", transient=table("gradInput") | tensor("diff") | absent("outExpand grad ones"))


def shares(module: Mapping[Any, Any]) -> bool:
    """Whether a MapTable's clones have its template's parameters; with ``shared = false`` they learn their own."""
    return module.get("shared") is not False


def has_size(module: Mapping[Any, Any]) -> bool:
    """Whether a container is of a version whose constructor made ``size``, which today is a method's name."""
    return module.get("size") is not None


SIZE = where(has_size, storage("size", 0), absent("size"))

# Containers. What a container returns may be a table; its constructor makes a tensor all the same.
register("nn.Container")
for name in "Sequential Decorator".split():
    register(f"nn.{name}", "nn.Container")
for name in "CReLU LayerNormalization Maxout SpatialLPPooling".split():
    register(f"nn.{name}", "nn.Sequential")
register("nn.Concat", "nn.Container", transient=storage("outputSize", 0) | SIZE)
register("nn.DepthConcat", "nn.Concat")
register("nn.ConcatTable", "nn.Container", transient=table("output"))
register("nn.Parallel", "nn.Container", transient=absent("totalOutputSize") | SIZE)
register("nn.ParallelTable", "nn.Container", transient=table("output gradInput"))
register("nn.MapTable", "nn.Container", transient=table("output gradInput") | clones("modules", "module", shares))
register("nn.GPU", "nn.Container", transient=COPIES)
register("nn.NaN", "nn.Decorator")
register("nn.Bottle", "nn.Decorator", transient=zeros("inShape outShape"))
register("nn.Profile", "nn.Decorator", transient=value("numFwds numBwds summedFwdTime summedBwdTime", 0))

# `weight` is never in a file: reading computes it from `v` and `g`, and writes `_scale` without resizing it.
register(
    "nn.WeightNorm",
    "nn.Decorator",
    parameter="v g",
    gradient="gradV gradG",
    constant="viewIn viewOut weightSize",
    transient=zeros("_norm _scale"),
)

# Modules between tensor types: the class of what they return is not that of the module.
register("nn.Copy", transient=emptied("output gradInput"))
register("nn.DontCast", "nn.Decorator", transient=emptied("output gradInput") | COPIES)

# The first forward chooses the module that converts.
register(
    "nn.Convert",
    "nn.Container",
    transient=table("modules")
    | absent("converter batchMode _input _gradInput __input __output __gradInput __gradOutput"),
)

register("nn.StochasticGradient", None)
