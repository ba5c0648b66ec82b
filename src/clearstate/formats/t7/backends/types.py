"""Tensors of an object graph as those of another device or another floating type, in place.

``torch.CudaTensor`` is ``torch.FloatTensor`` on a GPU, ``torch.CudaDoubleTensor`` a ``torch.DoubleTensor``, and so on.
In a file they differ in name alone. Tensors that share a storage share one afterwards; numbers that lie in a mapped
file are cast as they are written, piece by piece.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from ....errors import ClearstateError
from ....roles import Role
from ...data import Array, Data, Held
from ..codec.objects import Object, Storage, Table, Tensor, Value, element_type, numeric_class, storage_of
from ..meaning.classes import entry_for
from ..meaning.survey import Edge
from .cudnn import KEPT_AS_FLOAT
from .pairs import renew, walk

Device = Literal["cpu", "cuda"]
DType = Literal["float", "double", "half"]

DEVICES = ("cpu", "cuda")
DTYPES = ("float", "double", "half")
FLOATING = frozenset(name.capitalize() for name in DTYPES)


class Cast:
    """Numbers of another type, cast as they are asked for.

    >>> Cast(Held(np.array([1.5, 2.5])), np.dtype("f4")).array()
    array([1.5, 2.5], dtype=float32)
    """

    __slots__ = ("dtype", "of")

    def __init__(self, of: Data, dtype: np.dtype[np.generic]) -> None:
        self.of = of
        self.dtype = dtype

    @property
    def count(self) -> int:
        return self.of.count

    @property
    def occupies(self) -> int:
        return self.of.count * self.dtype.itemsize

    def array(self) -> Array:
        return _cast(self.of.array(), self.dtype)

    def pieces(self) -> Iterator[Array]:
        return (_cast(piece, self.dtype) for piece in self.of.pieces())

    def select(self, runs: Sequence[tuple[int, int]]) -> Data:
        return Cast(self.of.select(runs), self.dtype)


def _cast(array: Array, dtype: np.dtype[np.generic]) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(dtype)


def renamed(typename: str, device: Device | None, dtype: DType | None) -> str:
    """The class that a tensor or storage class becomes; integers stay integers.

    >>> renamed("torch.CudaTensor", "cpu", None), renamed("torch.DoubleTensor", "cuda", "float")
    ('torch.FloatTensor', 'torch.CudaTensor')
    >>> renamed("torch.CudaLongStorage", "cpu", "half")
    'torch.LongStorage'
    """
    numeric = numeric_class(typename)
    if numeric is None:
        return typename
    element, kind = numeric
    cuda = typename.startswith("torch.Cuda") if device is None else device == "cuda"
    if dtype is not None and element in FLOATING:
        element = dtype.capitalize()
    if not cuda:
        return f"torch.{element}{kind}"
    return f"torch.Cuda{'' if element == 'Float' else element}{kind}"


def check(device: str | None, dtype: str | None) -> None:
    """Whether these are a device and a type.

    Raises:
        ValueError: one is not.
    """
    if device not in (None, *DEVICES):
        raise ValueError(f"there is no device {device!r}; there are {', '.join(DEVICES)}")
    if dtype not in (None, *DTYPES):
        raise ValueError(f"there is no floating type {dtype!r}; there are {', '.join(DTYPES)}")


def fits(root: Value, device: Device | None, dtype: DType | None, classes: Mapping[int, str] | None = None) -> None:
    """Whether every number that `retype` would cast has a value in the new type.

    Args:
        root: the graph.
        device: as for `retype`.
        dtype: as for `retype`.
        classes: what objects will be by then, by their id.

    Raises:
        ValueError: there is no such device or type.
        ClearstateError: a number is too large; names where it is.
    """
    check(device, dtype)
    if dtype is not None:
        _Due(root, device, dtype, classes or {}, work=False).check()


def retype(root: Value, device: Device | None = None, dtype: DType | None = None) -> dict[tuple[str, str], int]:
    """Makes the tensors of an object graph those of a device, or of a floating type, in place.

    To the CPU goes everything. To a GPU go tensors of floats, and other tensors that modules have; sizes, and indices
    in plain tables or left by work, stay. What is inside an ``nn.DontCast`` keeps its type, as in Torch7, and stays
    off the GPU.

    Args:
        root: anything that `load` returns.
        device: ``"cpu"`` or ``"cuda"``; where they are unless given.
        dtype: ``"float"``, ``"double"`` or ``"half"``; what they are unless given.

    Returns:
        how many tensors of each class became of which.

    Raises:
        ValueError: there is no such device or type.
        ClearstateError: a number is too large for the type; names where it is. Nothing was changed.

    >>> layer = Object("nn.Add", Table(bias=Tensor.of([1.0]), _type="torch.DoubleTensor"))
    >>> retype(layer, "cuda", "float")
    {('torch.DoubleTensor', 'torch.CudaTensor'): 1}
    >>> layer["bias"], layer["_type"]
    (Tensor('torch.CudaTensor', 1), 'torch.CudaTensor')
    """
    check(device, dtype)
    if device is None and dtype is None:
        return {}
    due = _Due(root, device, dtype, {}, work=True)
    due.check()
    counts = due.carry_out()
    if device is not None:
        _remake(root, device)
    return counts


INDICES = {"_sorted": "torch.CudaLongTensor", "_indices": "torch.CudaLongTensor"}
ON_GPU: Mapping[str, Mapping[str, str]] = {
    "nn.LookupTable": {**INDICES, "_count": "torch.CudaLongTensor", "_input": "torch.CudaLongTensor"},
    "nn.CosineEmbeddingCriterion": {"_idx": "torch.CudaTensor"},
    "nn.MaskedSelect": dict.fromkeys(("_maskIndices", "_maskIndexBuffer", "_gradMask"), "torch.CudaTensor"),
}
"""Empty tensors that classes make anew in their ``type``, when they go to a GPU; no later forward does."""


def _remake(root: Value, device: Device) -> None:
    """Work buffers of whole numbers, whose class depends on the device."""
    for _, edge, _ in walk(root, stop=_dont_cast):
        value = edge.value
        made = ON_GPU.get(value.typename) if isinstance(value, Object) else None
        if made is None or not isinstance(value.state, Table):
            continue
        if device == "cuda":
            value.state.update((name, Tensor(typename)) for name, typename in made.items())
        else:
            for name in made:
                value.state.pop(name, None)
            renew(value)


class _Due:
    """What each tensor and storage is to be, found before any of them is changed."""

    def __init__(
        self, root: Value, device: Device | None, dtype: DType | None, classes: Mapping[int, str], *, work: bool
    ) -> None:
        self.dtype = dtype
        self.classes = classes
        self.tensors: list[tuple[Tensor, str]] = []
        self.storages: dict[tuple[int, str], tuple[Storage, str]] = {}
        self.strings: list[tuple[Table, Any, str]] = []
        self.counts: set[tuple[int, str]] = set()
        bare: list[Storage] = []
        pinned = _inside_dont_cast(root)
        for path, edge, owner in walk(root, work=work):
            value = edge.value
            stays = id(value) in pinned or (isinstance(value, Object) and _dont_cast(value))
            how = (None if device == "cuda" else device, None) if stays else (device, dtype)
            if isinstance(value, Tensor):
                name = self._class_of(value, owner, edge, how)
                if name != value.typename:
                    self.tensors.append((value, name))
                if value.storage is not None:
                    key = id(value.storage), storage_of(name)
                    self.storages.setdefault(key, (value.storage, str(path or "")))
                    if edge.role is not Role.GRADIENT:  # of a net that was never trained, whatever was in memory
                        self.counts.add(key)
            elif isinstance(value, Storage):
                bare.append(value)
            elif (
                isinstance(value, Object) and isinstance(value.state, Table) and entry_for(value.typename, value.state)
            ):
                self._note_strings(value, how)
        seen = {number for number, _ in self.storages}
        for storage in bare:
            if id(storage) not in seen:
                to = None if device == "cuda" else device
                self.storages[id(storage), renamed(storage.typename, to, None)] = storage, ""

    def _class_of(
        self, tensor: Tensor, owner: Object | None, edge: Edge, how: tuple[Device | None, DType | None]
    ) -> str:
        device, dtype = how
        numeric = numeric_class(tensor.typename)
        whole = numeric is not None and numeric[0] not in FLOATING
        of_module = owner is not None and entry_for(owner.typename, owner.fields) is not None
        if device == "cuda" and whole and (not of_module or edge.role is Role.TRANSIENT):
            device = None
        name = renamed(tensor.typename, device, dtype)
        if owner is not None and self._keeps_float(owner) and edge.key not in ("output", "gradInput"):
            name = name.replace("Half", "" if "Cuda" in name else "Float")
        return name

    def _keeps_float(self, module: Object) -> bool:
        return self.dtype == "half" and self.classes.get(id(module), module.typename) in KEPT_AS_FLOAT

    def _note_strings(self, module: Object, how: tuple[Device | None, DType | None]) -> None:
        held = [each for each in (module.state, module.header) if isinstance(each, Table)]
        for table, key, text in [(each, *item) for each in held for item in each.items()]:
            if isinstance(text, str) and text.endswith("Tensor") and numeric_class(text) is not None:
                name = renamed(text, *how)
                if self._keeps_float(module):
                    name = name.replace("Half", "" if "Cuda" in name else "Float")
                self.strings.append((table, key, name))

    def check(self) -> None:
        """Whether every number that is cast has a value in the new type; gradients need not."""
        for key, (storage, path) in self.storages.items():
            to = element_type(key[1])
            if key not in self.counts:
                continue
            if to.kind != "f" or storage.data.dtype.kind != "f" or to.itemsize >= storage.data.dtype.itemsize:
                continue
            for piece in storage.data.pieces():
                lost = np.isfinite(piece) & ~np.isfinite(_cast(piece, to))
                if lost.any():
                    what = f"{float(piece[lost][0]):.6g} is too large for {self.dtype}"
                    raise ClearstateError(f"{path or 'the tensor'}: {what}; nothing was converted")

    def carry_out(self) -> dict[tuple[str, str], int]:
        made: dict[tuple[int, str], Storage] = {}
        first: set[int] = set()
        for (number, name), (storage, _) in self.storages.items():
            to = element_type(name)
            if to.kind == storage.data.dtype.kind == "f" and to.itemsize != storage.data.dtype.itemsize:
                data: Data = Cast(storage.data, to)
                data = Held(data.array()) if isinstance(storage.data, Held) else data
            else:
                data = storage.data
            made[number, name] = Storage(name, data, version=storage.version)
        for (number, name), new in list(made.items()):
            if number not in first:  # who holds the storage still does
                first.add(number)
                old = self.storages[number, name][0]
                old.typename, old.data = new.typename, new.data
                made[number, name] = old
        counts: Counter[tuple[str, str]] = Counter()
        for tensor, name in self.tensors:
            counts[tensor.typename, name] += 1
            tensor.typename = name
            if tensor.storage is not None:
                tensor.storage = made[id(tensor.storage), storage_of(name)]
        for table, key, name in self.strings:
            table[key] = name
        return dict(counts)


def _inside_dont_cast(root: Value) -> frozenset[int]:
    """What is met inside an ``nn.DontCast`` only."""
    within = [edge.value for _, edge, _ in walk(root) if isinstance(edge.value, Object) and _dont_cast(edge.value)]
    if not within:
        return frozenset()
    outside = {id(edge.value) for _, edge, _ in walk(root, stop=_dont_cast, work=True)}
    inside = {id(edge.value) for obj in within for _, edge, _ in walk(obj.get("modules"), work=True)}
    return frozenset(inside - outside)


def _dont_cast(obj: Object) -> bool:
    return obj.typename == "nn.DontCast"
