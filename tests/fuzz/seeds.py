"""Whole files of every format, small enough to be changed a hundred thousand times."""

from __future__ import annotations

import io
import json
import pickle
import random
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import safetensors.torch
import torch

from clearstate.formats import t7
from tests.pt.programs import PROGRAMS, training
from tests.pt.samples import SAMPLES
from tests.pt.test_tar import members, tar
from tests.recordings import RECORDED, short

LARGEST = 6000
"""Bytes of a recording of Torch7 that is still changed."""

CASES = 160
"""How many of the recordings of Torch7."""


@dataclass(frozen=True)
class Seed:
    """A file, or an index and its shards.

    Attributes:
        name: what the recipes of its mutants call it.
        form: ``t7``, ``zip``, ``stream``, ``pickle``, ``tar``, ``safetensors`` or ``index``.
        parts: what it is put together from, by name; of most forms one part, the file.
        main: the name of the file that is opened.
    """

    name: str
    form: str
    parts: dict[str, bytes]
    main: str
    files: dict[str, bytes] = field(default_factory=dict)

    def joined(self, parts: dict[str, bytes]) -> dict[str, bytes]:
        """The files that these parts make: checksums and lengths of the container are right."""
        if self.form == "zip":
            return {self.main: _zipped(parts)}
        if self.form == "tar":
            return {self.main: tar(parts)}
        if self.form == "safetensors":
            return {self.main: len(parts["header"]).to_bytes(8, "little") + parts["header"] + parts["data"]}
        return dict(parts)


def _zipped(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in parts.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def _torch7() -> Iterator[tuple[str, Callable[[], Seed]]]:
    paths = [path for path in RECORDED if path.stat().st_size <= LARGEST]
    others = [path for path in paths if "formats" not in path.parts and path.name != "io.t7"]
    chosen = random.Random(7).sample(others, CASES)
    for path in [path for path in paths if "formats" in path.parts] + sorted(chosen):
        name = f"t7:{short(path)}"
        yield name, lambda path=path, name=name: Seed(name, "t7", {"x.t7": path.read_bytes()}, "x.t7")  # type: ignore[misc]
    for layout in (t7.Layout(), t7.Layout("ascii"), t7.Layout(long_size=4), t7.Layout(byteorder="big")):
        for turn in range(6):
            name = f"t7:views, {layout}, {turn}"
            yield name, lambda layout=layout, name=name: Seed(name, "t7", {"x.t7": _views(layout)}, "x.t7")  # type: ignore[misc]
    for layout in (t7.Layout(), t7.Layout("ascii"), t7.Layout(byteorder="big")):
        for turn in range(3):
            name = f"t7:large, {layout}, {turn}"
            yield name, lambda layout=layout, name=name: Seed(name, "t7", {"x.t7": _large(layout)}, "x.t7")  # type: ignore[misc]


def _views(layout: t7.Layout) -> bytes:
    """Tensors that overlap, that have steps, dimensions of one element, or nothing."""
    storage = t7.Storage.of("torch.DoubleStorage", range(24))
    fields = {
        "weight": ((3, 4), (4, 1), 0),
        "bias": ((4,), (1,), 4),
        "gradWeight": ((1, 4, 1), (4, 6, 1), 1),
        "running_mean": ((1,), (1,), 23),
        "output": ((2, 2), (12, 3), 2),
        "other": ((5, 2), (0, 1), 7),
        "gradBias": ((4, 2), (0, 0), 7),
    }
    views = {name: t7.Tensor("torch.DoubleTensor", *how, storage) for name, how in fields.items()}
    alone = {"one": t7.Tensor.of(np.ones((1, 1), "f4")), "no": t7.Tensor("torch.FloatTensor")}
    alone["mask"] = t7.Tensor("torch.DoubleTensor", (3, 2), (0, 1), 0, t7.Storage.of("torch.DoubleStorage", [1, 2]))
    module = t7.Object("nn.Linear", t7.Table({**views, **alone, "_type": "torch.DoubleTensor", "train": True}))
    repeated = t7.Table(weight=alone["mask"], bias=alone["mask"], gradWeight=alone["mask"], running_mean=alone["mask"])
    modules = t7.Table.of([module, t7.Object("nn.SpatialBatchNormalization", repeated)])
    net = t7.Object("nn.Sequential", t7.Table(modules=modules, numbers=t7.Table.of([1.0, 2.0, 1e9])))
    return t7.dumps(net, layout)


def _large(layout: t7.Layout) -> bytes:
    """More bytes than are read at once: the file is mapped. Views see every other element, columns, and each other."""
    whole, part = (t7.Storage.of("torch.FloatStorage", np.arange(n)) for n in (30_000, 4000))
    fields = {
        "weight": t7.Tensor("torch.FloatTensor", (100, 90), (300, 2), 5, whole),
        "bias": t7.Tensor("torch.FloatTensor", (9000,), (3,), 1, whole),
        "gradWeight": t7.Tensor("torch.FloatTensor", (1000, 3), (4, 1), 0, part),
        "output": t7.Tensor.of(np.ones((40, 50), "f4")),
    }
    return t7.dumps(t7.Object("nn.Linear", t7.Table(fields)), layout)


def _large_model() -> Any:
    whole, part = torch.arange(30_000.0), torch.arange(4000.0)
    net = {"every.other": whole[::2], "rows": whole.view(100, 300)[:, 5:90], "columns": part.view(1000, 4)[:, :3]}
    return {"net": net, "optimizer": {"state": {0: {"exp_avg": torch.ones(5000)}}, "param_groups": [{"params": [0]}]}}


def _saved(value: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(value, out, **how)
    return out.getvalue()


def _zip(name: str, value: Any) -> Seed:
    with zipfile.ZipFile(io.BytesIO(_saved(value))) as archive:
        return Seed(name, "zip", {each: archive.read(each) for each in archive.namelist()}, "x.pt")


def _values() -> dict[str, Callable[[], Any]]:
    most = ["views", "ties", "parameters", "sparse", "subclass", "quantized", "numpy", "objects", "state dicts"]
    most += ["module", "meta", "storages", "tensor", "torch.bfloat16", "torch.float8_e4m3fn", "torch.uint16"]
    programs = {name: (lambda each=program: each.save(training())) for name, program in PROGRAMS.items()}
    return {**{name: SAMPLES[name] for name in most}, **programs, "repeated": _repeated, "large": _large_model}


def _repeated() -> Any:
    one, row = torch.ones(1), torch.arange(4.0)
    model = {"a": one.expand(3, 2), "b": row.expand(5, 4), "c": row[1:3], "d": row.as_strided((3, 2), (1, 1))}
    return {"model": model, "model_ema": {name: value.clone() for name, value in model.items()}, "epoch": 2}


def _jit() -> Seed:
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.jit.trace(torch.nn.Linear(3, 2), torch.ones(1, 3))  # type: ignore[no-untyped-call]
        torch.jit.save(program, out)
    with zipfile.ZipFile(out) as archive:
        return Seed("zip:TorchScript", "zip", {each: archive.read(each) for each in archive.namelist()}, "x.pt")


PLAIN: dict[str, Any] = {
    "names": {"names": ["a"] * 9, "opt": {"state": {1: 2}, "param_groups": []}, "n": 2**40},
    "arrays": {"w": np.arange(6.0).reshape(2, 3), "b": np.float32(2), "when": np.array(["a", "bc"])},
    "tensors": {"w": torch.arange(6.0).view(2, 3), "n": torch.tensor(3), "half": torch.ones(2).half()},
}


def _tensors(kind: str) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    if kind == "types":
        types = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
        return {f"t.{i}": torch.ones(2, i + 1).to(dtype) for i, dtype in enumerate(types)}
    if kind == "large":
        return {"a": torch.arange(30_000.0), "b": torch.ones(300, 40).half()}
    if kind == "odd":
        return {"empty": torch.ones(0, 3), "number": torch.tensor(3), "long": torch.arange(9.0), "f8": _f8()}
    return training().net.state_dict()


def _f8() -> torch.Tensor:
    return torch.ones(3, 2).to(torch.float8_e4m3fn)


def _safetensors(kind: str) -> Seed:
    tensors = {name: tensor.clone() for name, tensor in _tensors(kind).items()}
    data = safetensors.torch.save(tensors, {"format": "pt", "tied": "long"})
    length = 8 + int.from_bytes(data[:8], "little")
    parts = {"header": data[8:length], "data": data[length:]}
    return Seed(f"safetensors:{kind}", "safetensors", parts, "x.safetensors")


def _sharded(kind: str) -> Seed:
    tensors = list(_tensors("net").items())
    end = "safetensors" if kind == "safetensors" else "bin"
    stem = "model" if kind == "safetensors" else "pytorch_model"
    files: dict[str, bytes] = {}
    places: dict[str, str] = {}
    for i in range(2):
        part = {name: tensor.clone() for name, tensor in tensors[i::2]}
        name = f"{stem}-0000{i + 1}-of-00002.{end}"
        files[name] = safetensors.torch.save(part, {"format": "pt"}) if end == "safetensors" else _saved(part)
        places.update(dict.fromkeys(part, name))
    index = {"metadata": {"total_size": 52}, "weight_map": places}
    main = f"{stem}.{end}.index.json"
    return Seed(f"index:{kind}", "index", {**files, main: json.dumps(index, indent=1).encode()}, main)


def _makers() -> Iterator[tuple[str, Callable[[], Seed]]]:
    yield from _torch7()
    for word, value in _values().items():
        yield f"zip:{word}", lambda word=word, value=value: _zip(f"zip:{word}", value())  # type: ignore[misc]
        yield (
            f"stream:{word}",
            lambda word=word, value=value: Seed(  # type: ignore[misc]
                f"stream:{word}", "stream", {"x.pt": _saved(value(), _use_new_zipfile_serialization=False)}, "x.pt"
            ),
        )
    yield "zip:TorchScript", _jit
    for word, value in PLAIN.items():
        for protocol in (0, 2, 4, 5):
            name = f"pickle:{word}, protocol {protocol}"
            yield (
                name,
                lambda name=name, value=value, protocol=protocol: Seed(  # type: ignore[misc]
                    name, "pickle", {"x.pkl": pickle.dumps(value, protocol)}, "x.pkl"
                ),
            )
    yield "tar:all", lambda: Seed("tar:all", "tar", members(), "x.pt")
    for kind in ("types", "odd", "net", "large"):
        yield f"safetensors:{kind}", lambda kind=kind: _safetensors(kind)  # type: ignore[misc]
    for kind in ("safetensors", "pickled"):
        yield f"index:{kind}", lambda kind=kind: _sharded(kind)  # type: ignore[misc]


MAKERS: dict[str, Callable[[], Seed]] = dict(_makers())
"""What makes each seed, by its name."""

NAMES: dict[str, list[str]] = {}
"""The names of the seeds of each form."""
for _name in MAKERS:
    NAMES.setdefault(_name.partition(":")[0], []).append(_name)

WEIGHTS = {"t7": 30, "zip": 22, "stream": 12, "pickle": 8, "tar": 8, "safetensors": 12, "index": 8}
"""How often each form is chosen, in a hundred."""


@cache
def seed_of(name: str) -> Seed:
    """The seed of this name, with its files."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of what it has only begun and of what it is to drop
        made = MAKERS[name]()
    return Seed(made.name, made.form, made.parts, made.main, made.joined(made.parts))
