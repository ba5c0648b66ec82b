"""Values of every sort that PyTorch writes, made by PyTorch itself, and what it means that two of them are the same."""

from __future__ import annotations

import argparse
import datetime
import pathlib
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

NAMES = """float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu
float4_e2m1fn_x2 complex128 complex64 complex32 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool bits8 bits16
bits1x8 bits2x4 bits4x2"""
DTYPES = [getattr(torch, name) for name in NAMES.split() if hasattr(torch, name)]


class Net(torch.nn.Module):
    """A module that is pickled whole."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.tied = torch.nn.Linear(3, 4, bias=False)
        self.tied.weight = self.first.weight
        self.register_buffer("table", torch.arange(6.0)[2:4])
        self.config = {"sizes": (3, 4), "when": datetime.date(2020, 1, 2)}


class Named(torch.Tensor):
    """A subclass of tensors with an attribute of its own."""


def typed(dtype: torch.dtype) -> torch.Tensor:
    """Four elements or more of a type, their bytes 1, 2, 3, ..."""
    raw = torch.arange(1, 1 + 4 * dtype.itemsize, dtype=torch.uint8)
    return (raw % 2).bool() if dtype is torch.bool else raw.view(dtype)


def _of_type(dtype: torch.dtype) -> Any:
    tensor = typed(dtype)
    return {"x": tensor, "part": tensor[1:3], "again": tensor}


def _views() -> Any:
    whole = torch.arange(24.0)
    return {
        "part": whole[3:9],
        "transposed": whole.view(4, 6).t(),
        "expanded": whole[:3].unsqueeze(1).expand(3, 5),
        "steps": whole[1::5],
        "number": whole[7],
        "empty": whole[:0],
        "other": torch.ones(2, 0, 3),
        "windows": whole.as_strided((5, 8), (4, 1)),
    }


def _ties() -> Any:
    shared = torch.nn.Parameter(torch.randn(3, 2))
    items = [shared, shared.data, shared]
    return {"a": shared, "b": shared, "list": items, "again": items, "flat": shared.detach().view(-1)[2:]}


def _parameters() -> Any:
    frozen = torch.nn.Parameter(torch.randn(2), requires_grad=False)
    noted = torch.nn.Parameter(torch.randn(2))
    noted.sharded = [1, "x"]  # type: ignore[attr-defined]
    return [frozen, noted, torch.nn.Buffer(torch.ones(1)), torch.randn(2, requires_grad=True)]


def _sparse() -> Any:
    return {
        "coo": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "csc": torch.eye(3).to_sparse_csc(),
        "bsr": torch.eye(4).to_sparse_bsr((2, 2)),
    }


def _subclass() -> Any:
    named = torch.randn(3).as_subclass(Named)
    named.note = {"name": "x"}  # type: ignore[attr-defined]
    return [named, named[1:]]


def _quantized() -> Any:
    numbers = torch.randn(4, 3)
    return {
        "whole": torch.quantize_per_tensor(numbers, 0.1, 3, torch.quint8),
        "signed": torch.quantize_per_tensor(numbers, 0.1, 0, torch.qint8),
        "wide": torch.quantize_per_tensor(numbers, 0.1, 0, torch.qint32),
        "channels": torch.quantize_per_channel(numbers, torch.rand(4) + 0.1, torch.zeros(4).long(), 0, torch.qint8),
    }


def _numpy() -> Any:
    return {
        "array": np.arange(12.0).reshape(3, 4).T,
        "scalar": np.float32(1.5),
        "flag": np.bool_(True),
        "texts": np.array(["a", "bcd"]),
        "record": np.array([(1, 2.0)], dtype=[("a", "<i4"), ("b", "<f8")]),
        "dtype": np.dtype("int16"),
        "bytes": np.frombuffer(bytes(range(256)), "u1"),
    }


def _plain() -> Any:
    shared = [1, (2, "x")]
    return {
        "numbers": [0, -1, 255, 256, 65536, -(2**31), 2**31, 2**70, -(2**2100), 1.5, float("inf"), True, None],
        "texts": ["", "ü", "\ud800", "x" * 300, b"", bytes(range(256)), bytearray(b"xyz")],
        "sets": [{1, 2}, frozenset("ab"), set()],
        "shared": [shared, shared],
        1: {(1, "a"): None},
        "many": list(range(2500)),
        "entries": {i: str(i) for i in range(2500)},
    }


def _objects() -> Any:
    counts: Any = defaultdict(list)
    counts["a"].append(torch.ones(1))
    return {
        "space": argparse.Namespace(lr=0.1, path=pathlib.PurePosixPath("a/b")),
        "default": counts,
        "queue": deque([1, 2], 5),
        "counter": Counter("abca"),
        "time": datetime.datetime(2020, 1, 2, 3, 4),
        "complex": 1 + 2j,
        "slice": slice(1, None),
        "range": range(3),
        "class": OrderedDict,
        "function": torch.nn.functional.relu,
        "torch": [torch.Size([1, 2]), torch.bfloat16, torch.device("cuda:1"), torch.strided, torch.float8_e5m2],
        "state": np.random.RandomState(0).get_state(),
    }


def _state() -> Any:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1))
    net.first(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return {"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}


def _module() -> Any:
    return Net()


def _no_data() -> Any:
    return {"w": torch.empty(2, 3, device="meta"), "p": torch.nn.Parameter(torch.empty(4, device="meta"))}


SAMPLES: dict[str, Callable[[], Any]] = {
    "views": _views,
    "ties": _ties,
    "parameters": _parameters,
    "sparse": _sparse,
    "subclass": _subclass,
    "quantized": _quantized,
    "numpy": _numpy,
    "plain values": _plain,
    "objects": _objects,
    "state dicts": _state,
    "module": _module,
    "meta": _no_data,
    "storages": lambda: [torch.arange(5.0).untyped_storage(), torch.zeros(3, dtype=torch.uint8).untyped_storage()],
    "nothing": lambda: None,
    "tensor": lambda: torch.arange(3),
    **{str(dtype): partial(_of_type, dtype) for dtype in DTYPES},
}
"""What is saved, by a word for it."""


def same(a: Any, b: Any, path: str = "") -> None:
    """Fails where two values differ in a type, an element's bits, sizes, strides, or in what is put into an object."""
    assert type(a) is type(b), path
    if isinstance(a, torch.Tensor):
        _same_tensor(a, b, path)
    elif isinstance(a, torch.storage.TypedStorage):
        assert (a.dtype, raw(a._untyped_storage)) == (b.dtype, raw(b._untyped_storage)), path
    elif isinstance(a, torch.UntypedStorage):
        assert raw(a) == raw(b), path
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape, a.strides, a.tobytes()) == (b.dtype, b.shape, b.strides, b.tobytes()), path
    elif isinstance(a, dict):
        assert list(a) == list(b), path
        for key in a:
            same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list | tuple | deque):
        assert len(a) == len(b), path
        for i, (one, other) in enumerate(zip(a, b, strict=True)):
            same(one, other, f"{path}[{i}]")
    elif not isinstance(a, torch.nn.Module | argparse.Namespace):
        assert a == b, path
    if (hasattr(a, "__dict__") and not isinstance(a, type) and not callable(a)) or isinstance(a, torch.nn.Module):
        same(vars(a), vars(b), f"{path}<dict>")


def _same_tensor(a: torch.Tensor, b: torch.Tensor, path: str) -> None:
    facts = [(t.dtype, t.layout, t.device, tuple(t.shape), t.requires_grad, t.is_quantized) for t in (a, b)]
    assert facts[0] == facts[1], path
    if a.is_quantized:
        assert str(a.qscheme()) == str(b.qscheme()), path
        assert torch.equal(a.dequantize(), b.dequantize()), path
    if a.layout is not torch.strided:
        assert torch.equal(a.to_dense(), b.to_dense()), path
    elif a.device.type != "meta":
        assert (a.stride(), a.storage_offset()) == (b.stride(), b.storage_offset()), path
        assert raw(a.untyped_storage()) == raw(b.untyped_storage()), path


def raw(storage: torch.UntypedStorage) -> bytes:
    """All bytes of a storage."""
    return bytes(torch.empty(0, dtype=torch.uint8).set_(storage).tolist())


def sharing(value: Any) -> list[tuple[int, int]]:
    """For each tensor in a value, in order: which of them is the same object, and which has the same storage."""
    objects: dict[int, int] = {}
    memories: dict[int, int] = {}
    found = list(_tensors(value, set()))
    return [
        (
            objects.setdefault(id(tensor), len(objects)),
            memories.setdefault(tensor.untyped_storage().data_ptr() if tensor.numel() else 0, len(memories)),
        )
        for tensor in found
        if tensor.layout is torch.strided
    ]


def _tensors(value: Any, met: set[int]) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
        return
    if id(value) in met:
        return
    met.add(id(value))
    if isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, met)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item, met)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        yield from _tensors(vars(value), met)
