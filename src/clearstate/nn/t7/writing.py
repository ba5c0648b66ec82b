"""From live modules to the object graph of a ``.t7`` file: every field that Torch7's code for the class expects."""

from __future__ import annotations

from inspect import ismethod
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.parametrize import is_parametrized

from ...errors import ClearstateError
from ...formats import t7
from ...formats.data import Held
from ...formats.t7.codec.objects import Boolean, Value, element_type, storage_of
from ...formats.t7.meaning.classes import lookup, snake_case
from ...formats.t7.meaning.clearing import LINKED, fresh_value
from ...formats.t7.meaning.survey import Path, Place
from ...roles import Role
from ..declarations.bad_file import fault, lacks_modules
from ..declarations.dtypes import CLASSES_OF_DTYPE
from ..declarations.fields import Field, Form, Longs, counted_from_one, of_gradient, of_role
from ..protocol import stateful
from ..protocol.ownership import tensors
from ..protocol.stateful import Stateful
from . import as_read, undeclared
from .as_read import in_the_words_of_the_file
from .opaque import Opaque
from .packages import restored


class Writing:
    """One writing: a live object that is met twice becomes one object of the graph."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, bool], tuple[Any, Value]] = {}
        self.storages: dict[tuple[int, str], tuple[Any, t7.Storage]] = {}
        self.zeros: dict[int, Tensor] = {}
        self.indices: dict[int, tuple[Tensor, Any]] = {}
        self.cuda = False

    def gradient(self, parameter: Tensor) -> Value:
        """A parameter's gradient, zeros where it has none; modules that share a parameter share these too."""
        if parameter.grad is not None:
            return self.value(parameter.grad)
        if id(parameter) not in self.zeros:
            self.zeros[id(parameter)] = torch.zeros_like(parameter, requires_grad=False)
        return self.value(self.zeros[id(parameter)])

    def index(self, value: Any) -> Value:
        """An index as files have it; a tensor of them becomes one tensor wherever it is."""
        if not isinstance(value, Tensor):
            return self.value(counted_from_one(value))
        if id(value) not in self.indices:
            self.indices[id(value)] = value, counted_from_one(value)
        return self.value(self.indices[id(value)][1])

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
        elif isinstance(value, Longs):
            self.known[key] = value, t7.Storage.of("torch.LongStorage", value)
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
        elif is_parametrized(value):
            raise TypeError(
                f"{type(value).__name__} has parametrized tensors, which a .t7 file cannot hold: "
                "make them plain first, by torch.nn.utils.parametrize.remove_parametrizations"
            )
        elif isinstance(value, Stateful) or type(value) in stateful.CLASSES.values():
            obj = t7.Object(value.typename, t7.Table(), version=value.version)
            self.known[key] = value, obj
            self._object(value, obj)
        else:
            kind = type(value)
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} has no Torch7 class: it cannot go to a .t7 file")

    def _object(self, module: Any, obj: t7.Object) -> None:
        try:
            module.to_object(obj, self)
        except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as error:
            of_file = "extra" in module.__dict__ and getattr(module, "of_package", False)
            if isinstance(error, ClearstateError | RecursionError) or not of_file:
                raise
            why = fault(module, error)
            raise ClearstateError(f"{module.typename} cannot go to a file: {why}") from error

    def fill(self, module: Stateful, obj: t7.Object) -> None:
        """Fills an object from a module."""
        write_module(module, obj, self)

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
        plain = f"torch.{name}Tensor"
        read = as_read.CLASSES.get(tensor, "")
        cuda = read.startswith("torch.Cuda") if read and element_type(read) == element_type(plain) else self.cuda
        if not (cuda or tensor.is_cuda):
            return plain
        return "torch.CudaTensor" if name == "Float" else f"torch.Cuda{name}Tensor"


def _key(key: Any) -> Value:
    if isinstance(key, bool):
        return Boolean.TRUE if key else Boolean.FALSE
    return float(key) if isinstance(key, int | float) else key


def write_module(module: Stateful, obj: t7.Object, writing: Writing) -> None:
    """Fills an object of a file from a module: every field that Torch7's code for the class expects."""
    outer, writing.cuda = writing.cuda, module.__dict__.get("cuda_file", False)
    entry = lookup(module.typename)
    state = obj.state
    state["_type"] = _tensor_type(module, writing)
    for name in of_role(entry, Role.PARAMETER, Role.BUFFER, Role.CONSTANT):
        value = getattr(module, snake_case(name), None)
        if value is not None and name not in module.fields:
            if name in module.derived:
                value = in_the_words_of_the_file(module, name, (value, module.training), value)
            state[name] = writing.tensor(value) if _is_own(module, name) else writing.value(value)
    for name in of_role(entry, Role.GRADIENT):
        parameter: Tensor | None = module._parameters.get(of_gradient(name))
        if parameter is None and entry and entry.roles.get(name[4:5].lower() + name[5:]) is Role.PARAMETER:
            parameter = module._buffers.get(of_gradient(name))  # what is learned in Torch7, and a constant here
        noted = as_read.gradient(module, of_gradient(name))
        if noted is not None:
            state[name] = writing.value(noted.file)
        elif parameter is not None:
            grad = parameter.grad
            own = _is_own(module, snake_case(of_gradient(name)))
            state[name] = writing.tensor(grad) if grad is not None and own else writing.gradient(parameter)
    of_another_package = module.__dict__.get("file_fields")
    for name, field in module.fields.items():
        if of_another_package is None or name in of_another_package:
            state[name] = _written(module, name, field, writing)
    if not module.of_package:
        undeclared.write(module, state, writing)
    children = [child for _, child in module.children_in_order()]
    if children or (module.is_container and not lacks_modules(module)):
        state["modules"] = t7.Table.of(writing.value(child) for child in children)
    for name, value in module.__dict__.get("extra", {}).items():
        state[_key(name)] = writing.value(value)
    if module.__dict__.get("has_train", True) or not module.training:
        state["train"] = in_the_words_of_the_file(module, "train", module.training, module.training)
    transient = [
        (name, fresh)
        for name, fresh in (entry.transient if entry else {}).items()
        if "." not in name and name != "modules"  # written with its children above
    ]
    lacked = module.__dict__.get("file_lacks", ())
    for name, fresh in sorted(transient, key=lambda field: field[1].left in LINKED):
        held = getattr(module, snake_case(name), None)
        if held is None and name in lacked:
            continue
        if held is not None and not ismethod(held):  # `size` of old containers, say, which is one today
            state[name] = writing.value(held)
        if not isinstance(held, int | float) and not any(t.numel() for t in tensors(held)):
            state[name] = fresh_value(Place(Path(None, name), state, name, Role.TRANSIENT, fresh, obj))
    if not module.__dict__.get("file_type", module.has_type):  # neither in the file, nor a class that has one
        del state["_type"]
    for name in [n for n, v in state.items() if v is None]:
        del state[name]
    restored(module.typename, state)
    writing.cuda = outer


def _is_own(module: Stateful, name: str) -> bool:
    """Whether a parameter that is one in Python was a tensor of its own in the file, on shared memory."""
    return snake_case(name) in module.__dict__.get("own_tensors", ())


def _tensor_type(module: Stateful, writing: Writing) -> str:
    """The class of a module's tensors: what ``_type`` says in a file."""
    noted = in_the_words_of_the_file(module, "_type", as_read.dtype_of(module), None)
    if noted is not None:
        return str(noted)
    for held in ((*module.parameters(), *module.buffers()), tensors([module.output, module.grad_input])):
        tensor = next((t for t in held if t.is_floating_point()), None)
        if tensor is not None:
            return writing.typename(tensor)
        if module.__dict__.get("file_type"):
            return str(module.__dict__["file_type"])
    return writing.typename(torch.empty(0))


def _written(module: Stateful, name: str, field: Field, writing: Writing) -> Value:
    if field.form is Form.CONSTANT:
        return writing.value(in_the_words_of_the_file(module, name, field.constant, field.constant))
    value = getattr(module, field.attribute, None)
    if field.form is Form.INDEX:
        ours = writing.index(value)
    elif field.form is Form.LONGS and value is not None:
        ours = t7.Storage.of("torch.LongStorage", list(value))
    else:
        ours = writing.value(value)
    return writing.value(in_the_words_of_the_file(module, name, value, ours))
