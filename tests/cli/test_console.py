"""The real command, as a process of its own: how it starts, ends, and gets on with pipes, disks and signals."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import clearstate as cs
from tests.recordings import EXAMPLES

COMMAND = Path(sys.executable).with_name("clearstate")
NET = EXAMPLES / "digits.t7"


def run(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    settings: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "timeout": 60}
    return subprocess.run([COMMAND, *words], **{**settings, **options})  # noqa: PLW1510


def shell(line: str) -> subprocess.CompletedProcess[str]:
    names = {**os.environ, "COMMAND": str(COMMAND), "NET": str(NET)}
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=names,
    )


def test_the_console_script_and_the_module_are_one_command() -> None:
    module = subprocess.run(
        [sys.executable, "-m", "clearstate", "--version"], capture_output=True, text=True, check=True
    )
    assert module.stdout == run("--version").stdout == f"clearstate {cs.__version__}\n"


def test_help_names_every_command_with_an_example() -> None:
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == run("--help").stdout == run("-h").stdout
    for command in ("inspect", "clear", "verify"):
        assert f"\n  {command} " in done.stdout
        of_one = run(command, "--help")
        assert of_one.returncode == 0
        assert f"Example: clearstate {command} model.t7" in of_one.stdout


def loaded_by(*words: str | Path) -> set[str]:
    """The modules that a command has loaded when it is done."""
    code = "import sys; from clearstate.cli import run; code = run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_answers_without_numpy_or_a_library_of_validators() -> None:
    assert not {"numpy", "pydantic", "rich", "torch", "clearstate.formats"} & loaded_by("--help")


def test_inspect_answers_without_a_library_of_validators_or_of_drawing() -> None:
    loaded = loaded_by("inspect", NET)
    assert "numpy" in loaded
    assert not {"pydantic", "rich", "torch", "clearstate.formats.sniff", "clearstate.formats.atomic"} & loaded


def test_exit_codes_are_0_for_done_1_for_different_2_for_refused(tmp_path: Path) -> None:
    small = tmp_path / "small.t7"
    assert run("clear", NET, "-o", small).returncode == 0
    assert run("verify", NET, small).returncode == 0
    assert run("verify", NET, EXAMPLES / "digits-test.t7").returncode == 1
    done = run("inspect", tmp_path / "missing.t7")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_nobody_is_bothered_when_the_reader_of_a_pipe_has_gone() -> None:
    for words in ('inspect "$NET" --all', "--help", 'verify "$NET" "$NET"'):
        done = shell(f'(sleep 0.4; exec "$COMMAND" {words}) | true')
        assert (done.returncode, done.stderr) == (141, ""), words
    assert shell('"$COMMAND" inspect "$NET" --all | head -1').stdout.startswith(str(NET))


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_behind_stdout_is_said() -> None:
    for words in ('inspect "$NET"', "--help"):
        done = shell(f'"$COMMAND" {words} > /dev/full')
        assert (done.returncode, done.stderr) == (2, "clearstate: no space left on device\n")


def test_without_stdout_or_stderr_the_exit_code_still_tells(tmp_path: Path) -> None:
    assert shell('"$COMMAND" inspect "$NET" >&-').returncode == 0
    assert shell(f'"$COMMAND" clear "$NET" -o {tmp_path}/small.t7 >&-').returncode == 0
    assert cs.verify(NET, tmp_path / "small.t7")
    assert shell('"$COMMAND" inspect missing.t7 2>&-').returncode == 2
    if os.path.exists("/dev/full"):
        assert shell('"$COMMAND" inspect missing.t7 2>/dev/full').returncode == 2


def test_json_from_the_command_is_json() -> None:
    done = run("inspect", "--json", NET)
    assert done.stderr == ""
    assert json.loads(done.stdout)["size"] == NET.stat().st_size


def on_a_terminal(*words: str | Path, **environment: str) -> str:
    """What a command shows on a terminal of its own."""
    ours, theirs = pty.openpty()
    names = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = subprocess.Popen(
        [COMMAND, *words], stdin=theirs, stdout=theirs, stderr=theirs, env={**names, "TERM": "xterm", **environment}
    )
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # Linux's way to say that nobody is left on the other side
        pass
    finally:
        os.close(ours)
    assert process.wait(60) in (0, 2)
    return shown.decode()


def test_colour_is_for_terminals_that_want_it() -> None:
    assert "\x1b[" in on_a_terminal("inspect", NET)
    assert "\x1b[31m" in on_a_terminal("inspect", "missing.t7")
    assert "\x1b" not in on_a_terminal("inspect", NET, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal("inspect", NET, TERM="dumb")
    assert "\x1b" not in run("inspect", NET).stdout


def test_an_output_that_has_only_ascii_gets_only_ascii() -> None:
    names = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = run("inspect", NET, env=names)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert "+ (1) nn.SpatialConvolution" in done.stdout


def test_the_advised_command_works_in_a_shell_for_any_name(tmp_path: Path) -> None:
    for raw in (b"my net.t7", b"it's.t7", b"\xff\xfe.t7", b"a\x1b[31m\n'b.t7", "é$x.t7".encode(), b"-o.t7"):
        folder = tmp_path / raw[:2].hex()
        folder.mkdir()
        path = os.path.join(os.fsencode(folder), raw)
        os.symlink(NET, path)
        advice = run("inspect", os.fsdecode(path)).stdout.splitlines()[-1].strip()
        line = advice.partition("clearstate clear ")[2]
        done = shell(f'"$COMMAND" clear {line}')
        assert (done.returncode, done.stderr) == (0, ""), advice
        assert len(os.listdir(folder)) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> tuple[Path, str]:
    """A folder that takes no file of more than 128 KB, and what a shell must say first for that to be so."""
    return tmp_path, "ulimit -f 128;"


def test_a_full_disk_leaves_the_old_file_and_names_the_one_that_was_not_written(
    small_disk: tuple[Path, str],
) -> None:
    folder, limit = small_disk
    (folder / "net.t7").write_bytes(NET.read_bytes())
    for words, name in ((f"-o {folder}/small.t7", "small.t7"), ("--in-place", "net.t7")):
        done = shell(f'{limit} "$COMMAND" clear {folder}/net.t7 {words}')
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"clearstate: cannot write {folder}/{name}: file too large\n"
        assert os.listdir(folder) == ["net.t7"]
        assert (folder / "net.t7").read_bytes() == NET.read_bytes()


def test_ctrl_c_and_kill_9_leave_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "net.t7"
    path.write_bytes(NET.read_bytes())
    run("clear", path, "--in-place", check=True)
    new = path.read_bytes()
    start = time.perf_counter()
    run("clear", path, "--in-place", check=True)
    usual = time.perf_counter() - start
    for sent, quiet in ((signal.SIGINT, True), (signal.SIGKILL, False)):
        for turn in range(6):
            path.write_bytes(NET.read_bytes())
            process = subprocess.Popen([COMMAND, "clear", path, "--in-place"], stdout=-1, stderr=-1, text=True)
            time.sleep(usual * (0.5 + turn * 0.1))
            process.send_signal(sent)
            _, err = process.communicate(timeout=60)
            assert path.read_bytes() in (NET.read_bytes(), new)
            if quiet and process.returncode == 130:
                assert err == ""
