"""Between live modules and the object graph of a ``.t7`` file.

What a field is, says the catalog (`clearstate.formats.t7.classes`); which attribute it is in Python, and in which
form, the class (`clearstate.nn.fields`). What neither knows travels along in ``extra`` and is written back.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from ..errors import ClearstateError
from ..formats import t7
from ..formats.t7.classes import ClassEntry, entry_for, lookup, snake_case
from ..formats.t7.clear import LINKED, fresh_value
from ..formats.t7.data import Held
from ..formats.t7.objects import Boolean, Value, element_type, numeric_class, storage_of
from ..formats.t7.survey import Path, Place
from ..roles import Role
from . import stateful
from .fields import Field, Form
from .opaque import Opaque
from .packages import completed, meant
from .ownership import adopt, mapped, tensors
from .stateful import KEPT, Stateful

Unknown = Literal["error", "keep"]


class UnknownClass(ClearstateError):
    """A file holds a module of a class that Python does not have."""

    def __init__(self, typename: str) -> None:
        super().__init__(
            f"no Python class for {typename}: define one (class {typename.rpartition('.')[2]}(nn.Module, "
            f'typename="{typename}")), or load with unknown="keep" to carry it along unread'
        )
        self.typename = typename


def load(path: str | os.PathLike[str], *, unknown: Unknown = "error") -> Any:
    """Reads a ``.t7`` file into live modules.

    Args:
        path: a Torch7 file of any layout.
        unknown: what becomes of a module whose class Python does not have: ``"error"`` raises, ``"keep"`` makes it
            an `Opaque` module, which is written back as it was and raises when called.

    Returns:
        what the file holds: modules, tensors, numbers, strings; lists for tables with keys 1..n, else dicts.

    Raises:
        UnknownClass: see ``unknown``.
        FormatError: the file is no whole Torch7 file.

    >>> import tempfile, os
    >>> import clearstate as cs, clearstate.nn as nn
    >>> path = os.path.join(tempfile.mkdtemp(), "net.t7")
    >>> cs.save(nn.Sequential().add(nn.Linear(3, 2)), path)
    >>> cs.load(path)
    nn.Sequential {
      [input -> (1) -> output]
      (1): nn.Linear(3 -> 2)
    }
    """
    return to_live(t7.load(path), unknown=unknown)


def save(value: Any, path: str | os.PathLike[str], *, layout: t7.Layout | None = None) -> None:
    """Writes live modules (or a list, dict, tensor, ...) to a ``.t7`` file that Torch7 itself loads and runs.

    Args:
        value: what `load` gives back.
        path: the file; it is replaced as a whole, once all is written.
        layout: binary with 8-byte longs unless given.

    Raises:
        TypeError: something in it has no Torch7 class; named by its place.
    """
    graph = to_graph(value)
    t7.save(graph, path, layout) if layout is not None else t7.save(graph, path)


def to_live(value: Value, *, unknown: Unknown = "error") -> Any:
    """The live form of an object graph."""
    reading = _Reading(unknown)
    try:
        live = reading.value(value)
        reading.merge_shared_parameters()
        return live
    except RecursionError:
        raise ClearstateError("modules or tables nested too deep to be made live") from None


def to_graph(value: Any) -> Value:
    """The object graph of live modules."""
    return _Writing().value(value)


class _Reading:
    """One reading: an object of the graph that is met twice becomes one live object."""

    def __init__(self, unknown: Unknown) -> None:
        self.unknown = unknown
        self.known: dict[int, Any] = {}
        self.storages: dict[int, Tensor] = {}
        self.parameters: dict[int, Parameter] = {}
        self.read: list[Value] = []  # alive as long as `known` knows them by id

    def parameter(self, tensor: Tensor) -> Parameter:
        """The parameter that a tensor of the file is; the same one wherever the tensor is met."""
        if id(tensor) not in self.parameters:
            self.parameters[id(tensor)] = Parameter(tensor, requires_grad=tensor.is_floating_point())
        return self.parameters[id(tensor)]

    def merge_shared_parameters(self) -> None:
        """Makes one parameter of those that are the same memory, and whose gradients are: what Torch7's ``share`` makes.

        To an optimizer they would be two, and be stepped twice. They are written back as two tensors on one storage.
        """
        first: dict[Any, Parameter] = {}
        for module in self.known.values():
            if not isinstance(module, Stateful):
                continue
            for name, parameter in module._parameters.items():
                if parameter is None or not parameter.numel():
                    continue
                key = (_geometry(parameter), None if parameter.grad is None else _geometry(parameter.grad))
                shared = first.setdefault(key, parameter)
                if shared is not parameter:
                    module._parameters[name] = shared
                    module.__dict__.setdefault("own_tensors", set()).add(name)

    def value(self, value: Value) -> Any:
        if isinstance(value, float):
            return int(value) if value.is_integer() and abs(value) < 2**53 else value
        if isinstance(value, Boolean):
            return value is Boolean.TRUE
        if value is None or isinstance(value, bool | str | bytes | t7.Function):
            return value
        if id(value) not in self.known:
            self._make(value)
        return self.known[id(value)]

    def _make(self, value: Value) -> None:
        self.read.append(value)
        if isinstance(value, t7.Tensor):
            self.known[id(value)] = self._tensor(value)
        elif isinstance(value, t7.Storage):
            self.known[id(value)] = value.numpy().tolist() if value.typename == "torch.LongStorage" else value
        elif isinstance(value, t7.Table):
            self._table(value)
        else:
            self._object(value)

    def _tensor(self, tensor: t7.Tensor) -> Tensor:
        dtype = tensor.numpy().dtype.newbyteorder("=")
        if tensor.storage is None or not tensor.size:
            return torch.from_numpy(np.empty(0, dtype))
        storage = tensor.storage
        if id(storage) not in self.storages:
            self.storages[id(storage)] = torch.from_numpy(np.array(storage.numpy(), dtype))
        return self.storages[id(storage)].as_strided(tensor.size, tensor.stride, tensor.offset)

    def _table(self, table: t7.Table) -> None:
        items = table.array()
        if len(items) == len(table):
            made: list[Any] = []
            self.known[id(table)] = made
            made.extend(self.value(item) for item in items)
        elif any(isinstance(key, t7.Table) for key in table):
            self.known[id(table)] = table  # nothing that Python's dicts take for a key
        else:
            self.known[id(table)] = entries = {}
            entries.update({self.value(key): self.value(item) for key, item in table.items()})

    def _object(self, obj: t7.Object) -> None:
        cls = stateful.CLASSES.get(meant(obj.typename))
        if cls is not None and isinstance(obj.state, t7.Table):
            made = cls.__new__(cls)
            self.known[id(obj)] = made
            cls.from_object(made, obj, self)
        elif entry_for(obj.typename, obj.fields) is None:
            self.known[id(obj)] = obj
        elif self.unknown == "keep":
            self.known[id(obj)] = Opaque(obj)
        else:
            raise UnknownClass(obj.typename)


def _geometry(tensor: Tensor) -> Any:
    return (tensor.untyped_storage().data_ptr(), tensor.size(), tensor.stride(), tensor.storage_offset())


def read_module(module: Stateful, obj: t7.Object, reading: _Reading) -> None:
    """Fills a module, made without its constructor, from an object of a file."""
    Stateful.__init__(module)
    own = module.__dict__
    fields = completed(obj.typename, dict(obj.state))
    module.upgrade(fields, obj.version)
    if obj.typename != type(module).typename:
        own["typename"] = obj.typename
        own["file_fields"] = frozenset(obj.state)
    entry = lookup(obj.typename)
    kind = fields.pop("_type", None)
    classes = (kind, *(value.typename for value in fields.values() if isinstance(value, t7.Tensor)))
    own["cuda_file"] = str(next(filter(None, classes), "")).startswith("torch.Cuda")
    own["file_type"] = kind if isinstance(kind, str) else None
    if isinstance(kind, str) and numeric_class(kind):
        dtype = torch.from_numpy(np.empty(0, element_type(kind))).dtype
        own.update({name: mapped(own[name], lambda t: t.to(dtype)) for name in KEPT})
    own["has_train"] = "train" in fields
    own["training"] = fields.pop("train", True) not in (False, 0)
    own["extra"] = {}
    fields.pop("modules", None)
    grads: dict[str, Any] = {}
    _read_children(module, obj, reading)
    for name, raw in fields.items():
        _read_field(module, name, raw, entry, reading, grads)
    for name, grad in grads.items():
        parameter = module._parameters.get(name)
        if parameter is not None and isinstance(grad, Tensor) and grad.shape == parameter.shape:
            parameter.grad = grad.to(parameter.dtype)
    for field in module.fields.values():
        if field.form is not Form.CONSTANT and not hasattr(module, field.attribute):
            setattr(module, field.attribute, None)
    for name in sorted(_of_role(entry, Role.PARAMETER, Role.BUFFER)):
        if not hasattr(module, snake_case(name)):
            _register(module, name, None, Role.PARAMETER, reading)
    for name in _of_role(entry, Role.PARAMETER):  # in Torch7's order, not the file's
        if snake_case(name) in module._parameters:
            module._parameters[snake_case(name)] = module._parameters.pop(snake_case(name))
    module.loaded()
    module.note_construction()


def _of_role(entry: ClassEntry | None, *roles: Role) -> list[str]:
    return [name for name, role in entry.roles.items() if role in roles and "." not in name] if entry else []


def _read_children(module: Stateful, obj: t7.Object, reading: _Reading) -> None:
    table = obj.state.get("modules")
    if isinstance(table, t7.Table):
        for i, child in enumerate(table.array()):
            module.add_module(str(i), reading.value(child))


def _read_field(
    module: Stateful, name: str, raw: Value, entry: ClassEntry | None, reading: _Reading, grads: dict[str, Any]
) -> None:
    if not isinstance(name, str):
        module.extra[name] = reading.value(raw)
        return
    field = module.fields.get(name)
    role = entry.roles.get(name) if entry else None
    if role is Role.TRANSIENT:
        _read_transient(module, name, raw, entry, reading)
    elif role is Role.GRADIENT:
        grads[of_gradient(name)] = reading.value(raw)
    elif field is not None:
        if field.form is not Form.CONSTANT:
            value = counted_from_zero(reading.value(raw)) if field.form is Form.INDEX else reading.value(raw)
            _set(module, field.attribute, value, role)
    elif role in (Role.PARAMETER, Role.BUFFER, Role.CONSTANT):
        _register(module, name, reading.value(raw), role, reading)
    else:
        module.extra[name] = reading.value(raw)


def of_gradient(name: str) -> str:
    """The parameter that a gradient belongs to.

    >>> of_gradient("gradWeight"), of_gradient("gradBias")
    ('weight', 'bias')
    """
    return snake_case(name[4:5].lower() + name[5:])


def _set(module: Stateful, attribute: str, value: Any, role: Role | None) -> None:
    if isinstance(value, Tensor) and role is not Role.PARAMETER:
        module.register_buffer(attribute, value)
    else:
        setattr(module, attribute, value)


def _register(module: Stateful, name: str, value: Any, role: Role, reading: _Reading) -> None:
    attribute = snake_case(name)
    if role is not Role.PARAMETER:
        _set(module, attribute, value, role)
    elif value is None or not isinstance(value, Tensor):
        module.register_parameter(attribute, None)
    else:
        module.register_parameter(attribute, reading.parameter(value))


def _read_transient(module: Stateful, name: str, raw: Value, entry: ClassEntry | None, reading: _Reading) -> None:
    attribute = snake_case(name)
    if attribute in ("output", "grad_input"):
        value = reading.value(raw)
        own = mapped(value, lambda t: t.detach()) if isinstance(value, Tensor | list | dict) else value
        module.__dict__[attribute] = adopt(module.__dict__.get(attribute), own)
    elif attribute in module.transient:
        module.__dict__[attribute] = adopt(None, reading.value(raw))


def counted_from_zero(value: Any) -> Any:
    """An index of a file as Python's: 1 less where it is positive.

    >>> counted_from_zero(3), counted_from_zero(-1), counted_from_zero([1, 2])
    (2, -1, [0, 1])
    """
    return _shifted(value, lambda v: v - 1 if v > 0 else v)


def counted_from_one(value: Any) -> Any:
    """An index of Python as files have it: 1 more where it is not negative.

    >>> counted_from_one(2), counted_from_one(-1), counted_from_one({"a": 0})
    (3, -1, {'a': 1})
    """
    return _shifted(value, lambda v: v + 1 if v >= 0 else v)


def _shifted(value: Any, shift: Callable[[int], int]) -> Any:
    if isinstance(value, Tensor):
        return torch.tensor([shift(v) for v in value.flatten().tolist()], dtype=value.dtype).view_as(value)
    if isinstance(value, list | tuple):
        return [_shifted(item, shift) for item in value]
    if isinstance(value, dict):
        return {key: _shifted(item, shift) for key, item in value.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        return shift(value)
    return value


CLASSES_OF_DTYPE = {
    torch.uint8: "Byte",
    torch.bool: "Byte",
    torch.int8: "Char",
    torch.int16: "Short",
    torch.int32: "Int",
    torch.int64: "Long",
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
}


class _Writing:
    """One writing: a live object that is met twice becomes one object of the graph."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, bool], tuple[Any, Value]] = {}
        self.storages: dict[tuple[int, str], tuple[Any, t7.Storage]] = {}
        self.zeros: dict[int, Tensor] = {}
        self.cuda = False

    def gradient(self, parameter: Tensor) -> Value:
        """A parameter's gradient, zeros where it has none; modules that share a parameter share these too."""
        if parameter.grad is not None:
            return self.value(parameter.grad)
        if id(parameter) not in self.zeros:
            self.zeros[id(parameter)] = torch.zeros_like(parameter, requires_grad=False)
        return self.value(self.zeros[id(parameter)])

    def value(self, value: Any) -> Value:
        if value is None or isinstance(value, bool | str | bytes | t7.Function):
            return value
        if isinstance(value, int | float):
            return float(value)
        key = (id(value), self.cuda)
        if key not in self.known:
            self._make(key, value)
        return self.known[key][1]

    def _make(self, key: tuple[int, bool], value: Any) -> None:
        if isinstance(value, t7.Object | t7.Table | t7.Tensor | t7.Storage):
            self.known[key] = value, value
        elif isinstance(value, Tensor):
            self.known[key] = value, self.tensor(value)
        elif isinstance(value, list | tuple):
            made = t7.Table()
            self.known[key] = value, made
            made.update({float(i): self.value(item) for i, item in enumerate(value, 1)})
        elif isinstance(value, dict):
            made = t7.Table()
            self.known[key] = value, made
            made.update({_key(k): self.value(item) for k, item in value.items()})
        elif isinstance(value, Opaque):
            self.known[key] = value, value.object
        elif isinstance(value, Stateful) or type(value) in stateful.CLASSES.values():
            obj = t7.Object(value.typename, t7.Table(), version=value.version)
            self.known[key] = value, obj
            value.to_object(obj, self)
        else:
            kind = type(value)
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} has no Torch7 class: it cannot go to a .t7 file")

    def tensor(self, tensor: Tensor) -> t7.Tensor:
        """A tensor of the class that its dtype has; on a Cuda class where the module came from one, or is on one."""
        typename = self.typename(tensor)
        if tensor.dtype is torch.bool:
            tensor = tensor.byte()
        if not tensor.numel():
            return t7.Tensor(typename)
        storage = tensor.detach().untyped_storage()
        key = (storage.data_ptr(), typename)
        if key not in self.storages:
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage)
            made = t7.Storage(storage_of(typename), Held(flat.cpu().numpy()))
            self.storages[key] = (flat, made)
        size = tuple(tensor.size()) or (1,)
        stride = tuple(tensor.stride()) or (1,)
        where = int(tensor.storage_offset())
        return t7.Tensor(typename, size, stride, where, self.storages[key][1])

    def typename(self, tensor: Tensor) -> str:
        """The Torch7 class of a tensor."""
        name = CLASSES_OF_DTYPE.get(tensor.dtype)
        if name is None:
            raise TypeError(f"Torch7 has no tensor of {tensor.dtype}: convert it to another dtype first")
        if not (self.cuda or tensor.is_cuda):
            return f"torch.{name}Tensor"
        return "torch.CudaTensor" if name == "Float" else f"torch.Cuda{name}Tensor"


def _key(key: Any) -> Value:
    if isinstance(key, bool):
        return Boolean.TRUE if key else Boolean.FALSE
    return float(key) if isinstance(key, int | float) else key


def write_module(module: Stateful, obj: t7.Object, writing: _Writing) -> None:
    """Fills an object of a file from a module: every field that Torch7's code for the class expects."""
    outer, writing.cuda = writing.cuda, module.__dict__.get("cuda_file", False)
    entry = lookup(module.typename)
    state = obj.state
    state["_type"] = _tensor_type(module, writing)
    for name in _of_role(entry, Role.PARAMETER, Role.BUFFER, Role.CONSTANT):
        value = getattr(module, snake_case(name), None)
        if value is not None and name not in module.fields:
            state[name] = writing.tensor(value) if _is_own(module, name) else writing.value(value)
    for name in _of_role(entry, Role.GRADIENT):
        parameter: Tensor | None = module._parameters.get(of_gradient(name))
        if parameter is None and entry and entry.roles.get(name[4:5].lower() + name[5:]) is Role.PARAMETER:
            parameter = module._buffers.get(of_gradient(name))  # what is learned in Torch7, and a constant here
        if parameter is not None:
            own = _is_own(module, snake_case(of_gradient(name))) and parameter.grad is not None
            state[name] = writing.tensor(parameter.grad) if own else writing.gradient(parameter)
    of_another_package = module.__dict__.get("file_fields")
    for name, field in module.fields.items():
        if of_another_package is None or name in of_another_package:
            state[name] = _written(module, field, writing)
    children = [child for _, child in module.children_in_order()]
    if children or module.is_container:
        state["modules"] = t7.Table.of(writing.value(child) for child in children)
    for name, value in module.__dict__.get("extra", {}).items():
        state[_key(name)] = writing.value(value)
    if module.__dict__.get("has_train", True) or not module.training:
        state["train"] = module.training
    transient = [
        (name, fresh)
        for name, fresh in (entry.transient if entry else {}).items()
        if "." not in name and name != "modules"  # written with its children above
    ]
    for name, fresh in sorted(transient, key=lambda field: field[1].left in LINKED):
        held = getattr(module, snake_case(name), None)
        if held is not None:
            state[name] = writing.value(held)
        if not isinstance(held, int | float) and not any(t.numel() for t in tensors(held)):
            state[name] = fresh_value(Place(Path(None, name), state, name, Role.TRANSIENT, fresh, obj))
    if not module.has_type and not module.__dict__.get("file_type"):
        del state["_type"]
    for name in [n for n, v in state.items() if v is None]:
        del state[name]
    writing.cuda = outer


def _is_own(module: Stateful, name: str) -> bool:
    """Whether a parameter that is one in Python was a tensor of its own in the file, on shared memory."""
    return snake_case(name) in module.__dict__.get("own_tensors", ())


def _tensor_type(module: Stateful, writing: _Writing) -> str:
    """The class of a module's tensors: what ``_type`` says in a file."""
    for held in ((*module.parameters(), *module.buffers()), tensors([module.output, module.grad_input])):
        tensor = next((t for t in held if t.is_floating_point()), None)
        if tensor is not None:
            return writing.typename(tensor)
        if module.__dict__.get("file_type"):
            return str(module.__dict__["file_type"])
    return writing.typename(torch.empty(0))


def _written(module: Stateful, field: Field, writing: _Writing) -> Value:
    if field.form is Form.CONSTANT:
        return writing.value(field.constant)
    value = getattr(module, field.attribute, None)
    if field.form is Form.INDEX:
        value = counted_from_one(value)
    if field.form is Form.LONGS and value is not None:
        return t7.Storage.of("torch.LongStorage", list(value))
    return writing.value(value)
