"""rnn: recurrent modules, modules that run over sequences, and what goes with them.

import clearstate.nn.packs.rnn as rnn

net = rnn.Sequencer(rnn.LSTM(10, 20))
y = net(x)                                # x: steps x batch x 10

with rnn.sequence():                      # step by step: the state is carried within the block
    for step in x:
        y = net.get(0)(step)
"""

from ..protocol.memory import sequence
from .attention import RecurrentAttention
from .cells import GRU, LSTM, FastLSTM
from .graph_cells import BNFastLSTM, Grid2DLSTM
from .masks import LookupTableMaskZero, MaskZero, MaskZeroCriterion, TrimZero
from .mufuru import MuFuRu
from .recurrent import (
    AbstractRecurrent,
    CopyGrad,
    LinearNoBias,
    NormStabilizer,
    Recurrence,
    Recurrent,
    Recursor,
    SAdd,
)
from .seq import SeqBRNN, SeqDropout, SeqGRU, SeqLSTM, SeqLSTMP, SeqReverseSequence
from .sequence_criterions import RepeaterCriterion, SequencerCriterion
from .sequencers import AbstractSequencer, BiSequencer, BiSequencerLM, Repeater, Sequencer
from .tables import ExpandAs
from .weight_norm import SeqGRU_WN, SeqLSTM_WN, SeqLSTMP_WN

__all__ = [
    "GRU",
    "LSTM",
    "AbstractRecurrent",
    "AbstractSequencer",
    "BNFastLSTM",
    "BiSequencer",
    "BiSequencerLM",
    "CopyGrad",
    "ExpandAs",
    "FastLSTM",
    "Grid2DLSTM",
    "LinearNoBias",
    "LookupTableMaskZero",
    "MaskZero",
    "MaskZeroCriterion",
    "MuFuRu",
    "NormStabilizer",
    "Recurrence",
    "Recurrent",
    "RecurrentAttention",
    "Recursor",
    "Repeater",
    "RepeaterCriterion",
    "SAdd",
    "SeqBRNN",
    "SeqDropout",
    "SeqGRU",
    "SeqGRU_WN",
    "SeqLSTM",
    "SeqLSTMP",
    "SeqLSTMP_WN",
    "SeqLSTM_WN",
    "SeqReverseSequence",
    "Sequencer",
    "SequencerCriterion",
    "TrimZero",
    "sequence",
]
