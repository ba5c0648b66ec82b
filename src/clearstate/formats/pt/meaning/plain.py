"""Plain values in place of objects of classes, so that ``torch.load(weights_only=True)`` reads the file.

Each entry of `PLAIN` says what stands for the objects of a class; what a pickled module is replaced by is its state
dict. An object that has nothing but attributes becomes a dict of them, one made of a single value that value. What is
none of these is named, and nothing is written: so are tensors of classes that keep their numbers in a way of their own
(quantized, nested, distributed), and modules that pack theirs into an object of C++.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from ....errors import ClearstateError, FormatError
from ....wording import some
from ...data import Held
from ..container.file import tensor_made
from ..layout.models import places
from ..layout.programs import class_of, is_module, is_subclass, tensor_in
from ..pickle.arrays import BUFFERED, RECONSTRUCTED, array_of, is_text, type_of
from ..pickle.read import hashable
from ..pickle.stubs import (
    ABSENT,
    LEAVES,
    NUMPY,
    STORAGE_DTYPE,
    Global,
    Ordered,
    Storage,
    Stub,
    Tensor,
    Value,
    bytes_in,
    children,
    walk,
)
from ..pickle.weights_only import READ, is_dangerous
from .survey import survey

PACKED = "torch.ScriptObject"
"""An object of C++ in a module, which packs the module's weights, as those of quantized layers."""

LONGEST = 1_000_000
"""Elements of a range or an array of objects that are written one by one."""

LARGEST = 8 * 255
"""Bits of a whole number, its sign among them, that are too many for PyTorch's reader."""


class NotPlain(Exception):
    """No plain value stands for this object, or for the one in it that is the culprit."""

    culprit: Value = None


def make_plain(root: Value) -> tuple[Value, list[str]]:
    """The value with plain ones in place of objects; dicts and lists are changed in place, sharing stays.

    Returns:
        The value, and the classes whose objects were replaced.

    Raises:
        ClearstateError: no plain value stands for some objects; names their classes.

    >>> space = Stub("newobj", Global("argparse", "Namespace"), ())
    >>> space.state = {"lr": 0.1}
    >>> make_plain({"args": space})
    ({'args': {'lr': 0.1}}, ['argparse.Namespace'])
    """
    work = _Work()
    work.find(root)
    if work.wrong or work.unfit:
        raise _refusal([*(f"{name} ({path})" for path, name in _places(root, work.wrong)), *sorted(work.unfit)])
    value = work.put(root)
    unread = sorted({str(name) for name in _named(value)} - READ)
    if work.unfit or unread:
        raise _refusal([*sorted(work.unfit), *unread])
    return value, sorted(work.replaced)


def has_plain(root: Value) -> bool:
    """Whether `make_plain` would find a plain value for everything. Changes nothing.

    >>> has_plain([Stub("reduce", Global("builtins", "slice"), (1, 2, 3))])
    False
    """
    work = _Work()
    work.find(root)
    within = (part for tensor in work.alive if isinstance(tensor, Tensor) for part in walk((tensor.rest, tensor.state)))
    unread = any(isinstance(part, Global) and str(part) not in READ for part in within)
    return not (work.wrong or work.unfit or unread or work.keys_that_are_none())


def _refusal(names: Iterable[str]) -> ClearstateError:
    what = f"no plain value stands for {some(list(names), 5)}"
    return ClearstateError(f"{what}: --drop PATH leaves such a thing out, or leave out --plain")


def _places(root: Value, wrong: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Where the objects are, each with its class."""
    pieces = {id(piece.value): piece.path for piece in survey(root).pieces}
    for number, name in wrong.items():
        yield pieces.get(number) or "at its root", name


def _named(root: Value) -> Iterator[Global]:
    for value in walk(root):
        if isinstance(value, Global):
            yield value
        elif isinstance(value, Tensor):
            yield value.maker
            yield value.storage.kind
        elif isinstance(value, Storage):
            yield value.kind


class _Work:
    def __init__(self) -> None:
        self.made: dict[int, Value] = {}
        self.alive: list[Value] = []
        self.replaced: set[str] = set()
        self.wrong: dict[int, str] = {}
        self.unfit: set[str] = set()
        self.holders: list[Value] = []
        self.tuples: dict[int, Value] = {}

    def find(self, root: Value) -> None:
        """Finds what stands for each object; changes nothing."""
        stack = [root]
        while stack:
            value = stack.pop()
            if type(value) in LEAVES or id(value) in self.made:
                if type(value) is int and value.bit_length() >= LARGEST:
                    self.unfit.add(f"a number of {value.bit_length()} bits")
                continue
            self.alive.append(value)
            new = self.made[id(value)] = self.replacement(value)
            if new is not value:
                stack.append(new)
                continue
            if isinstance(value, dict | list | set | Stub):
                self.holders.append(value)
            for key, item in children(value):
                stack.append(item)
                if isinstance(value, dict):
                    stack.append(key)

    def put(self, root: Value) -> Value:
        """Puts what was found into all that held an object."""
        for holder in self.holders:
            self.refill(holder)
        return self.final(root)

    def replacement(self, value: Value) -> Value:
        if isinstance(value, frozenset):
            return set(value)
        if isinstance(value, Global):
            return value if str(value) in READ else self.noted(str(value), str(value))
        if not isinstance(value, Stub):
            return value
        name = class_of(value)
        try:
            if is_subclass(value) and name not in READ:
                return self.noted(name, _bare_tensor(value))
            if isinstance(value.function, Global) and str(value.function) in READ:
                _check_known(value)
                return value
            return self.noted(name, _plain(value, name))
        except NotPlain as error:
            self.wrong[id(error.culprit or value)] = str(error) or name
            return None

    def keys_that_are_none(self) -> bool:
        """Whether an object that is a key becomes what cannot be one."""
        dicts = (holder for holder in self.holders if isinstance(holder, dict | set))
        keys = (self._chased(key) for holder in dicts for key in holder if type(key) not in LEAVES)
        return any(isinstance(key, dict | list | set) for key in keys)

    def noted(self, name: str, value: Value) -> Value:
        self.replaced.add(name)
        return value

    def final(self, value: Value) -> Value:
        while type(value) not in LEAVES and self.made.get(id(value), value) is not value:
            value = self.made[id(value)]
        return self.rebuilt(value) if isinstance(value, tuple) and not isinstance(value, Global) else value

    def rebuilt(self, outer: tuple[Value, ...]) -> Value:
        """A tuple with what stands for its parts; those inside it come first."""
        stack = [outer]
        while stack:
            value = stack[-1]
            inner = [part for part in map(self._chased, value) if self._open(part)]
            if inner:
                stack.extend(inner)
                continue
            stack.pop()
            parts = [self.tuples.get(id(part), part) for part in map(self._chased, value)]
            same = all(new is old for new, old in zip(parts, value, strict=True))
            self.tuples[id(value)] = value if same else tuple(parts)
        return self.tuples[id(outer)]

    def _open(self, part: Value) -> bool:
        return isinstance(part, tuple) and not isinstance(part, Global) and id(part) not in self.tuples

    def _chased(self, value: Value) -> Value:
        while type(value) not in LEAVES and self.made.get(id(value), value) is not value:
            value = self.made[id(value)]
        return value

    def refill(self, holder: Value) -> None:
        if isinstance(holder, dict):
            entries = [(self.final(key), self.final(item)) for key, item in holder.items()]
            if any(isinstance(key, dict | list | set) for key, _ in entries):
                self.unfit.add("a key of a dict")
                return
            holder.clear()
            holder.update(entries)
            if isinstance(holder, Ordered):
                holder.state = self.final(holder.state)
        elif isinstance(holder, list):
            holder[:] = map(self.final, holder)
        elif isinstance(holder, set):
            parts = [self.final(part) for part in holder]
            if any(isinstance(part, dict | list | set) for part in parts):
                self.unfit.add("a member of a set")
                return
            holder.clear()
            holder.update(parts)
        else:
            holder.args, holder.state = self.final(holder.args), self.final(holder.state)


def _plain(stub: Stub, name: str) -> Value:
    """What stands for an object; what is in it may be an object again."""
    if is_module(stub):
        _check_unpacked(stub)
        found = {path: place.value for path, place in places(stub).items() if place.value is not None}
        return Ordered((path, tensor_in(value) or value) for path, value in found.items())
    if is_dangerous(name) or not isinstance(stub.args, tuple):
        raise NotPlain
    for pattern, rule in PLAIN:
        if pattern.fullmatch(name):
            return rule(stub)
    return _by_its_parts(stub)


def _by_its_parts(stub: Stub) -> Value:
    state = _attributes(stub.state)
    if stub.entries:
        if any(not str(key).startswith("_") for key in state):
            raise NotPlain
        return _dict(stub)
    if stub.items and not state:
        return list(stub.items)
    args = _given(stub)
    if stub.items or stub.kwargs or (args and state):
        raise NotPlain
    if len(args) == 1 and type(args[0]) in LEAVES:
        return args[0]
    if args and stub.how == "newobj":
        return args  # a named tuple
    if args:
        raise NotPlain
    return state


def _given(stub: Stub) -> tuple[Value, ...]:
    """What the object was made of, besides its class."""
    args = stub.args if isinstance(stub.args, tuple) else ()
    if str(stub.function) in ("copy_reg._reconstructor", "copyreg._reconstructor"):
        return args[2:] if args[2:] != (None,) else ()
    return args


def _bare_tensor(stub: Stub) -> Value:
    """The tensor that a subclass was made around.

    Raises:
        NotPlain: it is no tensor on a storage, or it has more numbers among its attributes.
    """
    if not isinstance(stub.args, tuple) or len(stub.args) < 3:
        raise NotPlain
    function, _, args, *state = stub.args
    try:
        made = tensor_made(Stub("reduce", function, args))
    except FormatError:
        raise NotPlain from None
    if not isinstance(made, Tensor) or any(isinstance(part, Tensor | Storage | Stub) for part in walk(state)):
        raise NotPlain
    return made


def _check_known(stub: Stub) -> None:
    """That a function which PyTorch allows is not told a class that it does not: no name can stand for that."""
    parts = [stub.args]
    while parts:
        part = parts.pop()
        if isinstance(part, Global):
            if str(part) not in READ:
                raise NotPlain(str(part))
        elif isinstance(part, tuple):
            parts.extend(part)


def _check_unpacked(module: Stub) -> None:
    """That no layer of a module packs its weights: a state dict of plain names would lack them."""
    packed = next((part for part in walk(module) if isinstance(part, Stub) and part.typename == PACKED), None)
    if packed is not None:
        error = NotPlain("packed parameters of a quantized layer")
        error.culprit = packed
        raise error


def _attributes(state: Value) -> dict[Any, Any]:
    """What an object's state puts into it: of ``__dict__`` and, in the second part of a pair, of ``__slots__``."""
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    found: dict[Any, Any] = {}
    for part in parts:
        if isinstance(part, dict):
            found.update(part)
        elif part is not None and part is not ABSENT:
            raise NotPlain
    return found


def _omegaconf(stub: Stub) -> Value:
    for name in ("_content", "_val"):
        if name in (attributes := _attributes(stub.state)):
            return attributes[name]
    raise NotPlain


def _path(stub: Stub) -> Value:
    parts = stub.args
    if not isinstance(parts, tuple) or not all(isinstance(part, str) for part in parts):
        raise NotPlain
    windows = "Windows" in stub.typename
    first = parts[0] if parts and parts[0].endswith(("/", "\\")) else ""
    return (first + ("\\" if windows else "/").join(parts[bool(first) :])) or "."


def _numpy_type(value: Value) -> np.dtype[Any]:
    found = type_of(value)
    if found is None:
        raise NotPlain
    return found


def _numpy_name(stub: Stub) -> Value:
    return _numpy_type(stub).name


def _numpy_scalar(stub: Stub) -> Value:
    args = stub.args if isinstance(stub.args, tuple) else ()
    raw = bytes_in(args[1]) if len(args) == 2 else None
    dtype = _numpy_type(args[0]) if args else np.dtype("O")
    if raw is None or dtype.hasobject or len(raw) != dtype.itemsize or not is_text(raw, dtype):
        raise NotPlain
    number = np.frombuffer(raw, dtype)[0].item()
    if isinstance(number, complex):
        return Stub("reduce", Global("__builtin__", "complex"), (number.real, number.imag))
    if type(number) not in LEAVES:
        raise NotPlain  # a long double is wider than any number of Python
    return number


def _numpy_array(stub: Stub) -> Value:
    """A tensor of numbers; a list of texts."""
    array = array_of(stub)
    if array is None:
        raise NotPlain
    raw = array.raw
    if array.dtype.hasobject:
        if not isinstance(raw, list) or array.shape != (len(raw),) or len(raw) > LONGEST:
            raise NotPlain
        return list(raw)
    data = bytes(raw) if isinstance(raw, bytearray) else bytes_in(raw)
    return _of_bytes(data, array.dtype, array.shape, array.fortran)


def _of_bytes(data: bytes | None, dtype: np.dtype[Any], shape: tuple[int, ...], fortran: Value) -> Value:
    if data is None or dtype.hasobject or len(data) != int(np.prod(shape, dtype=object)) * dtype.itemsize:
        raise NotPlain
    if not is_text(data, dtype):
        raise NotPlain
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    if dtype.kind in "US":
        return array.tolist()
    little = np.ascontiguousarray(array, dtype.newbyteorder("<")).reshape(shape)
    code = little.dtype.str.lstrip("|<")
    torch_type = next((name for name, known in NUMPY.items() if known.lstrip("<") == code.replace("b1", "?")), None)
    if torch_type is None:
        raise NotPlain
    return tensor_of(little, torch_type)


def tensor_of(array: np.ndarray[Any, Any], dtype: str) -> Tensor:
    """A tensor of numbers in memory, as PyTorch pickles one."""
    kind = next((Global("torch", kind) for kind, name in STORAGE_DTYPE.items() if name == dtype), None)
    data = Held(array.reshape(-1).view("u1"))
    strides = tuple(step // array.itemsize for step in array.strides)
    maker, rest = Global("torch._utils", "_rebuild_tensor_v2"), (False, Ordered())
    if kind is not None:
        return Tensor(Storage(dtype, "", "cpu", data, kind), 0, array.shape, strides, maker, rest)
    storage = Storage("uint8", "", "cpu", data, Global("torch.storage", "UntypedStorage"))  # as all newer types
    maker = Global("torch._utils", "_rebuild_tensor_v3")
    return Tensor(storage, 0, array.shape, strides, maker, (*rest, Global("torch", dtype)))


def _bytes(stub: Stub) -> Value:
    data = bytes_in(stub)
    if data is None:
        raise NotPlain
    return data


def _range(stub: Stub) -> Value:
    if not (1 <= len(stub.args) <= 3 and all(type(n) is int for n in stub.args)):
        raise NotPlain
    try:
        numbers = range(*stub.args)
        if len(numbers) > LONGEST:
            raise NotPlain
    except (ValueError, OverflowError):
        raise NotPlain from None
    return list(numbers)


def _moment(stub: Stub) -> Value:
    """A date or a time as text (ISO 8601); a duration in seconds."""
    kind: Any = getattr(datetime, stub.typename.rpartition(".")[2])
    args = tuple(bytes_in(part) or part for part in stub.args)
    if not all(type(part) in (bytes, int) for part in args):
        raise NotPlain
    try:
        made = kind(*args)
    except (TypeError, ValueError, OverflowError):
        raise NotPlain from None
    return made.total_seconds() if isinstance(made, datetime.timedelta) else made.isoformat()


def _dict(stub: Stub) -> Value:
    """The entries, if a dict takes their keys."""
    _set([key for key, _ in stub.entries])
    return dict(stub.entries)


def _set(members: Iterable[Value]) -> Value:
    try:
        return set(map(hashable, members))
    except (TypeError, ValueError):
        raise NotPlain from None


def _first(stub: Stub) -> Value:
    """The one argument, a collection."""
    if len(stub.args) != 1 or not isinstance(stub.args[0], list | tuple | set):
        raise NotPlain
    return stub.args[0]


PLAIN: tuple[tuple[re.Pattern[str], Callable[[Stub], Value]], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        (r"omegaconf\..*", _omegaconf),
        (r"pathlib(\._local)?\.(Pure)?(Posix|Windows)?Path", _path),
        (r"numpy\.dtype", _numpy_name),
        (r"numpy\.(_core|core)\.multiarray\.scalar", _numpy_scalar),
        (RECONSTRUCTED.pattern, _numpy_array),
        (BUFFERED.pattern, _numpy_array),
        (r"(__builtin__|builtins)\.bytes", _bytes),
        (r"(__builtin__|builtins)\.(x?range)", _range),
        (r"(__builtin__|builtins)\.frozenset", lambda stub: _set(_first(stub))),
        (r"(__builtin__|builtins)\.(list|tuple)", _first),
        (r"collections\.defaultdict", _dict),
        (r"collections\.deque", lambda stub: list(stub.items)),
        (r"datetime\.(datetime|date|time|timedelta)", _moment),
        (r"torch\._tensor\._rebuild_from_type(_v2)?|torch\._utils\._rebuild_\w+", lambda stub: _refuse()),
    )
)
"""What stands for the objects of a class, by the name of the class or of the function that makes them."""


def _refuse() -> Value:
    raise NotPlain
