"""cudnn.torch's recurrent networks: all layers in one module, all parameters in one flat tensor.

cuDNN's order of the flat tensor: for each layer, and in it for each direction, the matrices from the input, one a
gate, and those from the last output; after all of these, layer by layer in the same way, the two biases of each gate.
Gates are in PyTorch's order: input, forget, cell, output for LSTM; reset, update, new for GRU.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ...formats import t7
from ..declarations.bad_input import describe, expect
from ..declarations.fields import plain
from ..protocol.memory import carry, current, recall
from ..protocol.module import Module
from ..protocol.tape import recording

GATES = {"CUDNN_LSTM": 4, "CUDNN_GRU": 3, "CUDNN_RNN_RELU": 1, "CUDNN_RNN_TANH": 1}
"""How many gates each mode has."""

RUNS: dict[str, Any] = {
    "CUDNN_LSTM": torch.lstm,
    "CUDNN_GRU": torch.gru,
    "CUDNN_RNN_RELU": torch.rnn_relu,
    "CUDNN_RNN_TANH": torch.rnn_tanh,
}
"""PyTorch's function for each mode."""

UNIDIRECTIONAL, BIDIRECTIONAL = "CUDNN_UNIDIRECTIONAL", "CUDNN_BIDIRECTIONAL"


class RNN(Module, typename="cudnn.RNN"):
    """Layers of a recurrent network over a whole sequence; by itself, of rectifiers.

    Args:
        input_size, hidden_size: of vectors.
        num_layers: how many layers.
        batch_first: whether the batch is the input's first dimension, and the steps its second.
        dropout: between the layers, in training.
        remember_states: whether a sequence begins from the state the last one ended in: ``forward`` keeps it until
            `reset_states` or `clear_state`; ``model(x)`` does so within a block ``with rnn.sequence():``.

    Shapes: ``steps x batch x input_size`` in, ``steps x batch x hidden_size`` out (twice that for two directions).
    Or a table of sequences of several lengths: ``[data, sizes]`` as a ``torch.nn.utils.rnn.PackedSequence`` has them,
    which gives ``data``. ``hidden_input`` and ``cell_input`` may be set to the state to begin from: ``layers x batch x
    hidden_size`` each. ``weight`` is flat. Follows cudnn.torch's ``RNN.lua``.

    >>> RNN(4, 3, 2)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """

    fields = plain(
        "datatype inputSize hiddenSize numLayers bidirectional numDirections inputMode mode dropout seed batchFirst "
        "rememberStates sync dropoutStatesSize"
    )
    transient = ("hidden_input", "cell_input", "hidden_output", "cell_output")
    kind = "CUDNN_RNN_RELU"
    """The mode that the constructor sets."""
    directions = 1
    """The number of directions that the constructor sets."""

    weight: Tensor
    input_size: int
    hidden_size: int
    num_layers: int
    mode: str
    bidirectional: str = UNIDIRECTIONAL
    num_directions: int = 1
    input_mode: str = "CUDNN_LINEAR_INPUT"
    dropout: float = 0
    batch_first: bool = False
    remember_states: bool = False
    hidden_input: Tensor
    cell_input: Tensor
    hidden_output: Tensor
    cell_output: Tensor
    dropout_states_size: int | None = None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        batch_first: bool = False,
        dropout: float = 0,
        remember_states: bool = False,
    ) -> None:
        super().__init__()
        self.datatype = "CUDNN_DATA_FLOAT"
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.mode, self.num_directions = self.kind, self.directions
        self.bidirectional = BIDIRECTIONAL if self.directions == 2 else UNIDIRECTIONAL
        self.input_mode = "CUDNN_LINEAR_INPUT"
        self.dropout, self.batch_first, self.remember_states = dropout, batch_first, remember_states
        self.seed, self.sync = 0x01234567, True
        self.weight = Parameter(torch.empty(sum(math.prod(shape) for shape in self.shapes())))
        self.__dict__["cuda_file"] = True  # the class has no other tensors
        self.reset()

    def reset(self, stdv: float | None = None) -> RNN:
        """Draws the weight anew, uniformly within ``stdv`` (``1/sqrt(hidden_size)`` unless given)."""
        bound = stdv or 1 / math.sqrt(self.hidden_size)
        torch.nn.init.uniform_(self.weight, -bound, bound)
        return self

    def reset_states(self) -> RNN:
        """Forgets the state of the last sequence, and the one set to begin from; returns the module."""
        for name in self.transient:
            self.__dict__.pop(name, None)
        return self

    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of the parts of ``weight``, in its order: all matrices, then all biases."""
        rows = GATES[self.mode] * self.hidden_size
        matrices: list[tuple[int, ...]] = []
        for layer in range(self.num_layers):
            width = self.hidden_size * self.num_directions if layer else self.input_size
            matrices += [(rows, width), (rows, self.hidden_size)] * self.num_directions
        return matrices + [(rows,)] * len(matrices)

    def weights(self) -> list[Tensor]:
        """The parts of ``weight`` in PyTorch's order: for each layer and direction, two matrices and two biases.

        Raises:
            ValueError: ``weight`` has not as many elements as they need, or the input is not multiplied with any.
        """
        if self.mode not in GATES or self.input_mode != "CUDNN_LINEAR_INPUT":
            raise ValueError(f"{self.typename} with mode {self.mode} and input mode {self.input_mode} is not known")
        shapes = self.shapes()
        sizes = [math.prod(shape) for shape in shapes]
        if self.weight.dim() != 1 or self.weight.numel() != sum(sizes):
            raise ValueError(f"expected a flat weight of {sum(sizes)} elements, got {describe(self.weight)}")
        flat = torch.split_with_sizes(self.weight, sizes)
        parts = [part.view(shape) for part, shape in zip(flat, shapes, strict=True)]
        half = len(parts) // 2
        pairs = range(0, half, 2)
        return [part for i in pairs for part in (*parts[i : i + 2], *parts[half + i : half + i + 2])]

    def update_output(self, input: Any) -> Tensor:
        packed = isinstance(input, list | tuple)
        if packed and len(input) != 2:
            raise ValueError(f"expected a table of data and sizes, got {describe(input)}")
        x = input[0] if packed else input
        expect(x, dims=(2,) if packed else (3,), size={-1: self.input_size})
        if packed:
            sizes = torch.as_tensor(input[1], dtype=torch.long).reshape(-1).cpu()
            batch = int(sizes[0])
        else:
            x = x.transpose(0, 1) if self.batch_first else x
            batch = x.shape[1]
        state = self.state(x, batch)
        begin = state if self.mode == "CUDNN_LSTM" else state[0]
        rest = (self.weights(), True, self.num_layers, float(self.dropout), self.training, self.num_directions == 2)
        run = RUNS[self.mode]
        output, *end = run(x, sizes, begin, *rest) if packed else run(x, begin, *rest, False)
        self.keep("hidden_output", end[0])
        if len(end) > 1:
            self.keep("cell_output", end[1])
        if self.remember_states:
            carry(self, end)
        ordered: Tensor = output.transpose(0, 1) if self.batch_first and not packed else output
        return ordered

    def state(self, x: Tensor, batch: int) -> list[Tensor]:
        """What a sequence begins from: the hidden state and the cell."""
        shape = (self.num_layers * self.num_directions, batch, self.hidden_size)
        names = ("hidden", "cell")
        state: list[Any] = [self.__dict__.get(f"{name}_input") for name in names]
        if self.remember_states:
            last = [self.__dict__.get(f"{name}_output") for name in names] if recording() else []
            last = last if current() is None else list(recall(self, list))
            if last and last[0] is not None and last[0].shape == shape:
                state = [*last, None][:2]
        for name, given in zip(names, state, strict=True):
            if given is not None and given.numel() and given.shape != shape:
                due = "x".join(map(str, shape))
                raise ValueError(f"expected {name}_input to be of {due}, got {describe(given)}")
        return [x.new_zeros(shape) if part is None or not part.numel() else part for part in state]

    def to_torch(self) -> torch.nn.RNNBase:
        """PyTorch's module of the same kind with a copy of the parameters: it gives the same output.

        >>> blstm = BLSTM(4, 3, 2)
        >>> stock, x = blstm.to_torch(), torch.randn(5, 2, 4)
        >>> stock
        LSTM(4, 3, num_layers=2, bidirectional=True)
        >>> torch.allclose(stock(x)[0], blstm(x))
        True
        """
        weights = self.weights()
        options: dict[str, Any] = {
            "num_layers": self.num_layers,
            "batch_first": bool(self.batch_first),
            "dropout": float(self.dropout),
            "bidirectional": self.num_directions == 2,
        }
        kind: Any = {"CUDNN_LSTM": torch.nn.LSTM, "CUDNN_GRU": torch.nn.GRU}.get(self.mode, torch.nn.RNN)
        if kind is torch.nn.RNN:
            options["nonlinearity"] = "relu" if self.mode == "CUDNN_RNN_RELU" else "tanh"
        made: torch.nn.RNNBase = kind(self.input_size, self.hidden_size, **options).to(self.weight)
        with torch.no_grad():
            for theirs, ours in zip(parameters(made), weights, strict=True):
                theirs.copy_(ours)
        return made.train(self.training)

    def copy_from(self, stock: torch.nn.RNNBase) -> RNN:
        """Takes over the parameters of PyTorch's module of the same kind and sizes; returns the module.

        Raises:
            ValueError: it is of other sizes.
        """
        mine = self.weights()
        theirs = parameters(stock)
        if [t.shape for t in mine] != [t.shape for t in theirs]:
            raise ValueError(f"expected a module like {self.to_torch()}, got {stock}")
        with torch.no_grad():
            for ours, given in zip(mine, theirs, strict=True):
                ours.copy_(given)
        return self

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        for name in "reserve hiddenOutput cellOutput gradHiddenInput gradCellInput".split():
            if obj.state.get(name) is None:
                obj.state[name] = t7.Tensor(obj.state["_type"])

    def to_string(self) -> str:
        return self.typename


def parameters(stock: torch.nn.RNNBase) -> list[Tensor]:
    """The parameters of PyTorch's module in the order of its function."""
    return [part for part in stock._flat_weights if part is not None]


class RNNReLU(RNN, typename="cudnn.RNNReLU"):
    """A recurrent network of rectifiers; see `RNN`. Follows cudnn.torch's ``RNNReLU.lua``.

    >>> RNNReLU(4, 3, 1)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """


class RNNTanh(RNN, typename="cudnn.RNNTanh"):
    """A recurrent network of ``tanh``; see `RNN`. Follows cudnn.torch's ``RNNTanh.lua``.

    >>> RNNTanh(4, 3, 1)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """

    kind = "CUDNN_RNN_TANH"


class LSTM(RNN, typename="cudnn.LSTM"):
    """Long short-term memory; see `RNN`. Follows cudnn.torch's ``LSTM.lua``.

    >>> LSTM(4, 3, 1)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """

    kind = "CUDNN_LSTM"


class GRU(RNN, typename="cudnn.GRU"):
    """Gated recurrent units; the reset gate is applied after the weight; see `RNN`. Follows cudnn.torch's ``GRU.lua``.

    >>> GRU(4, 3, 1)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 3])
    """

    kind = "CUDNN_GRU"


class BLSTM(LSTM, typename="cudnn.BLSTM"):
    """Long short-term memory of two directions; see `RNN`. Follows cudnn.torch's ``BLSTM.lua``.

    >>> BLSTM(4, 3, 1)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 6])
    """

    directions = 2


class BGRU(GRU, typename="cudnn.BGRU"):
    """Gated recurrent units of two directions; see `RNN`. Follows cudnn.torch's ``BGRU.lua``.

    >>> BGRU(4, 3, 1)(torch.ones(5, 2, 4)).shape
    torch.Size([5, 2, 6])
    """

    directions = 2
