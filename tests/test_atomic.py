"""A file is replaced whole or not at all."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from clearstate.formats.atomic import replacing
from tests.recordings import REPO

OLD, NEW = b"old" * 1000, b"new" * 2000
HIDDEN = ".clearstate-0123456789abcdef"


@pytest.fixture(params=["nameless", "named"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test runs on Linux's nameless files and on what other systems have."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no nameless files")
    return str(request.param)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of old bytes, alone in its folder."""
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "net.t7"
    path.write_bytes(OLD)
    return path


def alone(path: Path) -> bool:
    return os.listdir(path.parent) == [path.name]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_new_file_appears_when_the_block_ends_well(old: Path) -> None:
    with replacing(old) as file:
        file.write(NEW)
        file.flush()
        assert old.read_bytes() == OLD
    assert old.read_bytes() == NEW
    assert alone(old)


def test_a_file_that_was_not_there_is_made_with_the_usual_permissions(old: Path) -> None:
    old.unlink()
    with replacing(old) as file:
        file.write(NEW)
        assert not old.exists()
    assert old.read_bytes() == NEW
    assert alone(old)
    usual = old.with_name("usual")
    usual.touch()
    assert mode(old) == mode(usual)


def test_a_file_that_appears_meanwhile_is_replaced(old: Path) -> None:
    old.unlink()
    with replacing(old) as file:
        file.write(NEW)
        old.write_bytes(OLD)
    assert old.read_bytes() == NEW
    assert alone(old)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_in_the_block_leaves_the_old_file(old: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), replacing(old) as file:
        file.write(NEW)
        raise error
    assert old.read_bytes() == OLD
    assert alone(old)


def test_an_error_in_the_block_leaves_no_file_where_there_was_none(old: Path) -> None:
    old.unlink()
    with pytest.raises(ValueError, match="no"), replacing(old) as file:
        file.write(NEW)
        raise ValueError("no")
    assert os.listdir(old.parent) == []


def test_the_finished_file_is_read_back_before_it_replaces_anything(old: Path) -> None:
    seen = []

    def check(name: str) -> None:
        seen.append((Path(name).read_bytes(), old.read_bytes()))

    with replacing(old, check) as file:
        file.write(NEW)
    assert seen == [(NEW, OLD)]


def test_a_file_that_fails_its_check_leaves_the_old_file(old: Path) -> None:
    def check(name: str) -> None:
        raise ValueError(f"{len(Path(name).read_bytes())} bytes differ")

    with pytest.raises(ValueError, match="6000 bytes differ"), replacing(old, check) as file:
        file.write(NEW)
    assert old.read_bytes() == OLD
    assert alone(old)


@pytest.mark.parametrize("permissions", [0o600, 0o640, 0o444, 0o755])
def test_permissions_of_the_old_file_stay(old: Path, permissions: int) -> None:
    old.chmod(permissions)
    with replacing(old) as file:
        file.write(NEW)
        assert mode_of(file.fileno()) == permissions  # nobody else reads a private file while it is written
    assert mode(old) == permissions
    assert old.read_bytes() == NEW


def mode_of(fd: int) -> int:
    return stat.S_IMODE(os.fstat(fd).st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_root_leaves_a_file_to_its_owner(old: Path) -> None:
    os.chown(old, 1234, 2345)
    with replacing(old) as file:
        file.write(NEW)
    assert (old.stat().st_uid, old.stat().st_gid) == (1234, 2345)


def test_a_link_is_followed_and_stays_a_link(old: Path) -> None:
    link = old.parent.parent / "link.t7"
    link.symlink_to(old)
    with replacing(link) as file:
        file.write(NEW)
    assert link.is_symlink()
    assert old.read_bytes() == NEW
    assert alone(old)


def test_a_link_to_nothing_gets_its_file(old: Path) -> None:
    link = old.parent.parent / "link.t7"
    link.symlink_to(old)
    old.unlink()
    with replacing(link) as file:
        file.write(NEW)
    assert link.is_symlink()
    assert old.read_bytes() == NEW


def test_a_folder_or_a_device_is_not_replaced(old: Path) -> None:
    for path in (old.parent, Path(os.devnull)):
        with pytest.raises(OSError, match="only a regular file"), replacing(path):
            pass


def test_a_missing_folder_is_named_by_the_path_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "net.t7"
    with pytest.raises(FileNotFoundError) as caught, replacing(path):
        pass
    assert caught.value.filename == str(path)


def test_the_longest_name_that_a_folder_takes_is_written(old: Path) -> None:
    path = old.with_name("n" * 255)
    for data in (OLD, NEW):
        with replacing(path) as file:
            file.write(data)
        assert path.read_bytes() == data


def test_what_a_dead_writer_left_is_removed_and_never_taken_for_the_new_file(old: Path) -> None:
    left = old.with_name(HIDDEN)
    left.write_bytes(b"stale")
    old.unlink()
    with replacing(old) as file:
        file.write(NEW)
    assert old.read_bytes() == NEW
    assert alone(old)


def test_files_that_only_look_alike_are_not_removed(old: Path) -> None:
    others = [".clearstate-notes", f"{HIDDEN}.t7", f"x{HIDDEN}"]
    for name in others:
        old.with_name(name).touch()
    old.with_name(HIDDEN).symlink_to(old)
    with replacing(old) as file:
        file.write(NEW)
    assert sorted(os.listdir(old.parent)) == sorted([old.name, HIDDEN, *others])


def test_two_writers_of_one_file_do_not_disturb_each_other(old: Path) -> None:
    first, second = replacing(old), replacing(old)
    one, two = first.__enter__(), second.__enter__()
    one.write(b"one" * 5000)
    two.write(b"two")
    one.flush()
    first.__exit__(None, None, None)
    assert old.read_bytes() == b"one" * 5000
    second.__exit__(None, None, None)
    assert old.read_bytes() == b"two"
    assert alone(old)


def test_many_writers_at_once_leave_one_whole_file(old: Path) -> None:
    bodies = [bytes([letter]) * 50_000 for letter in b"abcdefgh"]
    failures = []

    def write(body: bytes) -> None:
        try:
            for _ in range(20):
                with replacing(old) as file:
                    file.write(body)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert old.read_bytes() in bodies
    assert alone(old)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 256 KB, or a limit on the size of files where only root could mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], check=False, capture_output=True
    )
    if mounted.returncode == 0:
        yield folder
        subprocess.run(["umount", folder], check=True)
    else:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (256 << 10, hard))
        yield folder
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_file_and_names_the_new_one(full_disk: Path) -> None:
    path = full_disk / "net.t7"
    path.write_bytes(OLD)
    with pytest.raises(OSError, match=r"net\.t7") as caught, replacing(path) as file:
        for _ in range(1000):
            file.write(NEW)
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)
    assert path.read_bytes() == OLD
    assert alone(path)
    with replacing(path) as file:  # and there is room again
        file.write(NEW)
    assert path.read_bytes() == NEW


def test_a_disk_that_is_full_at_the_last_byte_leaves_the_old_file(full_disk: Path) -> None:
    """What is still buffered when the block ends is written then; that fails as well."""
    path = full_disk / "net.t7"
    path.write_bytes(OLD)
    with pytest.raises(OSError, match=r"net\.t7"), replacing(path) as file:
        with suppress(OSError):
            while True:
                os.write(file.fileno(), b"x" * 4096)
        file.write(b"the last bytes")
    assert path.read_bytes() == OLD
    assert alone(path)


def test_a_disk_that_fails_to_flush_leaves_the_old_file(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output"), replacing(old) as file:
        file.write(NEW)
    assert old.read_bytes() == OLD
    assert alone(old)


def test_no_descriptor_stays_open(old: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with replacing(old) as file:
            file.write(NEW)
        with pytest.raises(ValueError, match="no"), replacing(old) as file:
            raise ValueError("no")
    assert len(os.listdir("/proc/self/fd")) == before


KILLER = """
# Kills writers of a file at random moments, and prints what each left: the file's bytes and its folder's names.
import os, random, signal, sys, time
from pathlib import Path
from clearstate.formats.atomic import replacing

path, way, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
if way == "named" and hasattr(os, "O_TMPFILE"):
    del os.O_TMPFILE
old, piece, pieces = path.read_bytes(), b"n" * 65536, 64

def write():
    with replacing(path) as file:
        for _ in range(pieces):
            file.write(piece)

def killed(after):
    path.write_bytes(old)
    pid = os.fork()
    if not pid:
        write()
        os._exit(0)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

start = time.perf_counter()
for _ in range(5):
    write()
usual = (time.perf_counter() - start) / 5
chance = random.Random(seed)
whole = {old: "old", piece * pieces: "new"}
for turn in range(100):
    # Half of them anywhere in the write, half around its end, where the names change.
    killed(usual * (chance.uniform(0, 1.2) if turn % 2 else chance.uniform(0.7, 1.3)))
    others = [other for other in path.parent.iterdir() if other != path]
    print(whole.get(path.read_bytes(), "broken"), *(whole.get(other.read_bytes(), "part") for other in others))
    for other in others:
        other.replace(path.parent.parent / other.name)
"""


def test_kill_9_at_any_moment_leaves_the_old_or_the_new_file_whole(old: Path, way: str) -> None:
    """100 times. The moment between two system calls in which even a nameless file has a hidden name is rarely hit."""
    seed = random.randrange(1 << 32)
    done = subprocess.run(
        [sys.executable, "-c", KILLER, old, way, str(seed)],
        env={**os.environ, "PYTHONPATH": str(REPO / "src")},
        check=True,
        capture_output=True,
        text=True,
    )
    outcomes = [line.split() for line in done.stdout.splitlines()]
    assert len(outcomes) == 100
    assert {outcome[0] for outcome in outcomes} == {"old", "new"}, f"{seed=}"
    if way == "nameless":
        hit = [others for _, *others in outcomes if others]
        assert all(others == ["new"] for others in hit), f"{seed=}"
        assert len(hit) <= 5, f"{seed=}"


def test_the_next_writer_removes_what_killed_ones_left(old: Path) -> None:
    """Killed when the hidden name is there: on systems without nameless files that is the whole time."""
    code = (
        "import os, signal; from clearstate.formats.atomic import replacing; os.__dict__.pop('O_TMPFILE', 0)\n"
        f"with replacing({str(old)!r}) as file: file.write(b'part'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    environment = {**os.environ, "PYTHONPATH": str(REPO / "src")}
    for _ in range(2):
        killed = subprocess.run([sys.executable, "-c", code], env=environment, check=False)
        assert killed.returncode == -signal.SIGKILL
        assert len(os.listdir(old.parent)) == 2  # the second has removed what the first left
        assert old.read_bytes() == OLD
    with replacing(old) as file:
        file.write(NEW)
    assert alone(old)
