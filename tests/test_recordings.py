"""The recordings that every other test stands on are there and whole."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.recordings import CASES, DIGITS, EXAMPLES, FORMATS, RECORDED, ROOT, case


def test_all_recorded_cases_are_there() -> None:
    assert len(CASES) == 238
    assert all((case(name) / "before.t7").is_file() and (case(name) / "io.t7").is_file() for name in CASES)
    assert len(FORMATS) == 9
    assert len(RECORDED) == 881


def test_the_example_is_the_recorded_net() -> None:
    for name in ("digits.t7", "digits-test.t7"):
        assert (DIGITS / name).read_bytes() == (EXAMPLES / name).read_bytes()


def test_the_archive_tells_nothing_of_the_machine_that_packed_it() -> None:
    with tarfile.open(Path(__file__).with_name("recordings.tar.xz")) as archive:
        members = archive.getmembers()
    assert [member.name for member in members] == sorted(member.name for member in members)
    told = {(member.mtime, member.uid, member.gid, member.uname, member.gname, member.mode) for member in members}
    assert told == {(0, 0, 0, "", "", 0o644)}
    assert all((ROOT / member.name).stat().st_size == member.size for member in members)
