"""``clearstate clear`` makes files small, loses nothing, and says what went."""

from __future__ import annotations

import io
import os
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearstate as cs
from clearstate.cli import meter
from clearstate.formats import t7
from clearstate.wording import size_text
from tests.cli.conftest import Command
from tests.recordings import CASES, DIGITS, FORMATS, case, paths

TORCH7_CLEARED = (DIGITS / "digits-torch7-clearState.t7").stat().st_size


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_cleared_file_is_no_larger_than_torch7s_own_and_the_old_one_stays(command: Command, net: str) -> None:
    old = Path(net).read_bytes()
    done = command("clear", net, "-o", "small.t7")
    assert (done.code, done.err) == (0, "")
    assert os.path.getsize("small.t7") <= TORCH7_CLEARED
    assert Path(net).read_bytes() == old
    assert cs.verify(net, "small.t7")


def test_the_summary_has_bytes_before_and_after_by_role(command: Command, net: str) -> None:
    done = command("clear", net, "-o", "small.t7")
    before, after = cs.inspect(net), cs.inspect("small.t7")
    assert done.lines[0] == "net.t7 → small.t7"
    rows = {line.split()[0]: re.split(r" {2,}", line.strip()) for line in done.lines[2:] if line.startswith("  ")}
    for role, count in before.by_role().items():
        left = after.by_role().get(role, 0)
        told = [size_text(count), size_text(left) if left else "-"]
        assert rows[str(role)][1:] == told
    assert rows["1"][1:3] == [size_text(before.size), size_text(after.size)]


def test_dropping_gradients_halves_the_cleared_file_and_says_how_torch7_gets_them_back(
    command: Command, net: str
) -> None:
    done = command("clear", net, "--drop", "gradient", "-o", "small.t7")
    assert done.code == 0
    assert 150_000 < os.path.getsize("small.t7") < 165_000
    assert "gradWeight and gradBias" in done.out
    assert "net:parameters()" in done.out
    assert "gradient" not in cs.inspect("small.t7").to_dict()["roles"]


def test_kept_gradients_are_mentioned_with_the_option_that_drops_them(command: Command, net: str) -> None:
    assert "--drop gradient drops them too" in command("clear", net, "-o", "small.t7").out


def test_in_place_replaces_the_file_and_leaves_its_permissions(command: Command, net: str, here: Path) -> None:
    os.chmod(net, 0o640)
    assert command("clear", net, "--in-place").code == 0
    assert os.path.getsize(net) <= TORCH7_CLEARED
    assert stat.S_IMODE(os.stat(net).st_mode) == 0o640
    assert files(here) == ["net.t7"]


def test_clearing_a_second_time_changes_nothing(command: Command, net: str) -> None:
    command("clear", net, "--in-place")
    once = Path(net).read_bytes()
    done = command("clear", net, "--in-place")
    assert done.code == 0
    assert "nothing to clear" in done.out
    assert Path(net).read_bytes() == once


def test_a_dry_run_says_the_same_and_writes_nothing(command: Command, net: str, here: Path) -> None:
    dry = command("clear", net, "--dry-run")
    assert "nothing was written" in dry.out
    assert files(here) == ["net.t7"]
    assert command("clear", net, "-o", "elsewhere.t7", "--dry-run").code == 0
    assert command("clear", net, "--in-place", "--dry-run").code == 0
    assert files(here) == ["net.t7"]
    assert os.path.getsize(net) > 4_000_000
    assert command("clear", net, "-o", "small.t7").lines[1:] == dry.lines[1:]


def test_keep_leaves_a_role(command: Command, net: str) -> None:
    assert command("clear", net, "--keep", "transient", "-o", "kept.t7").code == 0
    assert cs.inspect("kept.t7").by_role()[cs.Role.TRANSIENT] == cs.inspect(net).by_role()[cs.Role.TRANSIENT]


def test_drop_code_removes_functions(command: Command, here: Path) -> None:
    t7.save(t7.Table(step=t7.Function(b"\x1bLJ\x02" * 50, t7.Table()), epoch=3.0), "with.t7")
    assert command("clear", "with.t7", "-o", "kept.t7").code == 0
    assert command("clear", "with.t7", "--drop", "code", "-o", "without.t7").code == 0
    assert "step" in t7.load("kept.t7")
    assert dict(t7.load("without.t7")) == {"epoch": 3.0}


def test_a_class_of_ones_own_is_declared_on_the_command_line(command: Command, here: Path) -> None:
    gate = t7.Table(weight=t7.Tensor.of([1.0]), seen=t7.Tensor.of([2.0] * 9), _type="torch.DoubleTensor")
    t7.save(t7.Object("ours.Gate", gate), "gate.t7")
    done = command("clear", "gate.t7", "-o", "kept.t7")
    assert "--transient ours.Gate:seen" in " ".join(done.out.split())
    done = command("clear", "gate.t7", "--transient", "ours.Gate:seen", "-o", "small.t7")
    assert done.code == 0
    assert "--transient" not in done.out
    assert t7.load("kept.t7")["seen"].numel == 9
    assert t7.load("small.t7")["seen"].numel == 0
    assert t7.load("small.t7")["weight"].numel == 1


def test_dropped_optimizer_state_is_named_with_the_option_that_keeps_it(command: Command, here: Path) -> None:
    state = t7.Table(learningRate=0.1, evalCounter=7.0, dfdx=t7.Tensor.of([1.0, 2.0]))
    t7.save(t7.Table(model=t7.Object("nn.Identity", t7.Table()), optimState=state, epoch=12.0), "checkpoint.t7")
    done = command("clear", "checkpoint.t7", "-o", "small.t7")
    assert "--keep optimizer" in done.out
    assert "optimState.dfdx" in done.out
    assert t7.load("small.t7")["epoch"] == 12.0
    assert command("clear", "checkpoint.t7", "--keep", "optimizer", "-o", "kept.t7").code == 0
    assert t7.load("kept.t7")["optimState"]["dfdx"].numel == 2


@pytest.fixture
def tree(net: str, here: Path) -> Path:
    """A folder of nets: ``nets/one.t7``, ``nets/deep/two.T7``, and a file that is none."""
    folder = here / "nets"
    (folder / "deep").mkdir(parents=True)
    for name in ("one.t7", "deep/two.T7"):
        (folder / name).write_bytes(Path(net).read_bytes())
    (folder / "notes.txt").write_text("not a net")
    return folder


def test_a_folder_is_cleared_at_any_depth_into_a_folder_of_the_same_shape(command: Command, tree: Path) -> None:
    done = command("clear", "nets", "-o", "small")
    assert (done.code, done.err) == (0, "")
    assert files(Path("small")) == ["deep/two.T7", "one.t7"]
    assert "2 files cleared" in done.out
    for name in files(Path("small")):
        assert cs.verify(tree / name, Path("small", name))
    assert files(tree) == ["deep/two.T7", "notes.txt", "one.t7"]


def test_a_folder_inside_the_one_that_is_cleared_is_not_cleared_again(command: Command, tree: Path) -> None:
    assert command("clear", "nets", "-o", "nets/small/").code == 0
    assert command("clear", "nets", "-o", "nets/small/").code == 0
    assert files(tree / "small") == ["deep/two.T7", "one.t7"]


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("nets/*.t7", ["one.t7"]),
        ("nets/**/*.[tT]7", ["deep/two.T7", "one.t7"]),
        ("nets/d*", ["deep/two.T7"]),
        ("n?ts/one.t7", ["nets/one.t7"]),
    ],
)
def test_quoted_patterns_are_expanded(command: Command, tree: Path, pattern: str, expected: list[str]) -> None:
    assert command("clear", pattern, "-o", "small/").code == 0
    assert files(Path("small")) == expected


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(command: Command, net: str, here: Path) -> None:
    os.rename(net, "net[1].t7")
    assert command("clear", "net[1].t7", "-o", "small.t7").code == 0
    assert (here / "small.t7").is_file()


def test_a_file_named_twice_is_cleared_once(command: Command, net: str) -> None:
    os.symlink(net, "link.t7")
    done = command("clear", net, f"./{net}", "link.t7", "-o", "small/")
    assert files(Path("small")) == ["net.t7"]
    assert "1 file " in done.out


def test_everything_is_cleared_in_place(command: Command, tree: Path, net: str) -> None:
    assert command("clear", "nets", net, "--in-place").code == 0
    assert all(os.path.getsize(path) <= TORCH7_CLEARED for path in (net, tree / "one.t7", tree / "deep/two.T7"))


def test_a_bad_file_among_good_ones_is_named_and_the_good_ones_are_cleared(command: Command, tree: Path) -> None:
    whole = (tree / "one.t7").read_bytes()
    (tree / "cut.t7").write_bytes(whole[:100_000])
    done = command("clear", "nets", "-o", "small")
    assert re.match(r"nets/cut\.t7: at byte \d+: expected .*\n$", done.err.removeprefix("clearstate: "))
    assert done.code == 2
    assert files(Path("small")) == ["deep/two.T7", "one.t7"]
    assert "2 files cleared, 1 could not be" in done.out
    assert command("clear", "nets/cut.t7", "--in-place").refused()
    assert (tree / "cut.t7").read_bytes() == whole[:100_000]


def test_a_file_that_is_there_is_replaced_and_keeps_its_permissions(command: Command, net: str) -> None:
    Path("small.t7").write_bytes(b"older")
    os.chmod("small.t7", 0o600)
    assert command("clear", net, "-o", "small.t7").code == 0
    assert cs.verify(net, "small.t7")
    assert stat.S_IMODE(os.stat("small.t7").st_mode) == 0o600


@pytest.mark.parametrize("path", paths(FORMATS))
def test_every_variant_is_written_as_it_was(command: Command, path: Path) -> None:
    assert command("clear", path, "-o", "small.t7").code == 0
    assert command("verify", path, "small.t7").code == 0
    assert cs.inspect("small.t7").kind == cs.inspect(path).kind


def test_recorded_cases_are_cleared_to_the_same_model(command: Command) -> None:
    for name in CASES[::12]:
        assert command("clear", case(name) / "before.t7", "-o", "small.t7").code == 0, name
        assert command("verify", case(name) / "before.t7", "small.t7").code == 0, name


def test_names_that_are_no_text_are_files_like_any(command: Command, net: str, here: Path) -> None:
    odd = os.fsdecode(b"n\xff.t7")
    os.rename(net, odd)
    done = command("clear", odd, "-o", os.fsdecode(b"small\xfe.t7"))
    assert done.code == 0
    assert done.lines[0] == r"n\xff.t7 → small\xfe.t7"
    assert os.listdir(os.fsencode(here)).count(b"small\xfe.t7") == 1


class Terminal(io.StringIO):
    """A terminal to write to."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def slowly(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Terminal]:
    """Makes clearing last, after its last byte, until the bar has had the time to appear; returns the terminal."""

    def begin(patience: float) -> Terminal:
        monkeypatch.setattr(meter, "PATIENCE", patience)
        monkeypatch.setattr("sys.stderr", terminal := Terminal())
        monkeypatch.setenv("TERM", "xterm")
        real, shown = cs.clear_file, meter.Meter._show

        def show(self: Any) -> None:
            shown(self)
            appeared.set()

        appeared = threading.Event()

        def clear_file(*args: Any, **options: Any) -> cs.Cleared:
            done = real(*args, **options)
            appeared.wait(20 if patience < 1 else 0)
            options["progress"](1, 2)
            return done

        monkeypatch.setattr(meter.Meter, "_show", show)
        monkeypatch.setattr(cs, "clear_file", clear_file)
        return terminal

    return begin


def test_a_bar_is_drawn_on_stderr_where_clearing_lasts(
    command: Command, net: str, slowly: Callable[[float], Terminal]
) -> None:
    terminal = slowly(0.01)
    done = command("clear", net, "-o", "small.t7")
    assert done.code == 0
    assert "net.t7" in terminal.getvalue()
    assert "%" in terminal.getvalue()
    assert done.lines[0] == "net.t7 → small.t7"


def test_no_bar_is_drawn_in_the_first_second(command: Command, net: str, slowly: Callable[[float], Terminal]) -> None:
    assert meter.PATIENCE == 1.0
    terminal = slowly(meter.PATIENCE)
    assert command("clear", net, "-o", "small.t7").code == 0
    assert terminal.getvalue() == ""
