"""``clearstate inspect``, ``clear`` and ``verify`` on files of PyTorch, as a person runs them."""

from __future__ import annotations

import json
import os
import pickle
import struct
import time
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from tests.pt.programs import PROGRAMS, Net, training
from tests.pt.test_programs import equal, read

from .conftest import Command


@pytest.fixture
def net_pt(here: Path) -> str:
    """A checkpoint of a home-made training loop."""
    torch.save(PROGRAMS["home-made"].save(training()), here / "net.pt")
    return "net.pt"


def listing(folder: Path) -> dict[str, bytes]:
    return {
        os.path.relpath(os.path.join(place, name), folder): Path(place, name).read_bytes()
        for place, _, names in os.walk(folder)
        for name in names
    }


# --unwrap


def wrapped(*prefixes: str) -> Any:
    net: torch.nn.Module = training().net
    state: Any = net.state_dict()
    made: Any = OrderedDict(("".join(prefixes) + name, value) for name, value in state.items())
    made._metadata = OrderedDict()
    steps = "".join(prefixes).rstrip(".")
    for name, version in state._metadata.items():
        made._metadata[f"{steps}.{name}".strip(".")] = version
    return made


@pytest.mark.parametrize(
    "prefixes",
    [["module."], ["_orig_mod."], ["module.", "_orig_mod."], ["_orig_mod.", "module."], ["module.", "module."]],
    ids="".join,
)
def test_unwrap_takes_the_prefixes_of_wrappers_off(command: Command, here: Path, prefixes: list[str]) -> None:
    torch.save({"state_dict": wrapped(*prefixes), "epoch": 3}, "old.pt")
    done = command("clear", "old.pt", "-o", "new.pt", "--unwrap")
    assert (done.code, done.err) == (0, "")
    assert "10 names lost the prefix of a wrapper" in done.out
    made = read(here / "new.pt")["state_dict"]
    state: Any = training().net.state_dict()
    equal(dict(state), {name: made[name] for name in state})
    assert list(made) == list(state)
    assert made._metadata == state._metadata
    Net().load_state_dict(made)
    assert command("clear", "old.pt", "-o", "new.safetensors", "--unwrap").code == 0
    assert safetensors.torch.load_file("new.safetensors").keys() <= state.keys()


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated")
def test_real_wrappers_come_off(command: Command, here: Path) -> None:
    net = training().net
    compiled: Any = torch.compile(torch.nn.DataParallel(net))
    torch.save({"model": compiled.state_dict()}, "old.pt")
    assert command("clear", "old.pt", "-o", "new.pt", "--unwrap").code == 0
    equal(dict(net.state_dict()), dict(read(here / "new.pt")["model"]))
    averaged = training().ema
    torch.save(averaged.state_dict(), "old.pt")
    assert command("clear", "old.pt", "-o", "new.pt", "--unwrap").code == 0
    equal(dict(averaged.module.state_dict()), dict(read(here / "new.pt")))


def test_module_is_left_where_a_person_named_it_so(command: Command, here: Path) -> None:
    state = {"module.w": torch.ones(1), "head.w": torch.ones(1), "head.module.v": torch.ones(1)}
    torch.save(state, "old.pt")
    done = command("clear", "old.pt", "-o", "new.pt", "--unwrap")
    assert done.code == 0
    assert read(here / "new.pt").keys() == state.keys()


def test_two_names_that_would_become_one_are_named(command: Command) -> None:
    torch.save({"a._orig_mod.w": torch.ones(1), "a.w": torch.zeros(1)}, "old.pt")
    text = command("clear", "old.pt", "-o", "new.pt", "--unwrap").refused()
    assert "a._orig_mod.w and a.w would both become a.w" in text
    assert not os.path.exists("new.pt")


# paths after --drop and --keep


def test_paths_are_dropped_and_kept(command: Command, here: Path, net_pt: str) -> None:
    done = command("clear", net_pt, "-o", "new.pt", "--drop", "weights.tied.*", "--drop", "opt", "--keep", "sched")
    assert (done.code, done.err) == (0, "")
    assert "As asked, opt, weights.tied.weight, weights.tied.bias went." in " ".join(done.out.split())
    made = read(here / "new.pt")
    assert made.keys() == {"weights", "sched", "history", "step"}
    assert made["weights"].keys() == {n for n in Net().state_dict() if not n.startswith("tied")}
    assert command("clear", net_pt, "-o", "all.pt", "--keep", "*").code == 0
    assert read(here / "all.pt").keys() == read(here / net_pt).keys()


def test_a_path_that_is_not_there_is_named(command: Command, here: Path, net_pt: str) -> None:
    before = listing(here)
    text = command("clear", net_pt, "-o", "new.pt", "--drop", "weight.*").refused()
    assert "nothing here is called weight.*" in text
    assert listing(here) == before


@pytest.mark.parametrize("pattern", ["*", "weights", "weights.*"])
def test_all_of_the_model_is_not_dropped_silently(command: Command, here: Path, net_pt: str, pattern: str) -> None:
    done = command("clear", net_pt, "-o", "new.pt", "--drop", pattern)
    if pattern == "*":
        assert "all of it is to go, and nothing would be left of it" in done.refused()
        assert not (here / "new.pt").exists()
        return
    assert done.code == 0
    assert "As asked, weights" in done.out
    assert not read(here / "new.pt").get("weights")


def test_of_what_goes_by_a_pattern_the_topmost_is_named(command: Command, here: Path) -> None:
    inner = {"c": {"d": 1, "e": torch.ones(2)}, "f": 2}
    torch.save({"model": {"w": torch.ones(1), "a": 1, "a.x": 2}, "extra": inner, "extras": [inner, {"g": 3}]}, "old.pt")
    done = command("clear", "old.pt", "-o", "new.pt", "--drop", "extra*", "--drop", "model.a*")
    assert done.code == 0, done
    assert "As asked, extra, extras, model.a and 1 more went." in " ".join(done.out.split())
    made = read(here / "new.pt")
    assert (made.keys(), made["model"].keys()) == ({"model"}, {"w"})


def test_what_was_done_is_counted_and_files_are_called_what_they_are(command: Command, here: Path) -> None:
    torch.save({"model": {"module.w": torch.ones(1)}}, "one.pt")
    torch.save({"model": {"module.w": torch.ones(1), "module.v": torch.ones(1)}}, "two.pt")
    done = command("clear", "one.pt", "two.pt", "-o", "new/", "--unwrap", "--dtype", "float16")
    assert done.lines[-4:] == [
        "one.pt: 1 name lost the prefix of a wrapper.",
        "one.pt: 1 parameter was cast to float16.",
        "two.pt: 2 names lost the prefix of a wrapper.",
        "two.pt: 2 parameters were cast to float16.",
    ]


# names that ask for another format


@pytest.mark.parametrize("ending", ["onnx", "t7", "npz", "h5", "gguf", "JSON", "txt", "py", "gz"])
@pytest.mark.parametrize("more", [[], ["--dry-run"]], ids=str)
def test_a_name_of_another_format_is_refused(
    command: Command, here: Path, net_pt: str, ending: str, more: list[str]
) -> None:
    before = listing(here)
    text = command("clear", net_pt, "-o", f"new.{ending}", *more).refused()
    assert text.startswith(f"new.{ending} is a name for ")
    assert "name it .pt, .pth, .ckpt, .bin or .safetensors" in text
    assert listing(here) == before


@pytest.mark.parametrize("name", ["new.pth.tar", "new", "new.v2", "new.model", "new.zip", "new.pkl", "net.onnx.pt"])
def test_any_other_name_is_taken(command: Command, here: Path, net_pt: str, name: str) -> None:
    assert command("clear", net_pt, "-o", name).code == 0
    assert command("verify", net_pt, name).code == 0


def test_a_checkpoint_that_is_called_otherwise_keeps_its_name(command: Command, here: Path, net_pt: str) -> None:
    os.rename(net_pt, "net.t7")
    assert command("clear", "net.t7", "-o", "new.t7").code == 0
    assert command("clear", "net.t7", "--in-place").code == 0
    assert (here / "net.t7").read_bytes() == (here / "new.t7").read_bytes()


# what the words say


def test_inspect_says_what_is_in_a_checkpoint_and_what_clearing_saves(command: Command, net_pt: str) -> None:
    done = command("inspect", net_pt)
    assert done.code == 0
    for word in ("optimizer", "training", "parameter", "weights", "first", "clearstate clear net.pt -o net-cleared.pt"):
        assert word in done.out, done.out


def test_inspect_json_adds_up_to_the_size(command: Command, net_pt: str) -> None:
    told = json.loads(command("inspect", net_pt, "--json").out)
    assert told["size"] == os.path.getsize(net_pt)
    assert sum(told["roles"].values()) == told["size"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_programs_checkpoint_is_inspected_cleared_and_verified(command: Command, here: Path, name: str) -> None:
    torch.save(PROGRAMS[name].save(training()), "old.pt")
    assert command("inspect", "old.pt", "--all").code == 0
    done = command("clear", "old.pt", "--in-place", "--dry-run")
    assert done.code == 2 or "dry run" in done.out
    assert command("clear", "old.pt", "-o", "new.pt").code == 0
    done = command("verify", "old.pt", "new.pt")
    assert (done.code, done.lines[0]) == (0, "Same model: old.pt and new.pt")
    assert command("clear", "old.pt", "--in-place").code == 0
    assert (here / "old.pt").read_bytes() == (here / "new.pt").read_bytes()


def test_a_dry_run_says_what_would_be_and_writes_nothing(command: Command, here: Path, net_pt: str) -> None:
    before = listing(here)
    told = command("clear", net_pt, "-o", "new.pt", "--dry-run")
    assert told.code == 0
    assert listing(here) == before
    done = command("clear", net_pt, "-o", "new.pt")
    assert [line for line in told.lines if "file" in line] == [line for line in done.lines if "file" in line]


# bad input


def _called(folder: Path) -> bytes:
    class Attack:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {folder / 'marker'}",)

    return pickle.dumps({"w": Attack(), "state_dict": {"a": 1}}, 2)


def zipped(root: bytes, compression: int = zipfile.ZIP_STORED, **others: bytes) -> bytes:
    import io

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, data in {"data.pkl": root, "version": b"3\n", **others}.items():
            archive.writestr(f"archive/{name}", data)
    return out.getvalue()


def _twice() -> bytes:
    import io
    import warnings

    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w") as archive:
        warnings.simplefilter("ignore")
        for _ in range(2):
            archive.writestr("archive/data.pkl", pickle.dumps({"a": 1}, 2))
        archive.writestr("archive/version", b"3\n")
    return out.getvalue()


def _overlapping() -> bytes:
    data = bytearray(zipped(pickle.dumps({"a": 1}, 2), other=b"x" * 50))
    first = data.index(b"PK\x01\x02")
    second = data.index(b"PK\x01\x02", first + 4)
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    return bytes(data)


def _bomb() -> bytes:
    return zipped(b"\x80\x02]" + b"]a" * 10 + b"." + b"0" * (200 << 20), zipfile.ZIP_DEFLATED)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a zip bomb": _bomb,
    "names twice": _twice,
    "members that overlap": _overlapping,
    "lists without end": lambda: zipped(b"\x80\x02" + b"(" * 10**6),
    "a memo that is not there": lambda: zipped(b"\x80\x02j\xff\xff\xff\x7f."),
    "a memo without end": lambda: zipped(b"\x80\x02Nr\xff\xff\xff\x7f" + b"h\x01" * 5),
    "a persistent id of nothing": lambda: zipped(b"\x80\x02NQ."),
    "a storage outside": lambda: zipped(
        b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x0a\x00\x00\x00../../passwX\x03\x00\x00\x00cpuK\x04tQ."
    ),
    "a length beyond the end": lambda: zipped(b"\x80\x02\x8e\xff\xff\xff\xff\xff\xff\xff\x7fxx."),
    "a storage that is too large": lambda: zipped(
        b"\x80\x02(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu"
        b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7ftQ.",
        zipfile.ZIP_STORED,
        **{"data/0": b"\0" * 16},
    ),
    "no data.pkl": lambda: zipped(b"").replace(b"data.pkl", b"data.pkk"),
    "a header of safetensors without end": lambda: struct.pack("<Q", 2**63) + b"{}",
    "a header of brackets": lambda: struct.pack("<Q", 10**6) + b"[" * 10**6,
    "offsets of safetensors outside": lambda: (lambda head: struct.pack("<Q", len(head)) + head + b"\0" * 8)(
        b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("verb", ["inspect", "clear", "verify"])
def test_a_hostile_file_is_refused_in_a_sentence_and_nothing_is_written(
    command: Command, here: Path, name: str, verb: str
) -> None:
    (here / "bad.pt").write_bytes(HOSTILE[name]())
    rest = {"inspect": ["--all"], "clear": ["-o", "new.pt"], "verify": ["bad.pt"]}[verb]
    start = time.perf_counter()
    text = command(verb, "bad.pt", *rest).refused()
    assert "bad.pt" in text
    assert len(text) < 400, text
    assert os.listdir(here) == ["bad.pt"]
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("words", ["inspect x.pt", "clear x.pt -o y.pt", "clear x.pt -o y.pt --plain"])
@pytest.mark.parametrize("inside", ["zip", "pickle"])
def test_a_call_in_a_file_is_told_and_never_made(command: Command, here: Path, words: str, inside: str) -> None:
    data = _called(here)
    (here / "x.pt").write_bytes(zipped(data) if inside == "zip" else data)
    done = command(*words.split())
    assert not (here / "marker").exists()
    if "--plain" in words:
        assert "system (w)" in done.refused()
        assert not (here / "y.pt").exists()
    else:
        assert done.code == 0
        assert "DANGEROUS: torch.load would call" in done.out


def test_a_nest_twenty_thousand_deep_is_shown_and_cleared(command: Command, here: Path) -> None:
    (here / "x.pt").write_bytes(zipped(b"\x80\x02" + b"]" * 20_000 + b"N" + b"a" * 20_000 + b"."))
    assert command("inspect", "x.pt").code == 0
    assert command("clear", "x.pt", "-o", "y.pt").code == 0
    assert command("verify", "x.pt", "y.pt").code == 0
