"""rnn's modules that are called once a step: what each step hands on to the next.

Called by itself, such a module does a first step. Inside `sequence`, and inside a `Sequencer`, it goes on from its
last one; with ``advance`` the state is handed over by hand. Nothing of it stays on the module.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ...formats import t7
from ..containers.sequential import Container, Sequential, indented
from ..declarations.bad_input import describe, expect
from ..declarations.fields import plain
from ..layers.identity import Identity
from ..layers.linear import Linear
from ..protocol.memory import carry, recall
from ..protocol.module import Module
from ..protocol.ownership import tensors
from .gradients import penalized
from .references import Referring

State = Any
"""What a module hands on from step to step: a list of tensors, or of lists of them."""


class AbstractRecurrent(Referring, Container):
    """A module with a state: ``advance(input, state)`` gives an output and the state of the next step.

    Follows rnn's ``AbstractRecurrent.lua``.

    >>> class Sum(AbstractRecurrent):
    ...     def advance(self, input, state=None):
    ...         total = input if state is None else input + state
    ...         return total, total
    >>> Sum().advance(torch.ones(1), torch.ones(1))[0]
    tensor([2.])
    """

    fields = plain("rho")
    rho: int | None = 99999
    """How many steps Torch7 goes back; here that is as many as there were."""
    first_clone = 1
    """The step whose clone the module itself is, in Torch7."""

    def hold(self, module: torch.nn.Module, rho: int | None) -> None:
        """Takes the module that is called in each step."""
        self.rho = rho
        self.add(module)
        self.refer(recurrentModule=module)

    @property
    def inner(self) -> torch.nn.Module:
        """The module that is called in each step."""
        return self.get(0)

    def first_state(self, input: Any) -> State:
        """The state before the first step, for an input."""
        return None

    def advance(self, input: Any, state: State = None) -> tuple[Any, State]:
        """One step.

        Args:
            input: what `forward` takes.
            state: what the last step gave; none for a first step.

        Returns:
            the output, and the state to go on from.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no advance(input, state)")

    def update_output(self, input: Any) -> Any:
        output, state = self.advance(input, recall(self, lambda: self.first_state(input)))
        carry(self, state)
        return output

    def mask_zero(self, n_input_dim: int = 1) -> AbstractRecurrent:
        """Makes steps whose input is zero give zero, state included, row by row; returns the module.

        Args:
            n_input_dim: dimensions of an input that is no batch.
        """
        from .masks import MaskZero

        return self._decorated(MaskZero(self.inner, n_input_dim))

    def trim_zero(self, n_input_dim: int = 1) -> AbstractRecurrent:
        """As `mask_zero`, computing only the rows that are not zero; returns the module."""
        from .masks import TrimZero

        return self._decorated(TrimZero(self.inner, n_input_dim))

    def _decorated(self, decorator: torch.nn.Module) -> AbstractRecurrent:
        references = {
            name: "0" if name == "recurrentModule" else path.replace("0", "0.0", 1)
            for name, path in self.__dict__.get("references", {}).items()
        }
        self._modules["0"] = decorator
        self.__dict__["references"] = references
        return self

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        module = obj.state.get("recurrentModule")
        if "clones" not in self.__dict__:
            obj.state["sharedClones"] = t7.Table({float(self.first_clone): module} if module is not None else {})

    def to_string(self) -> str:
        sizes = [getattr(self, name, None) for name in ("input_size", "output_size")]
        return f"{self.typename}({sizes[0]} -> {sizes[1]})" if all(sizes) else super().to_string()


def zeros(input: Any, *size: int) -> Tensor:
    """Zeros of a size for an input that is one vector, or for each of a batch of these."""
    expect(input, dims=(1, 2))
    made: Tensor = input.new_zeros(*input.shape[:-1], *size)
    return made


class Recursor(AbstractRecurrent):
    """Any module, called once a step; what recurrent modules are inside it go on from step to step.

    Follows rnn's ``Recursor.lua``.

    >>> import clearstate.nn as nn
    >>> Recursor(nn.Linear(3, 2))
    nn.Recursor @ nn.Linear(3 -> 2)
    """

    def __init__(self, module: torch.nn.Module, rho: int | None = 9999999) -> None:
        super().__init__()
        self.hold(module, rho)
        self.refer(module=module)

    def advance(self, input: Any, state: State = None) -> tuple[Any, State]:
        return self.inner(input), None

    def to_string(self) -> str:
        return f"{self.typename} @ {self.inner}"


class Recurrence(AbstractRecurrent):
    """A module that computes its output of a table: the input and its last output, which is zero at first.

    Args:
        recurrent_module: takes ``[input, last output]``.
        output_size: the output's size without the batch; a list of sizes where the output is a table.
        n_input_dim: dimensions of an input that is no batch; of the first tensor, where it is a table.
        rho: how many steps Torch7 goes back.

    Follows rnn's ``Recurrence.lua``.

    >>> import clearstate.nn as nn
    >>> cell = nn.Sequential().add(nn.JoinTable(0, 1)).add(nn.Linear(7, 3)).add(nn.Tanh())
    >>> Recurrence(cell, 3, 1)(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    fields = plain("outputSize nInputDim")
    output_size: Any
    n_input_dim: int
    type_tensor: Tensor

    def __init__(
        self, recurrent_module: torch.nn.Module, output_size: Any, n_input_dim: int, rho: int | None = 9999
    ) -> None:
        super().__init__()
        self.output_size = [output_size] if isinstance(output_size, int) else list(output_size)
        self.n_input_dim = n_input_dim
        self.hold(recurrent_module, rho)
        self.refer(module=recurrent_module)
        self.register_buffer("type_tensor", torch.empty(0))

    def first_state(self, input: Any) -> State:
        first = next(tensors(input))
        if first.dim() not in (self.n_input_dim, self.n_input_dim + 1):
            raise ValueError(
                f"expected an input of {self.n_input_dim} dimensions, or a batch of these, got {describe(first)}"
            )
        batch = first.shape[: first.dim() - self.n_input_dim]

        def made(size: Any) -> Any:
            if isinstance(size[0], int):
                return first.new_zeros(*batch, *size)
            return [made(part) for part in size]

        return made(self.output_size)

    def advance(self, input: Any, state: State = None) -> tuple[Any, State]:
        output = self.inner([input, self.first_state(input) if state is None else state])
        return output, output

    def to_string(self) -> str:
        return f"{self.typename} @ {self.inner}"


class Recurrent(AbstractRecurrent):
    """``transfer(merge([input(x), feedback(last output)]))``; in the first step ``transfer(start(input(x)))``.

    Args:
        start: the module of the first step; or a size, for one that adds a learned bias.
        input: takes the input.
        feedback: takes the last output.
        transfer: a ``Sigmoid`` unless given.
        rho: how many steps Torch7 goes back.
        merge: takes a table of the two; ``CAddTable`` unless given.

    Follows rnn's ``Recurrent.lua``.

    >>> import clearstate.nn as nn
    >>> Recurrent(3, nn.Linear(4, 3), nn.Linear(3, 3))(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    first_clone = 2

    def __init__(
        self,
        start: Any,
        input: torch.nn.Module,
        feedback: torch.nn.Module,
        transfer: torch.nn.Module | None = None,
        rho: int | None = 99999,
        merge: torch.nn.Module | None = None,
    ) -> None:
        from ..layers.activation import Sigmoid
        from ..layers.pointwise import Add
        from ..layers.table_arithmetic import CAddTable

        super().__init__()
        self.rho = rho
        first = start if isinstance(start, torch.nn.Module) else Add(start)
        parts = (first, input, feedback, transfer or Sigmoid(), merge or CAddTable())
        for part in parts:
            self.add(part)
        names = ("startModule", "inputModule", "feedbackModule", "transferModule", "mergeModule")
        self.refer(**dict(zip(names, parts, strict=True)))

    def advance(self, input: Any, state: State = None) -> tuple[Any, State]:
        start, first, feedback, transfer, merge = self.children_list()
        taken = first(input)
        output = transfer(start(taken) if state is None else merge([taken, feedback(state)]))
        return output, output

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        for made_of_the_others in ("initialModule", "recurrentModule"):
            fields.pop(made_of_the_others, None)

    def to_object(self, obj: Any, writing: Any) -> None:
        from ..containers.tables import ParallelTable

        start, first, feedback, transfer, merge = (_as_any(m) for m in self.children_list())
        later = Sequential(ParallelTable().add(first).add(feedback), merge, transfer).train(self.training)
        at_first = Sequential(_twin(first), start, _twin(transfer)).train(self.training)
        super().to_object(obj, writing)
        obj.state["initialModule"] = writing.value(at_first)
        obj.state["recurrentModule"] = module = writing.value(later)
        if "clones" not in self.__dict__:
            obj.state["sharedClones"] = t7.Table({float(self.first_clone): module})
        self.write_clones(obj, writing)

    def mask_zero(self, n_input_dim: int = 1) -> AbstractRecurrent:
        raise TypeError("nn.Recurrent has another module for its first step: use nn.Recurrence to mask zeros")

    trim_zero = mask_zero

    def to_string(self) -> str:
        start, first, feedback, transfer, merge = self.children_list()
        arm = "    |    "
        return "\n".join(
            (
                f"{self.typename} {{",
                "  [{input(t), output(t-1)} -> (1) -> (2) -> (3) -> output(t)]",
                "  (1):  {",
                "    input(t)",
                f"      |`-> (t==0): {indented(start, '    ' + arm)}",
                f"      |`-> (t~=0): {indented(first, '    ' + arm)}",
                "    output(t-1)",
                f"      |`-> {indented(feedback, '    ' + arm)}",
                "  }",
                f"  (2): {indented(merge, '  ')}",
                f"  (3): {indented(transfer, '  ')}",
                "}",
            )
        )


def _as_any(module: Any) -> Any:
    return module


def _twin(module: Any) -> Any:
    """A copy whose parameters, and their gradients, are the module's own."""
    names = {name.rpartition(".")[2] for name, _ in module.named_parameters()}
    return module.clone(*names, *(f"grad_{name}" for name in names))


class CopyGrad(Identity):
    """Gives its input, and its gradient as a copy. Follows rnn's ``CopyGrad.lua``.

    >>> CopyGrad()(torch.ones(2))
    tensor([1., 1.])
    """


class NormStabilizer(AbstractRecurrent):
    """Gives its input; in training, adds the gradient of how much the norm of each row changes from step to step.

    Shapes: ``batch x n`` in each step. The penalty of a step is ``beta`` times the mean over the batch of
    ``(|x(t)| - |x(t-1)|)^2``. Follows rnn's ``NormStabilizer.lua``.

    >>> NormStabilizer(0.5)(torch.ones(2, 3)).shape
    torch.Size([2, 3])
    """

    fields = plain("beta")
    beta: float = 1

    def __init__(self, beta: float = 1) -> None:
        super().__init__()
        self.beta = beta
        self.hold(CopyGrad(), 99999)

    def advance(self, input: Any, state: State = None) -> tuple[Any, State]:
        expect(input, dims=(2,))
        output = self.inner(input)
        if not self.training:
            return output, None
        norm = torch.linalg.vector_norm(output, 2, 1)
        if state is not None:
            output = penalized(output, self.beta * (norm - state).square().mean())
        return output, norm

    def to_string(self) -> str:
        return self.typename


class LinearNoBias(Linear):
    """A linear layer without bias: ``y = x W'``. Follows rnn's ``LinearNoBias.lua``.

    >>> LinearNoBias(3, 2)
    nn.LinearNoBias(3 -> 2) without bias
    """

    def __init__(self, input_size: int, output_size: int) -> None:
        Module.__init__(self)
        self.weight = Parameter(torch.empty(output_size, input_size))
        self.bias = None
        self.reset()


class SAdd(Module):
    """Adds a number, and with ``negate`` takes the negative of the sum. Follows rnn's ``SAdd.lua``.

    >>> SAdd(-1, True)(torch.tensor([0.25]))
    tensor([0.7500])
    """

    fields = plain("addend negate")
    addend: float
    negate: bool = False

    def __init__(self, addend: float, negate: bool = False) -> None:
        super().__init__()
        self.addend, self.negate = addend, negate

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return -(input + self.addend) if self.negate else input + self.addend
