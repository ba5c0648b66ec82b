"""`Module` and `Criterion`: Torch7's protocol, on PyTorch."""

from __future__ import annotations

import builtins
import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..declarations.bad_input import describe, expect_table
from ..declarations.fields import plain
from . import sharing
from .nodes import Node
from .ownership import Kept
from .stateful import Stateful, parameters_inside
from .tape import Slice, Way, calls, stale_error

M = TypeVar("M", bound="Module")


class Module(Stateful):
    """A layer: one input (a tensor, or a table of them), one output.

    A layer of your own defines ``update_output`` and nothing else:

    >>> class Double(Module):
    ...     def update_output(self, input):
    ...         return 2 * input
    >>> double = Double()
    >>> double.forward(torch.ones(2)), double.backward(torch.ones(2), torch.tensor([1.0, 10.0]))
    (tensor([2., 2.]), tensor([ 2., 20.]))
    >>> double.clear_state().output
    tensor([])

    Called as PyTorch modules are, it leaves nothing behind:

    >>> x = torch.ones(2, requires_grad=True)
    >>> double(x).sum().backward()
    >>> x.grad, double.output
    (tensor([2., 2.]), tensor([]))

    Follows Torch7's ``nn/Module.lua``.
    """

    def forward(self, input: Any) -> Any:
        """Runs the net on an input and keeps ``output``, here and in every module inside.

        Args:
            input: a tensor, or a list or dict of tensors. It is never changed by `clear_state`.

        Returns:
            ``self.output``: the module's own object, which the next forward fills again.

        Raises:
            ValueError: the input requires grad. The protocol detaches it; call ``module(input)`` instead.
        """
        if torch.compiler.is_compiling() or calls.way is Way.PLAIN:
            return self.update_output(input)
        return self._protocol(input)

    _forward = forward

    def node(self, parents: Sequence[Node]) -> Node:
        """A node of a graph with this module, which gets these nodes' values: what calling it on nodes makes."""
        return Node(self, parents)

    def __neg__(self) -> Node:
        """``-module``: a node without inputs, to begin a chain ``-module - another - ...`` with."""
        return Node(self)

    def backward(self, input: Any, grad_output: Any = None, scale: float = 1.0) -> Any:
        """Goes back over the last forward: keeps ``grad_input``, adds to the parameters' ``.grad``.

        Args:
            input: what `forward` was given.
            grad_output: gradients with respect to ``output``, in its form; 1 unless given, where that is one number.
            scale: a factor for the parameters' gradients.

        Returns:
            ``self.grad_input``, in the form of the input; zeros for what cannot be differentiated.

        Raises:
            RuntimeError: there was no forward since the last `clear_state`, or it ran under ``torch.no_grad()``.
            ValueError: ``grad_output`` has not the form of the output.
        """
        return self._back(grad_output, scale, inputs=True, parameters=True)

    def update_grad_input(self, input: Any, grad_output: Any) -> Any:
        """The part of `backward` that keeps ``grad_input``."""
        return self._back(grad_output, 1.0, inputs=True, parameters=False)

    def acc_grad_parameters(self, input: Any, grad_output: Any, scale: float = 1.0) -> None:
        """The part of `backward` that adds to the parameters' gradients."""
        self._back(grad_output, scale, inputs=False, parameters=True)

    def acc_update_grad_parameters(self, input: Any, grad_output: Any, learning_rate: float) -> None:
        """A step of gradient descent on the last forward alone; gradients that are kept stay as they are."""
        parameters = list(self.parameters())
        kept = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        try:
            self.acc_grad_parameters(input, grad_output)
            self.update_parameters(learning_rate)
        finally:
            for parameter, grad in zip(parameters, kept, strict=True):
                parameter.grad = grad

    def zero_grad_parameters(self) -> None:
        """Sets all gradients to zero; where there is none yet, makes it."""
        gradients = []
        for parameter in parameters_inside(self):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter, requires_grad=False)
            else:
                gradients.append(parameter.grad)
        if gradients:
            torch._foreach_zero_(gradients)

    def update_parameters(self, learning_rate: float) -> None:
        """``parameter -= learning_rate * gradient``, for all."""
        learnt = [(parameter, parameter.grad) for parameter in parameters_inside(self) if parameter.grad is not None]
        if learnt:
            with torch.no_grad():
                torch._foreach_add_([p for p, _ in learnt], [grad for _, grad in learnt], alpha=-learning_rate)

    def get_parameters(self) -> tuple[Tensor, Tensor]:
        """Two flat tensors, of all parameters and of their gradients, which these are views of from now on.

        Parameters that share memory share it afterwards. Call it once, after the net is built.

        >>> import clearstate.nn as nn
        >>> net = nn.Linear(3, 2)
        >>> flat, grads = net.get_parameters()
        >>> _ = flat.fill_(7)
        >>> flat.shape, net.weight[0, 0].item()
        (torch.Size([8]), 7.0)

        Follows Torch7's ``Module.getParameters``.
        """
        return sharing.flatten(self)

    def share(self: M, other: Module, *names: str) -> M:
        """Takes over another net's parameters: the two then are one in memory.

        Args:
            other: a net of the same structure.
            names: parameters to share: ``"weight"``, ``"bias"``. With ``"grad_weight"`` beside ``"weight"`` the
                gradients are shared too, as Torch7's names for them say.

        Follows Torch7's ``Module.share``.
        """
        sharing.share(self, other, names)
        return self

    def clone(self: M, *names: str) -> M:
        """A deep copy that shares the named parameters with this module.

        >>> import clearstate.nn as nn
        >>> a = nn.Linear(2, 2)
        >>> b = a.clone("weight", "grad_weight")
        >>> a.weight is b.weight, a.bias is b.bias
        (True, False)
        """
        made = copy.deepcopy(self)
        return made.share(self, *names) if names else made

    def type(self: M, dst_type: Any = None) -> Any:
        """Without an argument, the Torch7 name of the module's tensor type; else converts, as PyTorch does.

        >>> import clearstate.nn as nn
        >>> nn.Linear(2, 2).type()
        'torch.FloatTensor'
        >>> nn.Linear(2, 2).type("torch.DoubleTensor").weight.dtype
        torch.float64
        """
        if dst_type is None:
            own = next((t for t in (*self.parameters(), *self.buffers()) if t.is_floating_point()), None)
            return (torch.empty(0) if own is None else own.detach()).type()
        return super().type(dst_type)

    def evaluate(self: M) -> M:
        """Torch7's name for ``eval()``."""
        return self.eval()

    def replace(self, change: Callable[[torch.nn.Module], torch.nn.Module]) -> torch.nn.Module:
        """Puts ``change(module)`` in the place of every module, this one and all inside; returns the new root.

        What ``change`` makes may hold the module itself; it is not asked about what else it made.

        >>> import clearstate.nn as nn
        >>> net = nn.Sequential().add(nn.Tanh()).add(nn.Dropout())
        >>> net = net.replace(lambda m: nn.Identity() if isinstance(m, nn.Dropout) else m)
        >>> type(net[1]).__name__
        'Identity'
        """
        made: dict[torch.nn.Module, torch.nn.Module] = {}
        return _replaced(self, change, made)

    def find_modules(self, kind: builtins.type[Any] | str) -> list[torch.nn.Module]:
        """All modules of a class (given as the class, or by its Torch7 name), this one included.

        >>> import clearstate.nn as nn
        >>> len(nn.Sequential().add(nn.Tanh()).add(nn.Tanh()).find_modules("nn.Tanh"))
        2
        """
        if isinstance(kind, str):
            return [m for m in self.modules() if isinstance(m, Stateful) and m.typename == kind]
        return [m for m in self.modules() if m.__class__ is kind]

    def list_modules(self) -> list[torch.nn.Module]:
        """All modules, this one first, each once."""
        return list(self.modules())


class _OfTensor(Module):
    """A layer that does not look at its input before PyTorch does: what PyTorch refuses is said in our words.

    >>> import clearstate.nn as nn
    >>> nn.Tanh()([1, 2])
    Traceback (most recent call last):
    TypeError: expected a tensor, got a table of 2
    """

    of_tensor = True


def _replaced(
    module: torch.nn.Module,
    change: Callable[[torch.nn.Module], torch.nn.Module],
    made: dict[torch.nn.Module, torch.nn.Module],
) -> torch.nn.Module:
    """What a module becomes; then its own children (not those of what it became) become what they do."""
    if module not in made:
        children = list(module._modules.items())
        made[module] = new = change(module)
        if not isinstance(new, torch.nn.Module):
            raise TypeError(f"replace: {type(module).__name__} became {describe(new)}, not a module")
        for name, child in children:
            if child is not None and module._modules.get(name) is child:
                module._modules[name] = _replaced(child, change, made)
    return made[module]


class Criterion(Stateful):
    """A loss: an input and a target, one number.

    ``criterion(input, target)`` is PyTorch: a tensor without dimensions. ``criterion.forward(input, target)`` is
    Torch7's protocol: a float, kept in ``output``.

    >>> import clearstate.nn as nn
    >>> loss = nn.MSECriterion()
    >>> loss.forward(torch.ones(2), torch.zeros(2)), loss.backward(torch.ones(2), torch.zeros(2))
    (1.0, tensor([1., 1.]))

    Follows Torch7's ``nn/Criterion.lua``.
    """

    has_type = False
    has_target = True

    def forward(self, input: Any, target: Any = None) -> Any:
        """The loss, kept in ``output``.

        Args:
            input: what a net gave: a tensor, or a list of tensors.
            target: what is due, in the form the criterion takes. No gradient is computed for it.

        Returns:
            a float; a tensor where the loss has more than one element.

        Raises:
            ValueError: the input requires grad; call ``criterion(input, target)`` instead.
        """
        if torch.compiler.is_compiling() or calls.way is Way.PLAIN:
            return self.update_output(input, target)
        return self._protocol(input, target)

    _forward = forward

    def node(self, parents: Sequence[Node]) -> Node:
        """A node of a graph whose value is this loss of two nodes' values."""
        return Node(ModuleFromCriterion(self), parents)

    def backward(self, input: Any, target: Any = None) -> Kept:
        """The gradient of the loss with respect to the input, kept in ``grad_input``.

        Raises:
            RuntimeError: there was no forward since the last `clear_state`.
        """
        return self.update_grad_input(input, target)

    def update_grad_input(self, input: Any, target: Any = None) -> Kept:
        """The same as `backward`: a criterion has no parameters."""
        part: Slice | None = self.__dict__.get("_tape")
        result = None
        if part is not None and part.tape.entries:
            _, inner, result = part.tape.entries[part.start]
            if part.stop == part.start + 1 and _is_number(result) and type(inner) is Tensor and inner.requires_grad:
                try:
                    grad = torch.autograd.grad(result, inner, retain_graph=True, allow_unused=True)[0]  # as mostly
                except RuntimeError as error:
                    told = stale_error(error, self, part.entries)
                    if told is error:
                        raise
                    raise told from error
                self._keep_grad_input(torch.zeros_like(inner, requires_grad=False) if grad is None else grad)
                return self.grad_input
        ones = torch.ones_like(result) if isinstance(result, Tensor) and result.numel() != 1 else None
        return self._back(ones, 1.0, inputs=True, parameters=False)

    def as_output(self, result: Any) -> Any:
        return result.detach().item() if isinstance(result, Tensor) and result.numel() == 1 else result


class ModuleFromCriterion(Module):
    """A criterion as a module: a table of prediction and target in, a tensor with one number out.

    >>> import clearstate.nn as nn
    >>> ModuleFromCriterion(nn.MSECriterion())([torch.ones(2), torch.zeros(2)])
    tensor([1.])

    Follows nngraph's ``ModuleFromCriterion.lua``: the target gets a gradient of zeros.
    """

    fields = plain("criterion")

    def __init__(self, criterion: Criterion) -> None:
        super().__init__()
        self.criterion = criterion

    def update_output(self, input: Any) -> Tensor:
        expect_table(input, 2)
        prediction, target = input
        target = target.detach() if isinstance(target, Tensor) else target
        loss: Tensor = self.criterion(prediction, target)
        return loss.reshape(1)


def _is_number(result: Kept) -> bool:
    """Whether a result is one number that a gradient can be asked of."""
    return type(result) is Tensor and result.requires_grad and result.numel() == 1
