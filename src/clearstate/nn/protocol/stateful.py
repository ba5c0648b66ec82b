"""What modules and criterions have in common: two ways to be called, and state that `clear_state` drops.

``model(x)`` is PyTorch and leaves nothing behind. ``model.forward(x)`` and ``model.backward(x, grad_output)`` are
Torch7's protocol: the module keeps ``output`` and ``grad_input``, as do the modules inside it, until `clear_state`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from sys import getrefcount
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_pre_hooks,
)

from ...formats.t7.meaning.classes import Left, lookup
from ..declarations.bad_file import fault, fault_of_call
from ..declarations.bad_input import describe, passed
from ..declarations.fields import Fields, merged
from ..declarations.object_graph import Reader, Writer
from ..declarations.user_classes import put_into_catalog
from .constructed import as_constructed, restore
from .nodes import as_node
from .own_gradients import DECISIVE, ROOM, refused, take_over
from .ownership import ALONE, TABLES, Kept, adopt, alone_in, emptied, empty, mapped, own_alias, tensors
from .tape import LARGE, UNDONE, Entry, Slice, Tape, Way, calls, gradients, leaf, matched, recording, stale_error
from .tracing import noted, proxy_in

S = TypeVar("S", bound="Stateful")

PLAIN, PROTOCOL = Way.PLAIN, Way.PROTOCOL

CLASSES: dict[str, type[Stateful]] = {}
"""The Python class of each Torch7 class name."""


class _Constructed(type):
    """Notes, once a constructor is done, what it left in the fields declared transient."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        made.note_construction()
        return made

    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "forward":
            super().__setattr__("_direct", False)
        if name in DECISIVE:
            take_over(cls)


class _Unasked:
    """``output`` or ``grad_input`` of a module that has none of its own: it gets one when somebody asks for it."""

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute

    def __get__(self, module: Stateful | None, owner: type) -> Any:
        if module is None:
            raise AttributeError(f"{owner.__name__}.{self.attribute} is of modules, not of their class")
        name, own = self.attribute, module.__dict__
        entry = lookup(module.typename)
        value = as_constructed(entry.transient.get(KEPT[name]) if entry else None, FLOAT)
        if not torch.compiler.is_compiling():
            own[name] = value
        return value


class Stateful(torch.nn.Module, metaclass=_Constructed):
    """A ``torch.nn.Module`` with Torch7's protocol.

    A class says in declarations what there is to know about it:

    * ``transient``: names of attributes, besides ``output`` and ``grad_input``, that work leaves behind;
    * ``fields``: what goes to a ``.t7`` file besides parameters, buffers and children, see
      `clearstate.nn.declarations.fields`;
    * ``typename``: its Torch7 class name; given as a class argument it makes `clearstate.load` find the class.
    """

    typename: str = "nn.Module"
    transient: ClassVar[tuple[str, ...]] = ()
    derived: ClassVar[tuple[str, ...]] = ()
    """Fields of files that are computed of parameters: what they are in Python whenever they are read."""
    fields: ClassVar[Fields] = {}
    sizes_due: ClassVar[Mapping[str, str]] = {}
    """Sizes that tensors of files are due to have, see `clearstate.nn.declarations.fields.sized`."""
    of_tensor: ClassVar[bool] = False
    """Whether the input is one tensor, whatever its sizes."""

    version: ClassVar[int] = 1
    """The class version that Torch7 writes."""
    _forward: ClassVar[Any] = None
    """The protocol's ``forward``."""
    _direct: ClassVar[bool] = True
    """Whether the class has no other ``forward``: then a call may go to `update_output` at once."""
    has_type: ClassVar[bool] = True
    """Whether Torch7's constructor notes the class of the module's tensors, in ``_type``."""
    of_package: ClassVar[bool] = True
    """Whether the class is one of this package's, and not a user's own."""
    traced_through: ClassVar[bool] = False
    """Whether ``torch.fx`` sees the modules inside, and not one layer."""
    has_target: ClassVar[bool] = False
    """Whether a call has a target beside its input: criterions."""
    is_container: ClassVar[bool] = False
    """Whether Torch7's objects of the class always have a table ``modules``."""

    output: Any = _Unasked("output")
    grad_input: Any = _Unasked("grad_input")
    extra: dict[Any, Any]
    """What a file had besides; it is written back."""

    def __init_subclass__(cls, typename: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__module__.startswith(ROOM)
        cls.typename = typename or f"nn.{cls.__name__}"
        cls.transient = tuple(dict.fromkeys(n for c in reversed(cls.__mro__) for n in c.__dict__.get("transient", ())))
        cls.fields = merged(cls)
        if getattr(cls, "forward", None) is not cls._forward:
            cls._direct = False
        if (own or typename) and not cls.__name__.startswith("_"):
            CLASSES[cls.typename] = cls
        cls.of_package = own
        if typename and not own:
            put_into_catalog(cls)
        if not own:
            take_over(cls)

    def __init__(self) -> None:
        super().__init__()
        fresh = lookup(self.typename)
        for attribute, name in KEPT.items():
            self.__dict__[attribute] = as_constructed(fresh.transient.get(name) if fresh else None)

    def note_construction(self) -> None:
        """Called when the constructor is done, or a file is read: what it left in ``transient`` fields is what
        `clear_state` restores."""
        self.__dict__["_constructed"] = {n: self.__dict__[n] for n in self.transient if n in self.__dict__}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in KEPT or name in self.transient:  # what a layer's own code keeps may be a caller's tensor
            if isinstance(value, torch.nn.Module | torch.nn.Parameter):
                whose = f"{type(self).__name__}.{name}"
                raise TypeError(f"{whose} is what work leaves there: give this {type(value).__name__} another name")
            value = mapped(value, own_alias)
        elif name in DECISIVE:
            refused(self, name)
        super().__setattr__(name, value)

    # Calling

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or self._compiled_call_impl is not None:
            return super().__call__(*inputs, **kwargs)
        if not inputs or type(inputs[0]) is not Tensor:
            node = as_node(self, inputs)
            if node is not None:
                return node
            proxy = proxy_in(inputs)
            if proxy is not None and self.of_package and not self.traced_through:
                return noted(self, proxy, inputs, kwargs)
        way = calls.way
        outermost = way is PROTOCOL
        if outermost:
            calls.way = PLAIN
        try:
            # What PyTorch does for a call, where there is nothing around the forward: hooks, a trace, a compiled form.
            if (
                self._forward_hooks
                or self._forward_pre_hooks
                or self._backward_hooks
                or self._backward_pre_hooks
                or _global_forward_hooks
                or _global_forward_pre_hooks
                or _global_backward_hooks
                or _global_backward_pre_hooks
                or not self._direct
                or "forward" in self.__dict__
                or torch._C._get_tracing_state()
            ):
                return self._call_impl(*inputs, **kwargs)  # type: ignore[no-untyped-call]
            if type(way) is Tape:
                return self._record(way, *inputs, **kwargs)
            return self.update_output(*inputs, **kwargs)
        except Exception as error:
            told = self.leaving(error, inputs[0] if inputs else None, outermost)
            if told is error:
                raise
            raise told from error
        finally:
            if outermost:
                calls.way = PROTOCOL
                if calls.at_end:
                    calls.ended(self)

    def update_output(self, *inputs: Any) -> Any:
        """The forward, in differentiable PyTorch operations: all that a layer of your own needs to define."""
        raise NotImplementedError(f"{type(self).__name__} defines no update_output(input)")

    def told(self, error: Exception, input: Any) -> Exception:
        """The error to raise for one that came up in this module: in our words, where it is the input's or a file's."""
        if self.of_tensor and not isinstance(input, Tensor):
            return TypeError(f"expected a tensor, got {describe(input)}")
        found = fault_of_call(self, error, input) if "extra" in self.__dict__ and self.of_package else None
        return error if found is None else ValueError(f"the module from the file is not right: {found}")

    def leaving(self, error: Exception, input: Any, outermost: bool) -> Exception:
        """The error to raise in place of one that leaves this module, with the way that it has come."""
        told = error if "_through" in error.__dict__ else self.told(error, input)
        passed(told, self, outermost)
        return told

    def _protocol(self, *inputs: Any) -> Any:
        """A call in Torch7's way: part of the forward that is being recorded, or the beginning of one."""
        way = calls.way
        if type(way) is Tape:
            return self._record(way, *inputs)
        if type(inputs[0]) is Tensor or proxy_in(inputs) is None:
            return self._begin(*inputs)
        calls.way = PLAIN
        try:
            return self.update_output(*inputs)
        finally:
            calls.way = PROTOCOL

    def _begin(self, input: Kept, *rest: Any) -> Any:
        grad = torch.is_grad_enabled()
        if grad:
            if input.requires_grad if type(input) is Tensor else any(t.requires_grad for t in tensors(input)):
                name = type(self).__name__
                raise ValueError(
                    f"{name}.forward got an input that requires grad: the protocol would cut its graph here. "
                    "Call the module itself (model(x)) for autograd, or detach the input"
                )
            input = leaf(input) if type(input) is Tensor else mapped(input, leaf)
        last: Slice | None = self.__dict__.pop("_tape", None)
        if last is not None and last.start == 0:
            last.tape.entries.clear()  # its memory is there for this forward
        tape = Tape(grad)
        calls.way = tape
        try:
            self._record(tape, input, *rest, aliased=True)
        except Exception as error:
            told = self.leaving(error, input, True)
            if told is error:
                raise
            raise told from error
        finally:
            calls.way = Way.PROTOCOL
        return self.output

    def _record(self, tape: Tape, input: Kept, *rest: Any, aliased: bool = False) -> Any:
        inner = input if aliased or input is tape.alone else tape.alias(input)
        tape.alone = None
        entries = tape.entries
        start = len(entries)
        entries.append(UNDONE)
        own = self.__dict__
        held = own.get("output")  # before a layer's own code assigns another
        result = self.update_output(inner, *rest)
        entries[start] = Entry(weakref.ref(self), inner, result)
        own["_tape"] = Slice(tape, start, len(entries))
        own["output"] = adopt(held, self.as_output(result), own["_former"].get("output") if "_former" in own else None)
        return result

    def as_output(self, result: Any) -> Any:
        """What ``output`` becomes, of what `update_output` gave."""
        return result

    # Going back

    def _back(self, grad_output: Kept, scale: float, *, inputs: bool, parameters: bool) -> Any:
        part: Slice | None = self.__dict__.get("_tape")
        if part is None or not part.entries:
            raise RuntimeError(
                f"{type(self).__name__}: backward before forward (or after clear_state): call forward first"
            )
        if not part.tape.grad:
            raise RuntimeError(
                f"{type(self).__name__}: the last forward ran under torch.no_grad(): nothing to go back on"
            )
        entries = part.entries
        outputs, weights = matched(entries[0].result, grad_output, type(self).__name__)
        owners: list[Any] = [entry.module() for entry in entries] if inputs else []
        for module in owners:
            held = None if module is None else module.__dict__.get("grad_input")
            if type(held) is Tensor and held.numel() >= LARGE:
                empty(held)  # its memory is there for this backward
        learnt = [p for p in parameters_inside(self) if p.requires_grad] if parameters else []
        try:
            found = gradients(entries if inputs else [], outputs, weights, learnt, scale)
        except RuntimeError as error:
            told = stale_error(error, self, entries)
            if told is error:
                raise
            raise told from error
        owners.reverse()  # of a module that was called twice, the first call is reached last
        found.reverse()
        for module, grads in zip(owners, found, strict=True):
            if module is not None and "_tape" in module.__dict__:
                module._keep_grad_input(grads)
        return self.grad_input

    def _keep_grad_input(self, grads: Kept) -> None:
        own = self.__dict__
        former = own["_former"].get("grad_input") if "_former" in own else None
        own["grad_input"] = adopt(own.get("grad_input"), grads, former)

    # Clearing

    def clear_state(self: S) -> S:
        """Drops what work left behind here and in every module inside, and returns the module.

        ``output``, ``grad_input`` and the fields declared ``transient`` are as the constructor left them. The objects
        stay the same: whoever holds ``output`` holds what the next forward fills. Nothing else is touched: no
        input of a caller, no parameter, no gradient of a parameter. Follows Torch7's ``nn.Module.clearState``.

        >>> import clearstate.nn as nn
        >>> net = nn.Sequential().add(nn.Identity())
        >>> x = torch.ones(3)
        >>> out = net.forward(x)
        >>> net.clear_state() is net, out, x
        (True, tensor([]), tensor([1., 1., 1.]))
        >>> net.forward(x) is out, out
        (True, tensor([1., 1., 1.]))
        """
        for module in inside(self):
            if isinstance(module, Stateful):
                module.clear_own()
        return self

    def kept_names(self) -> Collection[str]:
        """The attributes that `clear_own` takes care of, and those that are never work: for `clearstate.live`."""
        return (*KEPT, *self.transient, "_tape", "_former", "_constructed", "extra")

    def kept_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """What the protocol and the ``transient`` fields hold now, by attribute: for `clearstate.live`."""
        own = self.__dict__
        part: Slice | None = own.get("_tape")
        if part is not None:
            yield from (("<tape>", t) for entry in part.entries[:1] for t in tensors([entry.inner, entry.result]))
        for name in (*KEPT, *self.transient):
            for i, tensor in enumerate(tensors(own.get(name))):
                yield (name if tensor is own[name] else f"{name}[{i}]"), tensor

    def clear_own(self) -> None:
        """Drops what work left on this module, not on those inside it."""
        own = self.__dict__
        own.pop("_tape", None)
        for name in KEPT:
            if name not in own:
                continue
            held = own.pop(name)  # what nobody else holds goes, and is made anew when somebody asks
            if type(held) is Tensor:
                if getrefcount(held) == ALONE and held.dtype is FLOAT and held.is_cpu:
                    continue
            elif type(held) is list and held and getrefcount(held) == ALONE and alone_in(held):
                continue
            self._empty(name, held)
        if self.transient:
            constructed = own.get("_constructed", NOTHING)
            for name in self.transient:
                if name in constructed:
                    restore(self, name, constructed)
                else:
                    own.pop(name, None)

    def _empty(self, name: str, held: Kept) -> None:
        """Empties what somebody else holds too, and keeps it."""
        own = self.__dict__
        if held is None or (isinstance(held, TABLES) and not held):
            own[name] = held
            return
        entry = lookup(self.typename)
        fresh = entry.transient.get(KEPT[name]) if entry else None
        if any(t.requires_grad for t in tensors(held)):  # a plain call's: its caller has it
            own[name] = as_constructed(fresh)
            return
        keep = int(fresh.detail) if fresh is not None and fresh.left is Left.TENSORS else 0
        value, former = emptied(held, keep)
        own[name] = value if isinstance(held, (Tensor, *TABLES)) else as_constructed(fresh)
        if former is not None:
            own.setdefault("_former", {})[name] = former

    # Copies, files, devices

    def __getstate__(self) -> dict[str, Any]:
        own = self.__dict__
        state = {key: value for key, value in own.items() if key not in UNSAVED}
        for name in (*KEPT, *self.transient):  # objects of the copy's own, without a graph
            if name in state:
                state[name] = mapped(state[name], Tensor.detach)
        state["_constructed"] = {
            name: state[name] if own.get(name) is value else mapped(value, Tensor.detach)
            for name, value in own.get("_constructed", {}).items()
        }
        return state

    def _apply(self: S, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> S:
        from .sharing import SharingKept

        fn = fn if isinstance(fn, SharingKept) else SharingKept(fn)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        own = self.__dict__
        own.pop("_tape", None)
        own.pop("file_type", None)
        for name in KEPT:
            getattr(self, name)  # what is made when somebody asks for it is converted as well
        for name in (*KEPT, *self.transient):
            if name in own:
                own[name] = adopt(own[name], mapped(own[name], fn))
        return self

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        """Changes the fields of a file (Lua names, values of `clearstate.formats.t7`) to those of today's class.

        Follows the ``read`` method of the Torch7 class.
        """

    def loaded(self) -> None:
        """Called when all fields are read: the constructor is not run for modules from files."""

    @classmethod
    def from_object(cls, made: Any, obj: Any, reading: Reader) -> None:
        """Fills a module of this class from an object of a file."""
        reading.fill(made, obj)

    def to_object(self, obj: Any, writing: Writer) -> None:
        """Fills an object of a file from this module."""
        writing.fill(self, obj)

    def keep(self, name: str, value: Any) -> None:
        """Keeps a value in a ``transient`` attribute, if this is the protocol: ``model(x)`` leaves nothing behind."""
        if recording():
            own = self.__dict__
            former = own.get("_former")
            own[name] = adopt(own.get(name), value, former and former.get(name))

    def children_in_order(self) -> Iterable[tuple[str, torch.nn.Module]]:
        """The child modules that Torch7 keeps in the table ``modules``, with their names."""
        return [(name, child) for name, child in self._modules.items() if name.isdigit() and child is not None]

    def __repr__(self) -> str:
        try:
            return self.to_string()
        except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RuntimeError) as error:
            if "extra" not in self.__dict__ or isinstance(error, RecursionError):
                raise
            return f"{self.typename}({fault(self, error)})"

    def to_string(self) -> str:
        """The module as Torch7 prints it."""
        return self.typename


KEPT = {"output": "output", "grad_input": "gradInput"}
"""What the protocol keeps on every module, and its Lua name."""

FLOAT = torch.float32
NOTHING: dict[str, Any] = {}

UNSAVED = frozenset(("_tape", "_former", "_compiled_call_impl"))
"""What a module never takes along into a copy or a file."""


def inside(module: torch.nn.Module) -> list[torch.nn.Module]:
    """A module and all modules inside, each once: as ``modules()``, in less time."""
    found, seen = [module], {module}
    for outer in found:  # which grows
        for child in outer._modules.values():
            if child is not None and child not in seen:
                seen.add(child)
                found.append(child)
    return found


def parameters_inside(module: torch.nn.Module) -> list[Tensor]:
    """All parameters of a module and of the modules inside, each once: as ``parameters()``, in less time."""
    found = {id(p): p for inner in inside(module) for p in inner._parameters.values() if p is not None}
    return list(found.values())
