"""Whatever is wrong with the input or the usage is said in one clear sentence, with exit code 2."""

from __future__ import annotations

import errno
import gzip
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

import clearstate as cs
from clearstate.formats import t7
from clearstate.verbs import inspect
from tests.cli.conftest import Command

USAGE = [
    (["explode"], "no such command 'explode'; see clearstate --help"),
    (["--explode"], "no such option"),
    (["inspect"], "missing argument 'FILE'; see clearstate inspect --help"),
    (["clear"], "missing argument 'FILE'; see clearstate clear --help"),
    (["verify", "net.t7"], "missing argument 'B'; see clearstate verify --help"),
    (["verify", "net.t7", "net.t7", "net.t7"], "unexpected extra argument"),
    (["clear", "net.t7", "-o"], "option '-o' requires an argument; see clearstate"),
    (["clear", "net.t7", "--explode"], "no such option"),
    (["clear", "net.t7"], "say where the cleared file goes: -o FILE, or --in-place"),
    (["clear", "net.t7", "-o", "x.t7", "--in-place"], "give -o or --in-place, not both"),
    (["clear", "net.t7", "-o", "net.t7"], "net.t7 is itself to be cleared; write elsewhere, or say --in-place"),
    (["clear", "net.t7", "-o", "./net.t7"], "is itself to be cleared"),
    (["clear", "net.t7", "-o", "link.t7"], "is itself to be cleared"),
    (["clear", "net.t7", "-o", "missing/x.t7"], "cannot write missing/x.t7: there is no folder missing"),
    (["clear", "net.t7", "other.t7", "-o", "there.txt"], "so -o there.txt must be a folder, and it is a file"),
    (["clear", "full", "-o", "there.txt"], "so -o there.txt must be a folder"),
    (["clear", "net.t7", "full/net.t7", "-o", "new/"], "net.t7 and full/net.t7 would both become new/net.t7"),
    (
        ["clear", "net.t7", "--drop", "everything", "-o", "x.t7"],
        "everything is no role, and paths are for checkpoints; from a Torch7 file go transient, gradient",
    ),
    (["clear", "net.t7", "--keep", "everything", "-o", "x.t7"], "everything is no role"),
    (["clear", "net.t7", "--drop", "parameter", "-o", "x.t7"], "this is part of the model and never goes"),
    (["clear", "net.t7", "--drop", "code", "--keep", "code", "-o", "x.t7"], "code is in --drop and in --keep"),
    (["clear", "net.t7", "--drop", "a.*", "--keep", "a.*", "-o", "x.t7"], "a.* is in --drop and in --keep"),
    (["clear", "net.t7", "--use", "ema", "-o", "x.t7"], "net.t7 is a Torch7 file, and use is for checkpoints"),
    (["clear", "net.t7", "--dtype", "float16", "--plain", "-o", "x.t7"], "dtype and plain is for checkpoints"),
    (["clear", "net.t7", "-o", ""], "the name after -o is empty"),
    (["clear", "net.t7", "--transient", "nn.Linear", "-o", "x.t7"], "wants 'my.Class:field,field', not 'nn.Linear'"),
    (["clear", "net.t7", "--transient", "nn.Linear:", "-o", "x.t7"], "wants 'my.Class:field,field'"),
    (["clear", "net.t7", "--transient", "nn.Linear:weight", "-o", "x.t7"], "weight is a parameter of nn.Linear"),
    (["inspect", "net.t7", "--long-size", "5"], "--long-size is 4 or 8, not 5"),
    (["clear", "net.t7", "--long-size", "five", "-o", "x.t7"], "--long-size is 4 or 8, not five"),
    (["inspect", ""], "one of the names is empty"),
    (["inspect", "missing.t7"], "cannot read missing.t7: no such file or directory"),
    (["clear", "missing.t7", "-o", "x.t7"], "cannot read missing.t7: no such file or directory"),
    (["verify", "net.t7", "missing.t7"], "cannot read missing.t7: no such file or directory"),
    (["inspect", "missing*"], "no file matches missing*"),
    (["inspect", "empty"], "empty holds no .t7, .pt, .pth, .ckpt, .bin or .safetensors file"),
    (["clear", "empty", "-o", "x/"], "empty holds no .t7, .pt, .pth, .ckpt, .bin or .safetensors file"),
    (["verify", "net.t7", "full"], "full is a directory, not a file"),
    (["inspect", "pipe.t7"], "pipe.t7 is a pipe or a device; save what it gives in a file first"),
    (["verify", "/dev/null", "net.t7"], "/dev/null is a pipe or a device"),
    (["inspect", "net.t7/x.t7"], "cannot read net.t7/x.t7: not a directory"),
]


@pytest.fixture
def crowded(net: str, here: Path) -> Path:
    """A folder with a net, a link to it, other files, an empty folder, a full one and a pipe."""
    (here / "other.t7").write_bytes(t7.dumps(1.0))
    (here / "there.txt").touch()
    (here / "empty").mkdir()
    (here / "full").mkdir()
    (here / "full" / "net.t7").write_bytes(t7.dumps(2.0))
    os.symlink("net.t7", "link.t7")
    os.mkfifo("pipe.t7")
    return here


def listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_size) for path in folder.rglob("*"))


@pytest.mark.parametrize("words, sentence", [pytest.param(*u, id=" ".join(u[0])) for u in USAGE])
def test_wrong_usage_is_said_in_one_sentence_and_nothing_is_written(
    command: Command, crowded: Path, words: list[str], sentence: str
) -> None:
    before = listing(crowded)
    done = command(*words)
    assert sentence in done.refused()
    assert done.out == ""
    assert listing(crowded) == before


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps({}))
        archive.writestr("model/version", "3\n")


BAD = {
    "empty": (b"", "bad.t7 is an empty file"),
    "an HTML page": (b"<!DOCTYPE html><html><body>404</body></html>", "bad.t7 is an HTML page"),
    "a Git LFS pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12345\n",
        "git lfs pull",
    ),
    "a gzip": (gzip.compress(t7.dumps(1.0)), "gunzip"),
    "a pickle that is cut off": (pickle.dumps({"state_dict": {}})[:-1], "bad.t7"),
    "noise": (bytes(range(255, 0, -1)) * 9, "bad.t7"),
    "a count that lies": (b"\x03\0\0\0\x01\0\0\0\xff\xff\xff\x7f", "bad.t7: at byte"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_is_no_t7_is_named_for_what_it_is(command: Command, net: str, here: Path, kind: str) -> None:
    data, words = BAD[kind]
    (here / "bad.t7").write_bytes(data)
    for run in (
        ["inspect", "bad.t7"],
        ["clear", "bad.t7", "-o", "x.t7"],
        ["clear", "bad.t7", "--in-place"],
        ["verify", net, "bad.t7"],
    ):
        assert words in command(*run).refused()
    assert (here / "bad.t7").read_bytes() == data
    assert not (here / "x.t7").exists()


def test_a_pytorch_file_is_named_as_one_whatever_it_is_called(command: Command, here: Path) -> None:
    _zip(here / "model.t7")
    assert "PyTorch checkpoint" in command("inspect", "model.t7").out
    (here / "cut.t7").write_bytes((here / "model.t7").read_bytes()[:-40])
    assert "cut off" in command("inspect", "cut.t7").refused()


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.999])
def test_a_cut_download_says_how_much_is_missing(command: Command, net: str, here: Path, share: float) -> None:
    whole = Path(net).read_bytes()
    (here / "cut.t7").write_bytes(whole[: int(len(whole) * share)])
    assert "expected" in command("inspect", "cut.t7").refused()
    assert "found" in command("clear", "cut.t7", "-o", "x.t7").refused()


def test_bytes_after_the_end_are_refused(command: Command, net: str, here: Path) -> None:
    (here / "long.t7").write_bytes(Path(net).read_bytes() + b"more")
    assert "long.t7" in command("inspect", "long.t7").refused()


def fails_to_open(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so what a system says to others is said by hand."""
    real = inspect.open_path

    def open_path(path: Any, **options: Any) -> Any:
        if os.path.basename(path) == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, **options)

    for room in ("inspect", "clear", "verify"):
        monkeypatch.setattr(f"clearstate.verbs.{room}.open_path", open_path)


def test_a_file_that_may_not_be_read_is_named(command: Command, net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fails_to_open(net, monkeypatch)
    assert command("inspect", net).refused() == "cannot read net.t7: permission denied"
    assert command("clear", net, "-o", "x.t7").refused() == "cannot read net.t7: permission denied"
    assert command("verify", net, net).refused() == "cannot read net.t7: permission denied"


def test_a_folder_that_may_not_be_listed_is_named(
    command: Command, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "nets").mkdir()

    def scandir(path: str) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert command("inspect", "nets").refused() == "cannot read nets: permission denied"


@pytest.mark.parametrize("code, reason", [(errno.ENOSPC, "no space left on device"), (errno.EROFS, "read-only file")])
def test_a_file_that_cannot_be_written_is_named(
    command: Command, net: str, here: Path, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    def fsync(fd: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fsync)
    old = Path(net).read_bytes()
    assert command("clear", net, "-o", "small.t7").refused().startswith(f"cannot write small.t7: {reason}")
    assert command("clear", net, "--in-place").refused().startswith(f"cannot write net.t7: {reason}")
    assert Path(net).read_bytes() == old
    assert os.listdir(here) == ["net.t7"]


def test_a_mistake_of_ours_is_owned_up_to_without_a_traceback(
    command: Command, net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(a: str, b: str) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(cs, "verify", verify)
    done = command("verify", net, net)
    assert done.code == 2
    assert done.err == "clearstate: this is a mistake in clearstate, please report it: KeyError: 'oops'\n"


def test_too_little_memory_is_said(command: Command, net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def inspect(path: str, **options: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(cs, "inspect", inspect)
    assert command("inspect", net).refused() == "there is not enough memory for this"


def test_ctrl_c_ends_quietly_with_the_shells_exit_code(
    command: Command, net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clear_file(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cs, "clear_file", clear_file)
    done = command("clear", net, "-o", "small.t7")
    assert tuple(done) == (130, "", "")


def test_a_disk_that_fails_is_said_with_the_files_name(
    command: Command, net: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(cs, "inspect", fails)
    assert command("inspect", net).refused() == "cannot read net.t7: input/output error"


def test_the_command_that_is_proposed_works_for_a_name_like_an_option(command: Command, net: str) -> None:
    os.rename(net, "-net.t7")
    proposed = command("inspect", "--", "-net.t7").lines[-1].split("clearstate ")[1].split()
    assert proposed == ["clear", "./-net.t7", "-o", "./-net-cleared.t7"]
    assert command(*proposed).code == 0
