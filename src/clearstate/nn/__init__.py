from .composed import CReLU, Maxout
from .container import Container, Sequential
from .containers import Concat, ConcatTable, DataParallelTable, DepthConcat, MapTable, Parallel, ParallelTable
from .conversion import GPU, Convert, Copy, DontCast
from .criterion_modules import CriterionTable, ModuleCriterion
from .decorators import Bottle, Decorator, NaN, Profile, WeightNorm
from .linear import Bilinear, Linear, LinearWeightNorm, PartialLinear
from .activation import (
    Abs,
    Clamp,
    ELU,
    Exp,
    GatedLinearUnit,
    HardShrink,
    HardTanh,
    LeakyReLU,
    Log,
    LogSigmoid,
    LogSoftMax,
    Power,
    PReLU,
    ReLU,
    ReLU6,
    Sigmoid,
    SoftMax,
    SoftMin,
    SoftPlus,
    SoftShrink,
    SoftSign,
    SpatialLogSoftMax,
    SpatialSoftMax,
    Sqrt,
    Square,
    Tanh,
    TanhShrink,
    Threshold,
)
from .noise import (
    Dropout,
    RReLU,
    SpatialDropout,
    VolumetricDropout,
    WhiteNoise,
)
from .normalization import (
    BatchNormalization,
    LayerNormalization,
    Normalize,
    SpatialBatchNormalization,
    SpatialContrastiveNormalization,
    SpatialCrossMapLRN,
    SpatialDivisiveNormalization,
    SpatialSubtractiveNormalization,
    VolumetricBatchNormalization,
)
from .pointwise import (
    Add,
    AddConstant,
    CAdd,
    CMul,
    Constant,
    GradientReversal,
    L1Penalty,
    Mul,
    MulConstant,
)
from .shape import (
    Collapse,
    Index,
    MaskedSelect,
    Max,
    Mean,
    Min,
    Narrow,
    OneHot,
    Replicate,
    Reshape,
    Select,
    Squeeze,
    Sum,
    Transpose,
    Unsqueeze,
    View,
)
from .simple import Contiguous, Identity
from .module import Module, Criterion
from .opaque import Opaque
from .t7 import load, save
from .table_arithmetic import (
    MM,
    MV,
    CAddTable,
    CAddTensorTable,
    CDivTable,
    CMaxTable,
    CMinTable,
    CMulTable,
    CSubTable,
    MixtureTable,
)
from .tables import (
    FlattenTable,
    JoinTable,
    NarrowTable,
    SelectTable,
    SplitTable,
    ZipTable,
    ZipTableOneToMany,
)
from .graph import JustElement, JustTable, ModuleFromCriterion, gModule, nest
from .nodes import Node
from .distance import Cosine, CosineDistance, DotProduct, Euclidean, PairwiseDistance, WeightedEuclidean
from .lookup import Kmeans, LookupTable
from .sparse import IndexLinear, SparseLinear
from .watching import PrintSize, ZeroGrad
from .criterions import (
    AbsCriterion,
    DistKLDivCriterion,
    L1Cost,
    MSECriterion,
    MultiCriterion,
    ParallelCriterion,
    SmoothL1Criterion,
    SpatialAutoCropMSECriterion,
    WeightedMSECriterion,
)
from .classification import (
    BCECriterion,
    ClassNLLCriterion,
    ClassSimplexCriterion,
    CrossEntropyCriterion,
    MultiLabelSoftMarginCriterion,
    SpatialClassNLLCriterion,
)
from .margin import (
    CosineEmbeddingCriterion,
    DistanceRatioCriterion,
    HingeEmbeddingCriterion,
    L1HingeEmbeddingCriterion,
    MarginCriterion,
    MarginRankingCriterion,
    MultiLabelMarginCriterion,
    MultiMarginCriterion,
    SoftMarginCriterion,
)
from . import utils
from .trainer import StochasticGradient
from .adaptive_pooling import SpatialAdaptiveAveragePooling, SpatialAdaptiveMaxPooling
from .average_pooling import (
    FeatureLPPooling,
    SpatialAveragePooling,
    SpatialLPPooling,
    SpatialSubSampling,
    TemporalSubSampling,
    VolumetricAveragePooling,
)
from .convolution import (
    SpatialConvolution,
    SpatialConvolutionLocal,
    SpatialConvolutionMM,
    SpatialDepthWiseConvolution,
    SpatialDilatedConvolution,
    TemporalConvolution,
    TemporalRowConvolution,
    VolumetricConvolution,
    VolumetricDilatedConvolution,
)
from .fractional_pooling import SpatialFractionalMaxPooling, VolumetricFractionalMaxPooling
from .full_convolution import SpatialFullConvolution, VolumetricFullConvolution
from .map_convolution import SpatialConvolutionMap, SpatialFullConvolutionMap
from .padding import (
    Padding,
    SpatialReflectionPadding,
    SpatialReplicationPadding,
    SpatialZeroPadding,
    VolumetricReplicationPadding,
)
from .pooling import (
    SpatialDilatedMaxPooling,
    SpatialMaxPooling,
    TemporalDynamicKMaxPooling,
    TemporalMaxPooling,
    VolumetricDilatedMaxPooling,
    VolumetricMaxPooling,
)
from .resampling import PixelShuffle, SpatialUpSamplingBilinear, SpatialUpSamplingNearest, UpSampling
from .unpooling import SpatialMaxUnpooling, VolumetricMaxUnpooling
