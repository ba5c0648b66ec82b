"""Object graphs for property tests: every kind of value, shared and nested at random."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from clearstate.formats.t7 import Boolean, Function, Layout, Object, Storage, Table, Tensor
from clearstate.formats.t7.codec.objects import ELEMENT, element_type, storage_of

PLAIN = (
    st.none()
    | st.booleans()
    | st.floats(allow_nan=True)
    | st.integers(-(2**53), 2**53).map(float)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
KEYS = (
    st.text(max_size=8)
    | st.floats(allow_nan=False)
    | st.integers(-5, 40).map(float)
    | st.sampled_from(Boolean)
    | st.binary(max_size=3).map(lambda b: b + b"\xff")  # one string must not be two keys, as str and as bytes
)
TENSOR_CLASSES = [f"torch.{cuda}{name}Tensor" for cuda in ("", "Cuda") for name in ELEMENT] + ["torch.CudaTensor"]
VERSIONS = st.none() | st.integers(0, 12)
LAYOUTS = st.builds(
    Layout,
    mode=st.sampled_from(["binary", "binary", "ascii"]),
    long_size=st.sampled_from([8, 4]),
    byteorder=st.sampled_from(["little", "big"]),
)


@st.composite
def storages(draw: st.DrawFn, typename: str | None = None) -> Storage:
    name = typename or storage_of(draw(st.sampled_from(TENSOR_CLASSES)))
    dtype = element_type(name)
    count = draw(st.integers(0, 12))
    if dtype.kind == "f":
        values: Any = draw(st.lists(st.floats(width=32), min_size=count, max_size=count))
    else:
        low, high = max(np.iinfo(dtype).min, -(2**31)), min(np.iinfo(dtype).max, 2**31 - 1)
        values = draw(st.lists(st.integers(low, high), min_size=count, max_size=count))
    with np.errstate(over="ignore"):
        storage = Storage.of(name, np.array(values, "f8" if dtype.kind == "f" else "i8"))
    storage.version = draw(VERSIONS)
    return storage


@st.composite
def tensors(draw: st.DrawFn, storage: Storage | None = None) -> Tensor:
    """A tensor of any geometry that lies within its storage; expanded and overlapping ones included."""
    if storage is None and draw(st.booleans()):
        return Tensor(draw(st.sampled_from(TENSOR_CLASSES)), version=draw(VERSIONS))
    if storage is None:
        storage = draw(storages())
    name = storage.typename.removesuffix("Storage") + "Tensor"
    room = len(storage)
    if not room:
        return Tensor(name, storage=storage)
    offset = draw(st.integers(0, room - 1))
    left = room - 1 - offset
    size, stride = [], []
    for _ in range(draw(st.integers(1, 3))):
        step = draw(st.integers(0, max(left, 1)))
        count = draw(st.integers(1, 3 if step == 0 else 1 + left // step))
        left -= (count - 1) * step
        size.append(count)
        stride.append(step)
    return Tensor(name, size, stride, offset, storage, version=draw(VERSIONS))


@st.composite
def graphs(draw: st.DrawFn, cyclic: bool = True) -> Any:
    """A value with everything in it that a Torch7 file can hold."""
    made: list[Any] = [
        *draw(st.lists(storages(), max_size=2)),
        *draw(st.lists(st.binary(max_size=8).map(Function), max_size=1)),
    ]
    made += [draw(tensors(s)) for s in made if isinstance(s, Storage)]
    made += draw(st.lists(tensors(), max_size=2))
    for _ in range(draw(st.integers(0, 5))):
        values: st.SearchStrategy[Any] = PLAIN | st.sampled_from(made) if made else PLAIN
        table = Table(draw(st.lists(st.tuples(KEYS, values), max_size=5)))
        if draw(st.booleans()) and made:
            table[draw(st.sampled_from(made))] = draw(PLAIN)
        made.append(table)
        kind = draw(st.sampled_from(["table", "object", "unheard", "vec", "hash", "function", "generator", "headed"]))
        if kind == "object":
            made.append(Object(draw(st.sampled_from(["nn.Linear", "nn.Sequential"])), table, version=draw(VERSIONS)))
        elif kind == "unheard":
            made.append(Object("my.Class é", draw(PLAIN), version=draw(VERSIONS)))
        elif kind == "vec":
            made.append(Object("tds.Vec", [draw(PLAIN), table], version=0))
        elif kind == "hash":
            made.append(Object("tds.Hash", Table({"a": table}), version=0))
        elif kind == "function":
            made.append(Function(b"\x1bLJ\x02", table, kind=draw(st.sampled_from([7, 8]))))
            made.append(Table(old=Function(b"\x1bLJ", table, kind=6)))
        elif kind == "generator":
            noise = draw(st.binary(min_size=8, max_size=8))
            # its counters can be true in either byte order, which tells it from one of a machine with 4-byte long
            made.append(Object("torch.Generator", noise + bytes(16) + noise * 628))
        elif kind == "headed":
            made.append(Object("nn.GPU", table, header=Table.of(["torch.CudaTensor", 1.0])))
    tables = [t for t in made if isinstance(t, Table)]
    if cyclic and tables and draw(st.booleans()):
        tables[0]["itself"] = made[-1]
    return draw(st.sampled_from(made)) if made else draw(PLAIN)
