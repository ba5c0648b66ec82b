"""rnn: recurrent modules. The clones a sequence is unrolled into, and the hidden state it ends in, are left by work.

So is the state a user carries from one sequence to the next (``userPrevOutput``, ...): constructors leave none,
and Torch7's `clearState` and `forget` drop it. ``rho`` is a hyper-parameter though a Sequencer sets it.
"""

from ..meaning.classes import Transient, absent, clones, extend, holding, register, table, tensor, value, zeros


def of_2015(transient: Transient) -> Transient:
    """Fields that the constructors of 2015 made, and later ones do not: as those left them, where they are."""
    return {
        name: fresh._replace(when=lambda module, name=name: module.get(name) is not None)  # type: ignore[misc]
        for name, fresh in transient.items()
    }


USER = absent(
    "userPrevOutput userPrevCell userNextGradOutput userNextGradCell userGradPrevOutput userGradPrevCell gradPrevOutput"
)
"""Hidden state and its gradients, handed from and to other sequences."""

ZERO_MASK = absent("zeroMask _zeroMask _maskbyte _maskindices")
"""Which rows of the last input were zero."""

# rnn's Dropout may keep its noise until the next backward; with the noise goes the flag that says it is there.
extend("nn.Dropout", transient=value("flag", True))

# Modules that are called once a step.
register(
    "nn.AbstractRecurrent",
    "nn.Container",
    transient=table("outputs gradInputs gradOutputs _gradOutputs")
    | of_2015(table("inputs scales recurrentOutputs recurrentGradInputs initialOutputs initialGradInputs"))
    | value("step", 1)
    | of_2015(value("gradParametersAccumulated", False))
    | absent("updateGradInputStep accGradParametersStep backStep nSharedClone rmInSharedClones _input _gradOutput")
    | USER
    | clones("sharedClones", "recurrentModule"),
)
register("nn.Recurrent", "nn.AbstractRecurrent")
register("nn.Recursor", "nn.AbstractRecurrent")
register("nn.Recurrence", "nn.AbstractRecurrent", constant="typeTensor", transient=absent("zeroTensor"))
register("nn.LSTM", "nn.AbstractRecurrent", transient=tensor("zeroTensor") | table("cells gradCells") | absent("cell"))
register("nn.FastLSTM", "nn.LSTM")
register(
    "nn.Grid2DLSTM",
    "nn.AbstractRecurrent",
    transient=tensor("zeroTensor") | table("cells gradCells") | absent("rnn_inputs"),
)
register("nn.BNFastLSTM", "nn.FastLSTM")
register("nn.GRU", "nn.AbstractRecurrent", transient=tensor("zeroTensor") | table("cells gradCells"))
register("nn.MuFuRu", "nn.GRU")
register("nn.NormStabilizer", "nn.AbstractRecurrent", transient=absent("_normsum _gradInput loss"))
register("nn.CopyGrad", "nn.Identity", transient=absent("norm"))

# Modules that take a whole sequence and call another once a step. `sharedClones` is of 2015.
register("nn.AbstractSequencer", "nn.Container")
register(
    "nn.Sequencer",
    "nn.AbstractSequencer",
    transient=table("output _output tableoutput tablegradInput")
    | absent("tablegradinput")
    | of_2015(value("step", 1))
    | clones("sharedClones", "module"),
)
register("nn.Repeater", "nn.AbstractSequencer", transient=table("output"))
register("nn.BiSequencer", "nn.AbstractSequencer", transient=table("output gradInput"))
register(
    "nn.BiSequencerLM",
    "nn.AbstractSequencer",
    transient=table("output gradInput")
    | absent("_fwdOutput _bwdOutput _firstStep _lastStep _mergeInput _mergeGradInput _fwdGradInput _bwdGradInput"),
)
register(
    "nn.RecurrentAttention",
    "nn.AbstractSequencer",
    transient=table("output actions gradHidden") | absent("_initInput _gradAction _input _actions _crop _pad _byte"),
)

# Modules that run a whole sequence themselves. `gradInput` is the three gradients that they keep, or the two.
SEQUENCE = (
    tensor("gates buffer1 buffer2 buffer3 grad_a_buffer h0 grad_h0 grad_x")
    | absent("_output _grad_x recompute_backward _return_grad_h0")
    | USER
    | ZERO_MASK
)
CELL = (
    holding("gradInput", "grad_c0 grad_h0 grad_x")
    | tensor("cell c0 grad_c0")
    | absent("_return_grad_c0 next_h grad_next_h")
)
WEIGHTS = {"parameter": "weight bias", "gradient": "gradWeight gradBias"}
register("nn.SeqLSTM", **WEIGHTS, transient=SEQUENCE | CELL)
register("nn.SeqLSTMP", "nn.SeqLSTM", parameter="weightO", gradient="gradWeightO", transient=absent("_hidden"))
STATE = holding("gradInput", "grad_h0 grad_x")
register("nn.SeqGRU", **WEIGHTS, transient=SEQUENCE | STATE)
register("nn.SeqBRNN", "nn.Container")
register("nn.SeqReverseSequence", transient=absent("outputIndices gradIndices"))
register("nn.SeqDropout", transient=tensor("noise"))

# Their weight-normalized variants. `weight` is computed from `v` and `g`, and evaluation reads it; `norm`, `scale`,
# `hTmp` and `gradWeight` are written in place, so they need their sizes.
NORMALIZED = {"parameter": "g v bias", "gradient": "gradG gradV gradBias", "buffer": "weight norm scale hTmp"}
MORE = zeros("gradWeight") | tensor("buffer4 buffer5 buffer6 buffer7")
register("nn.SeqLSTM_WN", **NORMALIZED, transient=SEQUENCE | CELL | MORE)
register(
    "nn.SeqLSTMP_WN",
    "nn.SeqLSTM_WN",
    parameter="gO vO",
    gradient="gradGO gradVO",
    buffer="weightO normO scaleO",
    transient=zeros("gradWeightO") | tensor("bufferO1 bufferO2") | absent("_hidden"),
)
register("nn.SeqGRU_WN", **NORMALIZED, transient=SEQUENCE | STATE | MORE | tensor("buffer8"))

# Zeros that mean: no input here.
register("nn.MaskZero", "nn.Decorator", transient=ZERO_MASK | absent("gradOutput batchmode"))
register("nn.TrimZero", "nn.MaskZero", transient=tensor("temp gradTemp"))
register("nn.LookupTableMaskZero", "nn.LookupTable", transient=absent("__input"))

# Simple layers.
register("nn.LinearNoBias", "nn.Linear")
register("nn.SAdd")
register("nn.ExpandAs", transient=table("output gradInput") | tensor("sum1 sum2"))

# Criterions. Their clones are all copies of `criterion`, which is none of them.
register(
    "nn.SequencerCriterion", "nn.Criterion", transient=table("gradInput _gradInput clones") | absent("isStateless")
)
register("nn.RepeaterCriterion", "nn.Criterion", transient=table("gradInput clones"))
register(
    "nn.MaskZeroCriterion",
    "nn.Criterion",
    transient=absent("zeroMask _zeroMask __zeroMask input target _gradInput"),
)
