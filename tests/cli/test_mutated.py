"""Damaged checkpoints through the command: each is read, or refused in a sentence, and nothing is written."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearstate.cli import run
from tests.pt.programs import PROGRAMS, training
from tests.pt.test_sharded import laid
from tests.pt.test_tar import members, tar

from .conftest import Command

MOST = 32 << 20
"""Bytes of memory that no damaged small file may take."""

LONGEST = 5.0
"""Seconds that it may take, on a slow machine."""


def _saved(value: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    torch.save(value, out, **how)
    return out.getvalue()


def _checkpoint() -> Any:
    return PROGRAMS["timm"].save(training())


CONTAINERS: dict[str, Callable[[], bytes]] = {
    "zip": lambda: _saved(_checkpoint()),
    "a module in a zip": lambda: _saved(training().net),
    "legacy": lambda: _saved(_checkpoint(), _use_new_zipfile_serialization=False),
    "tar": lambda: tar(members()),
    "pickle": lambda: pickle.dumps({"names": ["a"] * 9, "opt": {"state": {1: 2}, "param_groups": []}, "n": 2**40}, 4),
    "safetensors": lambda: safetensors.torch.save({"a.w": torch.ones(9), "b": torch.arange(4)}, {"format": "pt"}),
}

COMMANDS = (
    ("inspect", "bad.pt", "--all"),
    ("clear", "bad.pt", "-o", "new.pt"),
    ("clear", "bad.pt", "-o", "new.safetensors", "--use", "model"),
    ("clear", "bad.pt", "-o", "new.pt", "--plain", "--unwrap", "--dtype", "float16"),
    ("verify", "bad.pt", "good.pt"),
)


@pytest.fixture(scope="module")
def originals() -> dict[str, bytes]:
    return {name: make() for name, make in CONTAINERS.items()}


def tried(folder: Path, words: tuple[str, ...]) -> None:
    """Runs a command on ``bad.pt``; fails on anything but an answer or one sentence, and where a refusal wrote."""
    before = sorted(os.listdir(folder))
    out, err = io.StringIO(), io.StringIO()
    start = time.perf_counter()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = int(run([str(folder / word) if "." in word and word[0] != "*" else word for word in words]))
    assert time.perf_counter() - start < LONGEST, words
    text = err.getvalue()
    assert "mistake in clearstate" not in text, text
    assert code in (0, 1, 2), text
    assert (code == 2) == bool(text), (code, text)
    if code == 2:
        assert text.startswith("clearstate: "), text
        assert text.count("\n") == 1, text
        assert sorted(os.listdir(folder)) == before
    for name in set(os.listdir(folder)) - set(before):
        os.remove(folder / name)


@pytest.mark.parametrize("name", CONTAINERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_file_is_read_or_refused_in_a_sentence(
    name: str, originals: dict[str, bytes], data: st.DataObject
) -> None:
    good = originals[name]
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(bad) - 1))
        kind = data.draw(st.sampled_from(("set", "cut", "insert", "copy", "number")))
        if kind == "set":
            bad[start] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del bad[start : start + data.draw(st.integers(1, 40))]
        elif kind == "insert":
            bad[start:start] = data.draw(st.binary(min_size=1, max_size=8))
        elif kind == "copy":
            other = data.draw(st.integers(0, len(bad) - 1))
            bad[start : start + 16] = bad[other : other + 16]
        else:
            value = data.draw(st.sampled_from((b"\xff" * 8, b"\xff" * 4, b"\0" * 4, b"\xff\xff\xff\x7f")))
            bad[start : start + len(value)] = value
        if not bad:
            bad = bytearray(b"x")
    words = data.draw(st.sampled_from(COMMANDS))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bad.pt").write_bytes(bad)
        Path(folder, "good.pt").write_bytes(good)
        tried(Path(folder), words)


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_file_cut_anywhere_is_refused_in_a_sentence(name: str, originals: dict[str, bytes], here: Path) -> None:
    good = originals[name]
    (here / "good.pt").write_bytes(good)
    places = sorted({*range(0, len(good), max(len(good) // 40, 1)), 1, 2, 8, 9, len(good) - 1, len(good) - 22})
    for place in places:
        (here / "bad.pt").write_bytes(good[:place])
        for words in COMMANDS[:2]:
            tried(here, words)


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_damaged_file_takes_little_memory(name: str, originals: dict[str, bytes], here: Path) -> None:
    good = originals[name]
    (here / "good.pt").write_bytes(good)
    run(["inspect", str(here / "good.pt")])
    tracemalloc.start()
    try:
        for i in range(0, len(good) - 8, max(len(good) // 25, 1)):
            (here / "bad.pt").write_bytes(good[:i] + b"\xff\xff\xff\xff\xff\xff\xff\x7f" + good[i + 8 :])
            tried(here, COMMANDS[i % 2])
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()


INDEX = "model.safetensors.index.json"


def _edited(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    index = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps(edit(index) or index))


def _escapes(index: dict[str, Any]) -> None:
    for name in index["weight_map"]:
        index["weight_map"][name] = "../escape.safetensors"


def _absolute(index: dict[str, Any]) -> None:
    for name in index["weight_map"]:
        index["weight_map"][name] = "/etc/passwd"


SHARDS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a shard is missing": (lambda f: os.remove(sorted(f.glob("model-*"))[0]), "no such file"),
    "a shard is cut": (lambda f: os.truncate(sorted(f.glob("model-*"))[0], 20), "model-0000"),
    "a shard is empty": (lambda f: sorted(f.glob("model-*"))[0].write_bytes(b""), "model-0000"),
    "a shard is a page of the web": (
        lambda f: sorted(f.glob("model-*"))[0].write_bytes(b"<!DOCTYPE html><html>"),
        "model-0000",
    ),
    "the index points above": (lambda f: _edited(f, _escapes), "beside the index"),
    "the index points to a place of its own": (lambda f: _edited(f, _absolute), "beside the index"),
    "the index names no tensors": (lambda f: _edited(f, lambda index: {"weight_map": []}), "weight_map"),
    "the index is a nest": (lambda f: (f / INDEX).write_text("[" * 10**6), "index"),
    "the index is cut": (lambda f: os.truncate(f / INDEX, 30), "index"),
}


@pytest.mark.parametrize("name", SHARDS)
@pytest.mark.parametrize("verb", ["inspect", "clear", "verify"])
@pytest.mark.parametrize("by", ["index", "folder"])
def test_damaged_shards_are_refused_in_a_sentence_and_nothing_is_written(
    command: Command, here: Path, name: str, verb: str, by: str
) -> None:
    laid(here / "model")
    damage, words = SHARDS[name]
    damage(here / "model")
    before = {path: path.read_bytes() for path in (here / "model").iterdir()}
    target = f"model/{INDEX}" if by == "index" else "model"
    rest = {"inspect": [], "clear": ["-o", "new/"], "verify": ["model"]}[verb]
    text = command(verb, target, *rest).refused()
    assert words in text, text
    assert len(text) < 400
    assert {path: path.read_bytes() for path in (here / "model").iterdir()} == before
    written = {name for _, _, names in os.walk(here / "new") for name in names}
    assert not written or (by == "folder" and "the index" in name and INDEX not in written), "a shard is a file, too"
