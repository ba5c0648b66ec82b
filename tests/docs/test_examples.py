"""What the documents show is what happens: every Python example and every command is run, and its output compared."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from clearstate.cli import run
from tests.docs import samples
from tests.docs.pages import DOCUMENTS, Block, blocks
from tests.recordings import REPO

CHECKER = doctest.OutputChecker()
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


class Command(NamedTuple):
    """A command of a console block, and the output that is shown below it."""

    line: int
    text: str
    shown: str


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block; what begins with a dollar sign is one, all below it is its output."""
    lines = block.text.splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], f"line {block.line}: a console block begins with a command"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text = re.sub(r"\s+#.*", "", lines[start][2:]).strip()
        yield Command(block.line + start + 1, text, "".join(lines[start + 1 : end]))


class Console:
    """Runs commands as a shell would: clearstate's in this process, all others in a shell."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.capture = capture
        self.code = 0

    def __call__(self, command: str) -> str:
        """What the command prints, errors included."""
        if command.startswith(("pip ", "make ")):
            self.code = 0
            return _checked(command)
        if not command.startswith("clearstate ") or set(command) & set("|<>;&$"):
            env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
            shell = ["bash", "-c", command.replace("$?", str(self.code))]
            done = subprocess.run(
                shell, check=False, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            self.code = done.returncode
            return done.stdout
        self.capture.readouterr()
        self.code = run(shlex.split(command)[1:])
        printed = self.capture.readouterr()
        return printed.out + printed.err


def _checked(command: str) -> str:
    """For commands that install or test the whole project: whether there is what they ask for."""
    program, what = command.split(maxsplit=1)
    if program == "make":
        assert re.search(rf"^{what}:", (REPO / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), what
    else:
        found = re.fullmatch(r"install '?(?:clearstate|\.)(?:\[(\w+)\])?'?", what)
        assert found is not None, command
        project = (REPO / "pyproject.toml").read_text(encoding="utf-8")
        assert found[1] is None or re.search(rf"^{found[1]} = \[", project, re.MULTILINE), command
    return ""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(REPO)))
def test_the_examples_of_a_document_do_what_they_show(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    declarations: None,
) -> None:
    shown = list(blocks(path, "python", "pycon", "console"))
    if not shown:
        return
    samples.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    console = Console(capsys)
    page = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", page)
    names = page.__dict__
    runner = doctest.DocTestRunner(optionflags=OPTIONS)
    wrong: list[str] = []
    for block in shown:
        if block.language == "console":
            wrong += [told for command in commands(block) if (told := _told(command, console, path))]
        elif ">>>" in block.text:
            test = doctest.DocTestParser().get_doctest(block.text, names, path.name, str(path), block.line)
            test.globs = names
            runner.run(test, out=wrong.append, clear_globs=False)
        else:
            exec(compile("\n" * block.line + block.text, str(path), "exec"), names)
    for name in set(sys.modules) - before:
        if Path(getattr(sys.modules[name], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]
    importlib.invalidate_caches()
    assert not wrong, "".join(wrong)


def _told(command: Command, console: Console, path: Path) -> str:
    """What is wrong with a command: its output is another than the one shown; where none is shown, it failed."""
    printed = console(command.text)
    where = f"{path.name}, line {command.line}: {command.text}\n"
    if not command.shown:
        return f"{where}exit code {console.code}:\n{printed}\n" if console.code else ""
    example = doctest.Example("", command.shown)
    if CHECKER.check_output(command.shown, printed, OPTIONS):
        return ""
    return where + CHECKER.output_difference(example, printed, OPTIONS)


def test_a_command_that_prints_something_else_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = commands(Block("console", 0, "$ echo one   # a number\ntwo\n"))
    assert command == Command(1, "echo one", "two\n")
    assert "two" in _told(command, Console(capsys), Path("a.md"))
    assert not _told(command._replace(shown="o...\n"), Console(capsys), Path("a.md"))
    assert "exit code 3" in _told(Command(1, "exit 3", ""), Console(capsys), Path("a.md"))
