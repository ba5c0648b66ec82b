"""Classes of other Torch7 packages that published models use, a small module for each package.

    import clearstate.nn.packs.rnn as rnn
    model = rnn.Sequencer(rnn.LSTM(10, 20))

A file that names one of them loads without that import: each class is registered here, as a user's own would be, by
where it is. Nothing is imported before a file asks for it.
"""

from __future__ import annotations

from ..protocol.stateful import CLASSES
from ..t7.registry import register

PACKS: dict[str, str] = {
    "binary": "nn.BinaryLogisticRegression nn.SpatialBinaryConvolution nn.SpatialBinaryLogisticRegression",
    "cudnn_rnn": "cudnn.BGRU cudnn.BLSTM cudnn.GRU cudnn.LSTM cudnn.RNN cudnn.RNNReLU cudnn.RNNTanh",
    "dpnn": (
        "nn.ArgMax nn.CategoricalEntropy nn.Clip nn.FireModule nn.Inception nn.ReverseTable nn.Serial "
        "nn.SpatialFeatNormalization nn.TotalDropout"
    ),
    "fast_neural_style": "nn.DeepDreamLoss nn.GramMatrix nn.InstanceNormalization nn.ShaveImage nn.TotalVariation",
    "images": (
        "nn.PCAColorTransform nn.SimpleColorTransform nn.SpatialGlimpse nn.SpatialReSampling nn.SpatialRegionDropout "
        "nn.SpatialUniformCrop nn.TemporalGlimpse"
    ),
    "inn": (
        "inn.ConstAffine inn.LocalResponseNormalization inn.MeanSubtraction inn.ROIPooling inn.SpatialConstAffine "
        "inn.SpatialPyramidPooling inn.SpatialStochasticPooling"
    ),
    "nce": "nn.NCECriterion nn.NCEModule",
    "nnx": (
        "nn.Minus nn.MultiSoftMax nn.SaturatedLU nn.SpatialClassifier nn.SpatialDownSampling nn.SpatialLinear "
        "nn.SpatialNormalization nn.SpatialPadding nn.SpatialUpSampling"
    ),
    "perceptual": "nn.ContentLoss nn.PerceptualCriterion nn.StyleLoss",
    "reinforce": (
        "nn.BinaryClassReward nn.Reinforce nn.ReinforceBernoulli nn.ReinforceCategorical nn.ReinforceGamma "
        "nn.ReinforceNormal nn.VRClassReward"
    ),
    "rnn": (
        "nn.AbstractRecurrent nn.AbstractSequencer nn.BNFastLSTM nn.BiSequencer nn.BiSequencerLM nn.CopyGrad "
        "nn.ExpandAs nn.FastLSTM nn.GRU nn.Grid2DLSTM nn.LSTM nn.LinearNoBias nn.LookupTableMaskZero nn.MaskZero "
        "nn.MaskZeroCriterion nn.MuFuRu nn.NormStabilizer nn.Recurrence nn.Recurrent nn.RecurrentAttention "
        "nn.Recursor nn.Repeater nn.RepeaterCriterion nn.SAdd nn.SeqBRNN nn.SeqDropout nn.SeqGRU nn.SeqGRU_WN "
        "nn.SeqLSTM nn.SeqLSTMP nn.SeqLSTMP_WN nn.SeqLSTM_WN nn.SeqReverseSequence nn.Sequencer nn.SequencerCriterion "
        "nn.TrimZero"
    ),
    "w2nn": (
        "w2nn.AuxiliaryLossTable w2nn.ClippedMSECriterion w2nn.ClippedWeightedHuberCriterion w2nn.DepthExpand2x "
        "w2nn.EdgeFilter w2nn.GradWeight w2nn.InplaceClip01 w2nn.L1Criterion w2nn.LBPCriterion w2nn.LeakyReLU "
        "w2nn.PSNRCriterion w2nn.Print w2nn.PrintTable w2nn.RandomBinaryConvolution w2nn.SSIMCriterion w2nn.ScaleTable "
        "w2nn.ShakeShakeTable w2nn.WeightedMSECriterion"
    ),
}
"""The classes of each pack, by the module here that has them."""

for _pack, _names in PACKS.items():
    for _name in _names.split():
        if _name not in CLASSES:  # a user's own stays
            register(_name, f"{__name__}.{_pack}:{_name.rpartition('.')[2]}")
