"""dpnn: modules around nn, among them REINFORCE, noise contrastive estimation and image augmentation.

dpnn puts its classes in nn's name space. Its settings for writing files (``dpnn_serialEmpty``, ...) are kept.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..meaning.classes import absent, emptied, extend, register, table, tensor, tensors, where

# What its methods leave on any module: a contiguous copy of the input, whether the input was a single sample, and the
# gradients that `updateGradParameters` averages, which are an optimizer's state.
extend("nn.Module", optimizer="momGradParams", transient=absent("dpnn_cinput dpnn_online"))
extend("nn.Criterion", transient=absent("dpnn_online"))

# Decorators and containers.
register("nn.Serial", "nn.Decorator")
register("nn.Inception", "nn.Decorator")
register("nn.FireModule", "nn.Decorator")
register("nn.ReverseTable", transient=table("output gradInput"))

# Simple layers. The class of ArgMax's output is an argument of its constructor.
register("nn.ArgMax", transient=emptied("output") | absent("_value _indices"))
register("nn.CategoricalEntropy", constant="minusOne", transient=absent("entropy"))
register("nn.Clip", transient=absent("_mask _byte"))
register("nn.TotalDropout", transient=absent("noise"))

# Between forward and backward `weight` is binary, and `tempWeight` alone holds the weights; so it is kept.
register(
    "nn.SpatialBinaryConvolution",
    "nn.SpatialConvolution",
    buffer="tempWeight",
    transient=absent("wmask alphas gradInputAlphas _temp _tempAlphas _tempAlphasExpanded _tempAlphasSamples")
    | absent("_tempGradAlphas _tempGradAlphasExpanded _tempGradAlphasSamples"),
)

# Images.
register("nn.SpatialFeatNormalization", constant="mean std")
register("nn.SpatialRegionDropout", transient=tensor("noise") | absent("regionType"))
register("nn.SpatialUniformCrop", transient=absent("coord scales"))
register("nn.SpatialGlimpse", transient=tensors("gradInput", 2) | absent("_crop _pad"))
register("nn.TemporalGlimpse", transient=tensors("gradInput", 2) | absent("_pad"))
register(
    "nn.SimpleColorTransform",
    constant="range",
    transient=absent("noise _tempNoise _tempNoiseExpanded _tempNoiseSamples"),
)
register(
    "nn.PCAColorTransform",
    constant="eigenVectors eigenValues",
    transient=absent("noise alphas _tempNoise _tempNoiseExpanded _tempNoiseSamples _tempLambda _tempLambdaExpanded"),
)


def has(name: str) -> Callable[[Mapping[Any, Any]], bool]:
    """Whether a field is set."""
    return lambda module: module.get(name) is not None


# REINFORCE. `gradInput` is two tensors where the deviation or scale is an input rather than a constant.
register("nn.Reinforce", transient=absent("reward _reward __reward"))
register("nn.ReinforceBernoulli", "nn.Reinforce", transient=absent("_uniform _div"))
register("nn.ReinforceCategorical", "nn.Reinforce", transient=absent("_index _input"))
register(
    "nn.ReinforceNormal",
    "nn.Reinforce",
    constant="stdev",
    transient=where(has("stdev"), tensor("gradInput"), tensors("gradInput", 2)) | absent("_stdev __stdev _stdev2"),
)
register(
    "nn.ReinforceGamma",
    "nn.Reinforce",
    constant="scale",
    transient=where(has("scale"), tensor("gradInput"), tensors("gradInput", 2))
    | absent("_scale __scale _logOutput _logScale"),
)
register(
    "nn.VRClassReward",
    "nn.Criterion",
    transient=tensors("gradInput", 1) | absent("reward _reward vrReward _target _maxVal _maxIdx __maxIdx"),
)
register(
    "nn.BinaryClassReward",
    "nn.Criterion",
    transient=tensors("gradInput", 1) | absent("reward _reward vrReward _target _binary"),
)
register("nn.BinaryLogisticRegression", "nn.Criterion", transient=absent("_k _baseExponents _coeff _logCoeff"))
register(
    "nn.SpatialBinaryLogisticRegression",
    "nn.Criterion",
    transient=absent("_isBatch _k _h _w _baseExponents _coeff _logCoeff"),
)

# Noise contrastive estimation. The normalizer `Z` is estimated from the first batch where it is not given.
register(
    "nn.NCEModule",
    "nn.Linear",
    buffer="Z",
    constant="unigrams noise",
    transient=tensors("output", 4)
    | tensors("gradInput", 2)
    | absent(
        "sampleidx _sampleidx sampleprob _noiseidx _noiseprob _metaidx _noisesamples _buff _score _pm linout addBuffer"
    )
    | absent("_weight _bias _gradWeight _gradOutput _tgradOutput testedtargets"),
)
register(
    "nn.NCECriterion",
    "nn.Criterion",
    transient=tensors("gradInput", 4) | absent("_Pom _Pomdiv _Pon _Pondiv _lnPom _lnPon"),
)
register("torch.AliasMultinomial", None, constant="J q", transient=absent("_kk __kk _q _mask"))
