"""From the object graph of a ``.t7`` file to live modules.

What a field is, says the catalog (`clearstate.catalog`); which attribute it is in Python, and in which form, the class
(`clearstate.nn.declarations.fields`). What neither knows travels along in ``extra`` and is written back.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from ...errors import ClearstateError
from ...formats import t7
from ...formats.t7.codec.objects import Boolean, Value, element_type, numeric_class
from ...formats.t7.meaning.classes import ClassEntry, Left, entry_for, lookup, snake_case
from ...roles import Role
from ..declarations.bad_file import Lacking, lacks_modules, missing
from ..declarations.bad_input import describe
from ..declarations.field_types import misfit
from ..declarations.fields import Field, Form, Longs, counted_from_zero, of_gradient, of_role
from ..protocol.ownership import adopt, mapped
from ..protocol.stateful import KEPT, Stateful
from . import as_read, undeclared
from .as_read import note
from .opaque import Opaque
from .packages import always, completed
from .registry import find

Unknown = Literal["error", "keep"]


class UnknownClass(ClearstateError):
    """A file holds a module of a class that Python does not have.

    >>> print(UnknownClass("my.Gate"))
    no Python class for my.Gate: define one (class Gate(nn.Module, typename="my.Gate")), or load with unknown="keep" ...
    """

    def __init__(self, typename: str) -> None:
        super().__init__(
            f"no Python class for {typename}: define one (class {typename.rpartition('.')[2]}(nn.Module, "
            f'typename="{typename}")), or load with unknown="keep" to carry it along unread'
        )
        self.typename = typename


class Reading:
    """One reading: an object of the graph that is met twice becomes one live object."""

    def __init__(self, unknown: Unknown) -> None:
        self.unknown = unknown
        self.known: dict[int, Any] = {}
        self.storages: dict[int, Tensor] = {}
        self.parameters: dict[int, Parameter] = {}
        self.indices: dict[int, Any] = {}
        self.read: list[Value] = []  # alive as long as `known` knows them by id

    def parameter(self, tensor: Tensor) -> Parameter:
        """The parameter that a tensor of the file is; the same one wherever the tensor is met."""
        if id(tensor) not in self.parameters:
            self.parameters[id(tensor)] = made = Parameter(tensor, requires_grad=tensor.is_floating_point())
            as_read.same_class(made, tensor)
        return self.parameters[id(tensor)]

    def index(self, value: Any) -> Any:
        """An index of the file, already read, as Python counts; a tensor of them becomes one tensor wherever it is."""
        if not isinstance(value, Tensor):
            return counted_from_zero(value)
        if id(value) not in self.indices:
            self.indices[id(value)] = counted_from_zero(value)
            as_read.same_class(self.indices[id(value)], value)
        return self.indices[id(value)]

    def merge_shared_parameters(self) -> None:
        """Makes one parameter of those that are the same memory, as their gradients are: what ``share`` makes.

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
            return int(value) if value.is_integer() and abs(value) < 2**53 else float(value)
        if isinstance(value, Boolean):
            return value is Boolean.TRUE
        if value is None or isinstance(value, bool | str | bytes | t7.Function):
            return value
        if id(value) not in self.known:
            self._make(value)
        return self.known[id(value)]

    def fill(self, module: Stateful, obj: t7.Object) -> None:
        """Fills a module, made without its constructor, from an object."""
        read_module(module, obj, self)

    def child(self, value: Value) -> Any:
        """A module inside another one. Whatever its class is, it is one: it stands in ``modules``."""
        made = self.value(value)
        if isinstance(made, t7.Object):
            if self.unknown != "keep":
                raise UnknownClass(made.typename)
            self.known[id(value)] = made = Opaque(made)
        return made

    def _make(self, value: Value) -> None:
        self.read.append(value)
        if isinstance(value, t7.Tensor):
            self.known[id(value)] = made = self._tensor(value)
            as_read.CLASSES[made] = value.typename
        elif isinstance(value, t7.Storage):
            self.known[id(value)] = Longs(value.numpy().tolist()) if value.typename == "torch.LongStorage" else value
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
        elif any(isinstance(key, t7.Table | t7.Storage) for key in table):
            self.known[id(table)] = table  # nothing that Python's dicts take for a key
        else:
            self.known[id(table)] = entries = {}
            entries.update({self.value(key): self.value(item) for key, item in table.items()})

    def _object(self, obj: t7.Object) -> None:
        cls = find(obj.typename)
        if cls is not None and isinstance(obj.state, t7.Table):
            made = cls.__new__(cls)
            self.known[id(obj)] = made
            try:
                cls.from_object(made, obj, self)
            except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
                if isinstance(error, ClearstateError | RecursionError):
                    raise
                lost = missing(made, error) if isinstance(made, Stateful) else []
                if isinstance(error, KeyError):
                    lost = [str(error.args[0])]
                elif isinstance(error, IndexError) and lacks_modules(made):
                    lost = ["modules"]
                if lost:
                    raise ClearstateError(f"{obj.typename} in the file lacks {' and '.join(lost)}") from error
                raise ClearstateError(f"{obj.typename} in the file is not as its class is made: {error}") from error
        elif entry_for(obj.typename, obj.fields) is None:
            self.known[id(obj)] = obj
        elif self.unknown == "keep":
            self.known[id(obj)] = Opaque(obj)
        else:
            raise UnknownClass(obj.typename)


def described(value: Any) -> str:
    """A value of a file in a few words."""
    return repr(value)[:40] if isinstance(value, str | int | float) else describe(value)


def _geometry(tensor: Tensor) -> Any:
    return (tensor.untyped_storage().data_ptr(), tensor.size(), tensor.stride(), tensor.storage_offset())


def read_module(module: Stateful, obj: t7.Object, reading: Reading) -> None:
    """Fills a module, made without its constructor, from an object of a file."""
    Stateful.__init__(module)
    own = module.__dict__
    fields = completed(obj.typename, dict(obj.state))
    module.upgrade(fields, obj.version)
    upgraded = {**fields, **{name: obj.state.get(name) for name in always(obj.typename)}}
    if obj.typename != type(module).typename:
        own["typename"] = obj.typename
        own["file_fields"] = frozenset(obj.state)
        own["version"] = obj.version
    entry = lookup(obj.typename)
    kind = fields.pop("_type", None)
    classes = (kind, *(value.typename for value in fields.values() if isinstance(value, t7.Tensor)))
    own["cuda_file"] = str(next(filter(None, classes), "")).startswith("torch.Cuda")
    own["file_type"] = kind if isinstance(kind, str) else None
    if isinstance(kind, str) and numeric_class(kind):
        dtype = torch.from_numpy(np.empty(0, element_type(kind))).dtype
        own.update({name: mapped(own[name], lambda t: t if t.dtype is dtype else t.to(dtype)) for name in KEPT})
    own["file_lacks"] = frozenset(entry.transient).difference(obj.state) if entry else frozenset()
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
    for name in sorted(of_role(entry, Role.PARAMETER, Role.BUFFER)):
        if not hasattr(module, snake_case(name)):
            _register(module, name, None, Role.PARAMETER, reading)
    for name in of_role(entry, Role.PARAMETER):  # in Torch7's order, not the file's
        if snake_case(name) in module._parameters:
            module._parameters[snake_case(name)] = module._parameters.pop(snake_case(name))
    if not module.of_package:
        undeclared.read(module, reading)
    module.loaded()
    note(module, obj.state, upgraded, grads, reading)
    module.note_construction()
    _forget_work(module, entry)


def _forget_work(module: Stateful, entry: ClassEntry | None) -> None:
    """A file may hold what work left where the constructor leaves nothing, or a number: `clear_state` restores that."""
    constructed = module.__dict__["_constructed"]
    for name, fresh in (entry.transient if entry else {}).items():
        if fresh.left is Left.ABSENT:
            constructed.pop(snake_case(name), None)
        elif fresh.left is Left.VALUE and snake_case(name) in constructed:
            constructed[snake_case(name)] = fresh.detail


def _read_children(module: Stateful, obj: t7.Object, reading: Reading) -> None:
    table = obj.state.get("modules")
    if table is not None and not isinstance(table, t7.Table):
        raise TypeError(f"modules should be a table, and is {described(table)}")
    if table is None and module.is_container:
        module.__dict__["update_output"] = Lacking(module)
    if table is not None:
        children = table.array()
        if len(children) != len(table):
            raise ValueError(f"modules should be a table of 1 to {len(table)}, and has only {len(children)} in a row")
        for i, child in enumerate(children):
            module.add_module(str(i), reading.child(child))


def _read_field(
    module: Stateful, name: Any, raw: Value, entry: ClassEntry | None, reading: Reading, grads: dict[str, Any]
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
            value = _as_declared(module, name, field, reading.value(raw))
            value = list(value) if isinstance(value, Longs) else value
            value = reading.index(value) if field.form is Form.INDEX else value
            _set(module, field.attribute, value, role)
    elif role is Role.CONSTANT:
        value = _as_declared(module, name, Field(snake_case(name), Form.PLAIN), reading.value(raw))
        _set(module, snake_case(name), value, role)
    elif role in (Role.PARAMETER, Role.BUFFER):
        _register(module, name, reading.value(raw), role, reading)
    else:
        module.extra[name] = reading.value(raw)


def _as_declared(module: Stateful, name: str, field: Field, value: Any) -> Any:
    due = misfit(type(module), field, value)
    if due:
        raise TypeError(f"{name} should be {due}, and is {described(value)}")
    return value


def _set(module: Stateful, attribute: str, value: Any, role: Role | None) -> None:
    if isinstance(value, Tensor) and role is not Role.PARAMETER:
        module.register_buffer(attribute, value)
    else:
        setattr(module, attribute, value)


def _register(module: Stateful, name: str, value: Any, role: Role, reading: Reading) -> None:
    attribute = snake_case(name)
    if value is not None and value is not False and not isinstance(value, Tensor):
        raise TypeError(f"{name} should be a tensor, and is {described(value)}")
    if role is not Role.PARAMETER:
        _set(module, attribute, value, role)
    elif not isinstance(value, Tensor):
        module.register_parameter(attribute, None)
    else:
        module.register_parameter(attribute, reading.parameter(value))


def _read_transient(module: Stateful, name: str, raw: Value, entry: ClassEntry | None, reading: Reading) -> None:
    attribute = snake_case(name)
    if attribute in ("output", "grad_input"):
        value = reading.value(raw)
        own = mapped(value, lambda t: t.detach()) if isinstance(value, Tensor | list | dict) else value
        module.__dict__[attribute] = adopt(module.__dict__.get(attribute), own)
    elif attribute in module.transient:
        module.__dict__[attribute] = adopt(None, reading.value(raw))
