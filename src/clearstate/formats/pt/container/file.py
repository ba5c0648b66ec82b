"""An opened checkpoint: the value it holds, its storages, and what is needed to write it in the same layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ....errors import FormatError
from ...data import Data
from ...geometry import MOST_DIMENSIONS, by, misfit, negative
from ..pickle.brief import brief
from ..pickle.stubs import DTYPE_BYTES, Global, Storage, Stub, Tensor, Value, view_of

REBUILD = frozenset(("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor"))
"""The functions of ``torch._utils`` that make a tensor of a storage, an offset, sizes and strides."""


@dataclass(slots=True)
class File:
    """An opened checkpoint.

    Attributes:
        path: where it is.
        kind: what it is, in words.
        layout: ``zip``, ``legacy``, ``tar``, ``pickle``, ``safetensors`` or ``sharded``.
        root: the value it holds.
        size: its bytes.
        protocol: of its pickle.
        storages: those of the file, in its order.
        records: what else a zip file holds, by name.
        metadata: the texts a safetensors file holds.
        sources: the source code of classes that a legacy file holds: a file's name and its text.

    >>> import os, tempfile
    >>> import torch
    >>> from clearstate.formats import pt
    >>> path = os.path.join(tempfile.mkdtemp(), "net.pt")
    >>> torch.save({"model": {"weight": torch.ones(2)}, "rng_state": torch.zeros(8)}, path)
    >>> file = pt.open_zip(path)
    >>> type(file).__name__, file.layout, list(file.root)
    ('File', 'zip', ['model', 'rng_state'])
    """

    path: str
    kind: str
    layout: str
    root: Value
    size: int
    protocol: int = 2
    storages: list[Storage] = field(default_factory=list)
    records: Mapping[str, Data] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[Global, tuple[Value, Value]] = field(default_factory=dict)

    @property
    def is_program(self) -> bool:
        """Whether it is a TorchScript program: its code is there, too, and says what its modules hold."""
        return "constants.pkl" in self.records

    @property
    def flat(self) -> bool:
        """Whether it holds tensors by name and nothing else."""
        return self.layout == "safetensors"


def tensor_made(stub: Stub) -> Value:
    """The tensor that a call of ``torch._utils`` rebuilds; any other stub as it is.

    One that sees a part of a storage that goes by a name of its own sees that storage itself.

    Raises:
        FormatError: it would see elements outside its storage.
    """
    function, args = stub.function, stub.args
    if not (isinstance(function, Global) and function.module == "torch._utils" and function.name in REBUILD):
        return stub
    if len(args) < 4 or not isinstance(args[0], Storage):
        return stub
    storage, offset, size, stride = args[:4]
    if not _numbers(size) or not _numbers(stride) or len(size) != len(stride) or type(offset) is not int:
        raise FormatError("an offset, sizes and strides of a tensor", brief(args[1:4]))
    tensor = Tensor(storage, offset, size, stride, function, tuple(args[4:]))
    if tensor.dtype not in DTYPE_BYTES:
        raise FormatError("a tensor of a type that PyTorch writes", tensor.dtype)
    if storage.data is not None and tensor.numel:
        first, stop = view_of(tensor).extent
        count = storage.nbytes // tensor.itemsize
        if first < 0 or stop > count:
            what = f"a tensor of {by(size)} that sees elements {first} to {stop - 1}"
            raise FormatError(what, f"a storage of {count}")
    if wrong := misfit(size, stride, offset, tensor.itemsize) or negative(stride, len(size)):
        raise FormatError(wrong.expected, wrong.found)
    if storage.view is not None:
        tensor.storage, first = storage.view
        tensor.offset += first
    return tensor


def _numbers(values: Value) -> bool:
    return (
        isinstance(values, tuple)
        and all(type(n) is int and abs(n) < 2**62 for n in values)
        and len(values) <= MOST_DIMENSIONS
    )
