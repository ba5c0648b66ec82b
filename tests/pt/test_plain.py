"""``--plain``: what is written loads with ``torch.load(weights_only=True)``; what has no plain value is named."""

from __future__ import annotations

import _compat_pickle as compat
import argparse
import dataclasses
import datetime
import decimal
import enum
import pathlib
import uuid
from collections import Counter, OrderedDict, defaultdict, namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import _weights_only_unpickler as real

import clearstate as cs
from clearstate.formats.pt.pickle.weights_only import READ

from .programs import PROGRAMS, training
from .samples import SAMPLES, same, sharing
from .test_programs import equal

pytestmark = [
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning"),
]


class Colour(enum.Enum):
    """A name."""

    RED = "red"


class Level(enum.IntEnum):
    """A number with a name."""

    LOW = 3


@dataclasses.dataclass
class Config:
    """Settings."""

    width: int = 4
    name: str = "net"
    inner: Any = None


class Slotted:
    """An object without a ``__dict__``."""

    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = 1, [2]


Point = namedtuple("Point", "x y")


class Registry(dict):  # type: ignore[type-arg]
    """A dict of one's own."""


def plain(value: Any, folder: Path, keep: tuple[str, ...] = ()) -> tuple[Any, cs.Cleared]:
    """What a value is once it was cleared with ``plain``, as PyTorch reads it without running anything."""
    old, new = folder / "old.pt", folder / "new.pt"
    torch.save(value, old)
    report = cs.clear_file(old, new, plain=True, keep=keep)
    return torch.load(new, weights_only=True), report


def test_all_that_counts_as_plain_is_what_this_pytorch_reads() -> None:
    renamed = {name.replace("__builtin__.", f"{compat.IMPORT_MAPPING['__builtin__']}.") for name in READ}
    assert renamed - real._get_allowed_globals().keys() == set()


REFUSED = {
    "numpy": r"numpy\._core\.multiarray\._reconstruct \(record\)",
    "objects": r"__builtin__\.slice \(slice\)",
    "plain values": r"a number of 2101 bits",
}
"""Samples with something that has no plain value: what the refusal says of it."""


@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in (*REFUSED, "module", "subclass")])
def test_what_has_no_objects_in_it_is_the_same_and_loads_with_weights_only(name: str, tmp_path: Path) -> None:
    made, _ = plain(SAMPLES[name](), tmp_path, ("slack",))
    value = torch.load(tmp_path / "old.pt", weights_only=False)
    if name == "state dicts":
        del value["optimizer"]
    same(value, made)
    assert sharing(value) == sharing(made)


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_plain_value_is_named_with_its_path_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(cs.ClearstateError, match=REFUSED[name]):
        plain(SAMPLES[name](), tmp_path)
    assert not (tmp_path / "new.pt").exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_rest_of_those_samples_is_plain_in_every_protocol(protocol: int, tmp_path: Path) -> None:
    value = {name: SAMPLES[name]() for name in REFUSED}
    torch.save(value, tmp_path / "old.pt", pickle_protocol=protocol)
    drop = ["numpy.record", "objects.slice", "plain values.numbers"]
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", plain=True, drop=drop)
    made = torch.load(tmp_path / "new.pt", weights_only=True)
    assert made["plain values"]["sets"] == [{1, 2}, {"a", "b"}, set()]
    assert made["plain values"]["texts"] == value["plain values"]["texts"]
    assert made["plain values"]["shared"][0] is made["plain values"]["shared"][1]
    assert torch.equal(made["numpy"]["array"], torch.from_numpy(value["numpy"]["array"]))
    assert made["numpy"]["scalar"] == 1.5
    assert made["numpy"]["flag"] is True
    assert made["numpy"]["texts"] == ["a", "bcd"]
    assert made["numpy"]["dtype"] == "int16"
    objects = made["objects"]
    assert objects["space"] == {"lr": 0.1, "path": "a/b"}
    assert objects["default"].keys() == {"a"}
    assert torch.equal(objects["default"]["a"][0], torch.ones(1))
    assert objects["queue"] == [1, 2]
    assert objects["counter"] == Counter("abca")
    assert objects["time"] == "2020-01-02T03:04:00"
    assert objects["complex"] == 1 + 2j
    assert objects["range"] == [0, 1, 2]
    assert objects["class"] is OrderedDict
    assert objects["function"] == "torch.nn.functional.relu"
    assert objects["torch"] == value["objects"]["torch"]
    assert torch.equal(objects["state"][1], torch.from_numpy(value["objects"]["state"][1]))


def test_a_module_becomes_its_state_dict(tmp_path: Path) -> None:
    net = training().net
    made, report = plain({"net": net, "epoch": 3}, tmp_path)
    equal(dict(net.state_dict()), dict(made["net"]))
    assert [memory for _, memory in sharing(net.state_dict())] == [memory for _, memory in sharing(made["net"])]
    assert any("tests.pt.programs.Net" in text for text in report.done)
    made, _ = plain(net, tmp_path)
    type(net)().load_state_dict(made)


def test_a_subclass_of_tensors_becomes_a_tensor(tmp_path: Path) -> None:
    value = SAMPLES["subclass"]()
    made, _ = plain(value, tmp_path)
    assert [type(tensor) for tensor in made] == [torch.Tensor, torch.Tensor]
    assert [tensor.tolist() for tensor in made] == [tensor.tolist() for tensor in value]
    assert sharing(value) == sharing(made)


OBJECTS: dict[str, tuple[Any, Any]] = {
    "namespace": (argparse.Namespace(lr=0.1, inner=argparse.Namespace(a=[1])), {"lr": 0.1, "inner": {"a": [1]}}),
    "simple namespace": (SimpleNamespace(a=1, b=None), {"a": 1, "b": None}),
    "OmegaConf": (
        OmegaConf.create({"model": {"layers": [1, 2.5, "x", None]}, "lr": 0.1, "on": True, "path": "${lr}"}),
        {"model": {"layers": [1, 2.5, "x", None]}, "lr": 0.1, "on": True, "path": "${lr}"},
    ),
    "a list of OmegaConf's": (OmegaConf.create([1, {"a": None}]), [1, {"a": None}]),
    "structured OmegaConf": (OmegaConf.structured(Config(width=8)), {"width": 8, "name": "net", "inner": None}),
    "dataclass": (Config(inner=Config(3)), {"width": 4, "name": "net", "inner": {**vars(Config(3))}}),
    "enum": ({"a": Colour.RED, "b": Level.LOW}, {"a": "red", "b": 3}),
    "enum as a key": ({Colour.RED: 1, (Level.LOW, "x"): 2}, {"red": 1, (3, "x"): 2}),
    "slots": (Slotted(), {"a": 1, "b": [2]}),
    "named tuple": (Point(1, [2]), (1, [2])),
    "a dict of one's own": (Registry(a=Registry(b=1)), {"a": {"b": 1}}),
    "path": ([pathlib.Path("/a/b.c"), pathlib.PurePosixPath()], ["/a/b.c", "."]),
    "path of Windows": (pathlib.PureWindowsPath("C:/a/b"), "C:\\a\\b"),
    "date": (datetime.date(2020, 1, 2), "2020-01-02"),
    "duration": (datetime.timedelta(minutes=1), 60.0),
    "default dict": (defaultdict(int, a=1), {"a": 1}),
    "ordered": (OrderedDict(b=1, a=Colour.RED), OrderedDict(b=1, a="red")),
    "numpy numbers": (
        [np.float64(1.5), np.int64(-3), np.uint8(255), np.bool_(False), np.float16(0.5), np.complex64(1j)],
        [1.5, -3, 255, False, 0.5, 1j],
    ),
    "numpy number as a key": ({np.int64(3): "a", (np.int32(1), "b"): 2}, {3: "a", (1, "b"): 2}),
    "sets": ([{Colour.RED}, frozenset([1, (2, 3)])], [{"red"}, {1, (2, 3)}]),
    "uuid": (uuid.UUID(int=5), {"int": 5}),
    "decimal": (decimal.Decimal("1.5"), "1.5"),
    "text of numpy": (np.str_("x"), "x"),
    "device and type": ([torch.device("cuda:1"), torch.float16], [torch.device("cuda:1"), torch.float16]),
}  # fmt: skip
"""An object, and the plain value that stands for it."""


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_becomes_a_plain_value(name: str, protocol: int, tmp_path: Path) -> None:
    value, expected = OBJECTS[name]
    torch.save({"w": torch.ones(2), "x": value}, tmp_path / "old.pt", pickle_protocol=protocol)
    cs.clear_file(tmp_path / "old.pt", tmp_path / "plain.pt", plain=True)
    made = torch.load(tmp_path / "plain.pt", weights_only=True)["x"]
    assert made == expected
    assert type(made) is type(expected)
    cs.clear_file(tmp_path / "old.pt", tmp_path / "same.pt")
    assert torch.load(tmp_path / "same.pt", weights_only=False).keys() == {"w", "x"}, "and without --plain it stays"


@pytest.mark.parametrize(
    "dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8", "c16", ">f4", ">i2"]
)
def test_an_array_becomes_a_tensor_of_its_type(dtype: str, tmp_path: Path) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    made, _ = plain([array, array.T, array[:0], np.array(3, dtype)], tmp_path)
    little = array.astype(array.dtype.newbyteorder("="))
    for tensor, expected in zip(made, (little, little.T, little[:0], np.array(3, little.dtype)), strict=True):
        assert torch.equal(tensor, torch.from_numpy(np.ascontiguousarray(expected).reshape(expected.shape)))


def test_values_that_were_one_are_one(tmp_path: Path) -> None:
    space = argparse.Namespace(a=[1])
    space.me = space
    made, _ = plain([space, space, (space.a, {"k": space})], tmp_path)
    assert made[0] is made[1] is made[0]["me"] is made[2][1]["k"]
    assert made[2][0] is made[0]["a"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_checkpoints_of_every_program_become_plain(name: str, tmp_path: Path) -> None:
    value = PROGRAMS[name].save(training())
    if name == "Ultralytics":
        torch.save(value, tmp_path / "old.pt")
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", plain=True, use="ema")
        equal(value["ema"].state_dict(), torch.load(tmp_path / "new.pt", weights_only=True)["model"])
        return
    made, report = plain(value, tmp_path)
    for key in ("model", "state_dict", "module", "weights"):
        if isinstance(value, dict) and key in value:
            equal(dict(value[key]), dict(made[key]))
    assert not any("weights_only=True refuses" in note for note in report.after.notes)
