"""Modules that hold modules: the list of children, and how Torch7 prints it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..protocol.module import Module
from ..protocol.ownership import mapped
from ..protocol.stateful import Stateful
from ..protocol.tape import calls, recording

C = TypeVar("C", bound="Container")


class Container(Module):
    """Holds child modules in order; indices count from 0, negative ones from the end.

    >>> import clearstate.nn as nn
    >>> net = nn.Sequential().add(nn.Linear(4, 3)).add(nn.Tanh())
    >>> len(net), net[1], net.get(-1) is net[1]
    (2, nn.Tanh, True)
    >>> [type(child).__name__ for child in net]
    ['Linear', 'Tanh']

    Follows Torch7's ``nn/Container.lua``.
    """

    is_container = True

    def add(self: C, module: torch.nn.Module) -> C:
        """Appends a child; returns the container."""
        self.add_module(str(len(self)), module)
        return self

    def get(self, index: int) -> torch.nn.Module:
        """The child at an index.

        Raises:
            IndexError: there is none.
        """
        children = self.children_list()
        if not -len(children) <= index < len(children):
            raise IndexError(f"{self.typename} has {len(children)} modules: there is no index {index}")
        return children[index]

    def insert(self: C, module: torch.nn.Module, index: int | None = None) -> C:
        """Puts a child at an index (at the end unless given); the later ones move up.

        Raises:
            IndexError: the index is beyond the ends.
        """
        children = self.children_list()
        place = len(children) if index is None else index
        if not -len(children) <= place <= len(children):
            raise IndexError(f"{self.typename} has {len(children)} modules: none can be put at {index}")
        children.insert(place, module)
        return self.renew(children)

    def remove(self, index: int = -1) -> torch.nn.Module:
        """Takes the child at an index out (the last unless given) and returns it."""
        children = self.children_list()
        removed = self.get(index)
        del children[index]
        self.renew(children)
        return removed

    def renew(self: C, children: list[torch.nn.Module]) -> C:
        """Takes these as children, in this order."""
        for name in [name for name in self._modules if name.isdigit()]:
            del self._modules[name]
        for i, child in enumerate(children):
            self.add_module(str(i), child)
        return self

    def children_list(self) -> list[torch.nn.Module]:
        """The children, in order."""
        return [child for _, child in self.children_in_order()]

    def size(self) -> int:
        """How many children there are."""
        return len(self)

    def __len__(self) -> int:
        return len(self.children_list())

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[torch.nn.Module]:
        return iter(self.children_list())

    def __getitem__(self, index: int) -> torch.nn.Module:
        return self.get(index)

    def __setitem__(self, index: int, module: torch.nn.Module) -> None:
        self.get(index)
        self.add_module(str(index % len(self)), module)

    def __delitem__(self, index: int) -> None:
        self.remove(index)

    def to_string(self) -> str:
        return branches(self)


def lent(module: Any, input: Any) -> Any:
    """What a container gives a module in it: in the protocol a copy, where a layer of PyTorch's would write over it.

    Layers of this package compute their result elsewhere there, see `clearstate.nn.protocol.tape.recording`.
    """
    if isinstance(module, Stateful) or not recording() or not any(getattr(m, "inplace", 0) for m in module.modules()):
        return input
    return mapped(input, torch.clone)


def sequence(module: Container) -> str:
    """A container printed as a chain, as Torch7 prints ``nn.Sequential``, and classes made of it under that name."""
    children = module.children_list()
    arrows = "".join(f" -> ({i})" for i in range(1, len(children) + 1))
    lines = ["nn.Sequential {", f"  [input{arrows} -> output]"]
    lines += [f"  ({i}): {indented(child, '  ')}" for i, child in enumerate(children, 1)]
    return "\n".join([*lines, "}"])


def branches(module: Container, last: str = "   ... -> ") -> str:
    """A container printed as branches of its input, as Torch7 prints ``nn.Concat``."""
    children = module.children_list()
    lines = [f"{module.typename} {{", "  input"]
    for i, child in enumerate(children, 1):
        end = i == len(children)
        arrow, below = ("   `-> ", "       ") if end else ("  |`-> ", "  |    ")
        lines.append(f"  {arrow}({i}): {indented(child, '  ' + below)}")
    return "\n".join([*lines, f"  {last}output", "}"])


def indented(child: Any, space: str) -> str:
    """A child's text, its further lines moved right."""
    return str(child).replace("\n", "\n" + space)


class Sequential(Container):
    """Each module's output is the next one's input. Follows Torch7's ``nn/Sequential.lua``.

    >>> import torch, clearstate.nn as nn
    >>> net = Sequential().add(nn.Linear(4, 3)).add(nn.Tanh())
    >>> net
    nn.Sequential {
      [input -> (1) -> (2) -> output]
      (1): nn.Linear(4 -> 3)
      (2): nn.Tanh
    }
    >>> net(torch.ones(2, 4)).shape
    torch.Size([2, 3])
    """

    traced_through = True

    def __init__(self, *modules: torch.nn.Module) -> None:
        super().__init__()
        for module in modules:
            self.add(module)

    def update_output(self, input: Any) -> Any:
        if recording():
            return self._recorded(input, calls.way)
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input

    def _recorded(self, input: Any, tape: Any) -> Any:
        """Says to the tape which values go to one module only."""
        alone = True
        for module in self._modules.values():
            ours = isinstance(module, Module)
            tape.alone = input if alone and ours else None
            input = module(input if ours else lent(module, input))  # type: ignore[misc]
            alone = type(input) is Tensor and input.grad_fn is not None
        tape.alone = None
        return input

    def to_string(self) -> str:
        return sequence(self)
