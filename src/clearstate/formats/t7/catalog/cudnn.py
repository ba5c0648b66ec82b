"""cudnn.torch: nn's layers on cuDNN. Descriptors, and all that was found out for one input size, are caches.

The modes a user sets (``fmode``, ``bdmode``, ``bwmode``, ``fastest_mode``) and the name of the operation (``mode``,
``algorithm``) are kept. Descriptors never reach a file: the classes drop them as they are written.
"""

from ..meaning.classes import absent, emptied, register, storage, value

CONVOLUTION = absent(
    "iSize oSize pad stride dilation iDesc oDesc oDescForBias oDescBias weightDesc biasDesc convDesc convDescData "
    "scaleT input_offset output_offset weight_offset bias_offset input_slice output_slice autotunerHash iteration "
    "iType weightType algType fwdAlgType bwdDataAlgType bwdFilterAlgType "
    "extraBuffer extraBufferSizeInBytes extraBufferInBytes _input _gradOutput"
)
"""Sizes, descriptors, the algorithm found for them, and its work space; all versions of the package."""

for name in "SpatialConvolution SpatialFullConvolution VolumetricConvolution VolumetricFullConvolution".split():
    register(f"cudnn.{name}", f"nn.{name}", transient=CONVOLUTION)
register("cudnn.TemporalConvolution", "nn.TemporalConvolution", transient=CONVOLUTION | absent("buffer _output"))
register("cudnn.SpatialDilatedConvolution", "cudnn.SpatialConvolution")
register("cudnn.VolumetricDilatedConvolution", "cudnn.VolumetricConvolution")

register("cudnn._Pooling", transient=storage("iSize", 4) | absent("iDesc oDesc poolDesc iType _gradOutput"))
register("cudnn._Pooling3D", transient=storage("iSize", 5) | absent("iDesc oDesc poolDesc _gradOutput"))
for name in "MaxPooling AveragePooling".split():
    register(f"cudnn.Spatial{name}", "cudnn._Pooling")
    register(f"cudnn.Volumetric{name}", "cudnn._Pooling3D")

register("cudnn._Pointwise", transient=absent("nElem iSize iDesc oDesc activDesc _gradOutput"))
for name in "ReLU ClippedReLU Tanh Sigmoid".split():
    register(f"cudnn.{name}", "cudnn._Pointwise")
register("cudnn.ReLUInPlace", transient=storage("iSize", 4) | absent("iDesc _gradOutput"))
register("cudnn.Dropout", "nn.Dropout", transient=absent("nElem iDesc dropDesc reserves"))

register("cudnn.SpatialSoftMax", transient=absent("iSize iDesc oDesc iType _gradOutput"))
for name in "SpatialLogSoftMax SoftMax LogSoftMax".split():
    register(f"cudnn.{name}", "cudnn.SpatialSoftMax")
register("cudnn.VolumetricSoftMax")
register("cudnn.VolumetricLogSoftMax", "cudnn.VolumetricSoftMax")

register("cudnn.SpatialCrossMapLRN", transient=absent("iSize iDesc LRNDesc iType _gradOutput"))
register("cudnn.SpatialDivisiveNormalization", transient=absent("iSize iDesc DivisiveNormDesc iType _gradOutput"))
register(
    "cudnn.BatchNormalization",
    parameter="weight bias",
    gradient="gradWeight gradBias",
    buffer="running_mean running_var running_std",
    transient=absent("iSize iDesc oDesc sDesc save_mean save_std scaleT"),
)
for name in "SpatialBatchNormalization VolumetricBatchNormalization".split():
    register(f"cudnn.{name}", "cudnn.BatchNormalization")

register("cudnn.SpatialCrossEntropyCriterion", "nn.Criterion")
register("cudnn.VolumetricCrossEntropyCriterion", "nn.Criterion")

# The constructor makes CudaTensors whatever `_type` says, so their class is that of what is there. `dropoutStates` is
# seeded anew with its descriptor; the hidden state of the last sequences is forgotten, as by `resetStates`.
register(
    "cudnn.RNN",
    parameter="weight",
    gradient="gradWeight",
    transient=emptied(
        "output gradInput reserve hiddenOutput cellOutput gradHiddenInput gradCellInput dropoutStates workspace"
    )
    | absent("hiddenInput cellInput gradHiddenOutput gradCellOutput _input _gradOutput")
    | absent("rnnDesc dropoutDesc wDesc xDescs yDescs hxDesc hyDesc cxDesc cyDesc")
    | value("seqLength miniBatch", 1)
    | value("inputPacked", False),
)
for name in "RNNReLU RNNTanh LSTM GRU BLSTM BGRU".split():
    register(f"cudnn.{name}", "cudnn.RNN")
