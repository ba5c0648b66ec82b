"""Several archives in one file, and shards of torch.distributed.checkpoint: refused, so that nothing is lost."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clearstate.errors import FormatError
from clearstate.formats import pt
from clearstate.formats.readers import kind_of
from tests.cli.conftest import Command

pytestmark = pytest.mark.filterwarnings("default")


def one(value: float, *, old: bool = False) -> bytes:
    out = io.BytesIO()
    torch.save({"w": torch.full((4,), value)}, out, _use_new_zipfile_serialization=not old)
    return out.getvalue()


def by_pythons_zipfile(data: bytes, *, before: bytes = b"", unseekable: bool = False) -> bytes:
    """The same members as Python's module writes them, its offsets counted from the file's start."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return not unseekable

        def tell(self) -> int:
            if unseekable:
                raise io.UnsupportedOperation
            return super().tell()

    out = Pipe()
    out.write(before)
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    return out.getvalue()


def with_a_hole(data: bytes) -> bytes:
    """The second member's header stands 40 bytes later than the first one's bytes end."""
    data = by_pythons_zipfile(data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        first, second = archive.infolist()[:2]
        start = archive.start_dir
    at = second.header_offset
    moved = bytearray(data[:at] + b"lost" * 10 + data[at:])
    place = start + 40
    while (place := moved.find(b"PK\x01\x02", place)) >= 0:
        offset = int.from_bytes(moved[place + 42 : place + 46], "little")
        if offset > first.header_offset:
            moved[place + 42 : place + 46] = (offset + 40).to_bytes(4, "little")
        place += 4
    end = moved.rfind(b"PK\x05\x06")
    moved[end + 16 : end + 20] = (start + 40).to_bytes(4, "little")
    return bytes(moved)


ODD: dict[str, Callable[[], bytes]] = {
    "two in a row": lambda: one(1) + one(2),
    "twenty in a row": lambda: b"".join(map(one, range(20))),
    "behind other bytes": lambda: b"HEAD" * 16 + one(1),
    "behind other bytes, counted with them": lambda: by_pythons_zipfile(one(1), before=one(2)),
    "before other bytes": lambda: one(1) + b"tail" * 9,
    "between members": lambda: with_a_hole(one(1)),
}


@pytest.mark.parametrize("name", ODD)
def test_bytes_that_an_archive_does_not_name_are_never_lost_but_refused(
    name: str, command: Command, here: Path
) -> None:
    Path("odd.pt").write_bytes(ODD[name]())
    with pytest.raises(FormatError, match=r"bytes that are in no member of this archive|directory"):
        pt.open_zip("odd.pt")
    for words in (["inspect", "odd.pt"], ["clear", "odd.pt", "-o", "new.pt"], ["verify", "odd.pt", "odd.pt"]):
        assert "odd.pt" in command(*words).refused()
    assert not Path("new.pt").exists()


@pytest.mark.parametrize("name", ["two in a row", "twenty in a row"])
def test_several_checkpoints_in_one_file_are_called_so(name: str, command: Command, here: Path) -> None:
    Path("row.pt").write_bytes(ODD[name]())
    said = command("clear", "row.pt", "-o", "new.pt").refused()
    assert said.startswith("row.pt is several PyTorch checkpoints in a row. Save each in a file of its own")
    assert ".distcp" in said


WHOLE: dict[str, Callable[[], bytes]] = {
    "torch.save": lambda: one(1),
    "before 1.6": lambda: one(1, old=True),
    "zipfile": lambda: by_pythons_zipfile(one(1)),
    "zipfile, sizes behind the members": lambda: by_pythons_zipfile(one(1), unseekable=True),
    "with a comment": lambda: one(1)[:-2] + (4).to_bytes(2, "little") + b"note",
}


@pytest.mark.parametrize("name", WHOLE)
def test_one_whole_archive_is_read_whoever_wrote_it(name: str, command: Command, here: Path) -> None:
    Path("whole.pt").write_bytes(WHOLE[name]())
    assert command("clear", "whole.pt", "-o", "new.pt").code == 0
    assert command("clear", "new.pt", "-o", "again.pt").code == 0
    assert torch.load("again.pt")["w"].tolist() == [1.0] * 4


@pytest.fixture
def distributed(here: Path) -> str:
    """A checkpoint of torch.distributed.checkpoint, with one shard."""
    from torch.distributed.checkpoint.state_dict_saver import save

    net = torch.nn.Linear(4, 4)
    opt = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 4)).sum().backward()
    opt.step()
    save({"model": net.state_dict(), "optim": opt.state_dict()}, checkpoint_id="dcp")
    return "dcp"


def test_a_distributed_checkpoint_is_named_with_what_makes_one_file_of_it(
    command: Command, here: Path, distributed: str
) -> None:
    called = {
        f"{distributed}/__0_0.distcp": "a shard",
        f"{distributed}/.metadata": "the metadata",
        distributed: "a folder",
    }
    for path, what in called.items():
        assert kind_of(path) is None
        for words in (["inspect", path], ["clear", path, "-o", "new"], ["verify", path, path]):
            said = command(*words).refused()
            assert said.startswith(f"{path} is {what} of torch.distributed.checkpoint. Make one file of")
            assert "dcp_to_torch_save" in said
    assert not Path("new").is_file()


def test_a_shard_with_one_tensor_alone_is_a_shard_too(command: Command, here: Path) -> None:
    Path("__0_0.distcp").write_bytes(one(1))
    assert "a shard of torch.distributed.checkpoint" in command("clear", "__0_0.distcp", "-o", "new.pt").refused()


def test_what_the_advice_makes_of_a_distributed_checkpoint_is_cleared(
    command: Command, here: Path, distributed: str
) -> None:
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    dcp_to_torch_save(distributed, "one.pt")
    assert command("clear", "one.pt", "-o", "new.pt").code == 0
    assert list(torch.load("new.pt")) == ["model"]
