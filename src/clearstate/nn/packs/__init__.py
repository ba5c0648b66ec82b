"""Classes of other Torch7 packages that published models use, a small module for each package.

    import clearstate.nn.packs.rnn as rnn
    model = rnn.Sequencer(rnn.LSTM(10, 20))

A file that names one of them loads without that import: each class is registered here, as a user's own would be, by
where it is. Nothing is imported before a file asks for it.
"""

from __future__ import annotations

from ..registry import register

PACKS: dict[str, str] = {
    "dpnn": "nn.CategoricalEntropy nn.Clip nn.Inception nn.ReverseTable nn.Serial nn.SpatialFeatNormalization",
    "rnn": (
        "nn.AbstractRecurrent nn.AbstractSequencer nn.BiSequencer nn.BiSequencerLM nn.CopyGrad nn.ExpandAs nn.FastLSTM "
        "nn.GRU nn.LSTM nn.LinearNoBias nn.LookupTableMaskZero nn.MaskZero nn.MaskZeroCriterion nn.NormStabilizer "
        "nn.Recurrence nn.Recurrent nn.Recursor nn.Repeater nn.RepeaterCriterion nn.SAdd nn.SeqBRNN nn.SeqGRU "
        "nn.SeqLSTM nn.SeqLSTMP nn.SeqReverseSequence nn.Sequencer nn.SequencerCriterion nn.TrimZero"
    ),
}
"""The classes of each pack, by the module here that has them."""

for _pack, _names in PACKS.items():
    for _name in _names.split():
        register(_name, f"{__name__}.{_pack}:{_name.rpartition('.')[2]}")
