"""The one vocabulary: what a piece of a model's state is for.

Everything clearstate says about a model, it says in these words.
"""

from __future__ import annotations

from enum import Enum


class Role(str, Enum):
    """What a piece of state is for.

    >>> Role("transient") is Role.TRANSIENT
    True
    >>> Role.PARAMETER.droppable, Role.GRADIENT.droppable
    (False, True)
    """

    PARAMETER = "parameter"
    """Weights."""
    BUFFER = "buffer"
    """Persistent buffers: running statistics and the like."""
    CONSTANT = "constant"
    """Tensors the constructor makes and forward only reads: kernels, masks, anchors."""
    TRANSIENT = "transient"
    """Left by work: outputs, input gradients, work buffers, caches, graph-node data, clones."""
    GRADIENT = "gradient"
    """Gradients of parameters."""
    OPTIMIZER = "optimizer"
    """Optimizer state."""
    TRAINING = "training"
    """Schedulers, scalers, random-number states, loop counters, callbacks."""
    COPY = "copy"
    """Averages (EMA) and other copies of the model's weights, wherever they lie: they go only when asked for."""
    SLACK = "slack"
    """Bytes of a storage that no tensor sees."""
    CODE = "code"
    """Functions, bytecode, hooks, source positions."""
    METADATA = "metadata"
    """Everything else: names, configurations, epochs."""
    UNKNOWN = "unknown"
    """A tensor whose role nothing declares. Kept, and always reported."""

    def __str__(self) -> str:
        return self.value

    @property
    def droppable(self) -> bool:
        """Whether clearing may be asked to drop this role: what the model *is* never goes."""
        return self not in MODEL


MODEL = frozenset({Role.PARAMETER, Role.BUFFER, Role.CONSTANT, Role.METADATA, Role.UNKNOWN})
"""What a model is: these roles are never dropped, and `verify` compares them."""

DROPPED_BY_DEFAULT = frozenset({Role.TRANSIENT, Role.SLACK, Role.OPTIMIZER, Role.TRAINING})
"""What clearing a file drops unless `keep` says otherwise."""

DROPPED_FROM_MODULES = frozenset({Role.TRANSIENT, Role.SLACK})
"""What clearing a module in memory drops unless `keep` says otherwise: training may go on with it."""

GLOSS = {
    Role.PARAMETER: "weights",
    Role.BUFFER: "running statistics",
    Role.CONSTANT: "kernels, masks",
    Role.TRANSIENT: "outputs and work buffers",
    Role.GRADIENT: "gradients of weights",
    Role.OPTIMIZER: "optimizer state",
    Role.TRAINING: "what training alone needs",
    Role.COPY: "copies, averages (EMA)",
    Role.SLACK: "bytes that no tensor sees",
    Role.CODE: "functions",
    Role.METADATA: "names, settings, structure",
    Role.UNKNOWN: "tensors that nobody declared",
}
"""What each role is, in a few words."""
