"""Lines for a screen: numbers, bars, names from hostile files; plain text when the output is no terminal.

A line is a list of `Part`: text with the name of a style. Nothing but `say` and `complain` writes, and
both let no control character through, whatever a file's names hold.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TextIO

import typer


class Exit(IntEnum):
    """Exit codes."""

    DONE = 0
    DIFFERENT = 1
    REFUSED = 2
    STOPPED = 130
    UNREAD = 141


class Part(NamedTuple):
    """Text in one style."""

    text: str
    style: str = ""


Line = Sequence[Part]

STYLES: dict[str, dict[str, Any]] = {
    "strong": {"bold": True},
    "faint": {"dim": True},
    "goes": {"fg": "yellow"},
    "stays": {"fg": "green"},
    "wrong": {"fg": "red"},
    "command": {"fg": "cyan"},
}

PLAIN = str.maketrans("█▏▎▍▌▋▊▉│├└…→", "#'''::::|+`~>")
"""What stands for the drawing characters where the output's encoding has none of them."""


class Screen(NamedTuple):
    """How much fits: columns, and rows that are seen at once."""

    width: int
    height: int


def screen() -> Screen:
    """The terminal's size; 100 columns where the output is no terminal, so that it is the same everywhere."""
    size = shutil.get_terminal_size((100, 50)) if _is_terminal(sys.stdout) else _told()
    return Screen(min(max(size[0], 60), 160), max(size[1], 20))


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def _told() -> tuple[int, int]:
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 6 else 100, 50


def clean(text: str) -> str:
    r"""Text without anything that a terminal would obey: such characters become escapes.

    >>> clean("a\x1b[2J\nb\u202e"), clean(os.fsdecode(b"\xff.t7"))
    ('a\\x1b[2J\\nb\\u202e', '\\xff.t7')
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # how Python holds a byte of a file's name that is no text
        code -= 0xDC00
        return f"\\x{code:02x}"
    return character.encode("unicode_escape").decode()


def quoted(path: str) -> str:
    r"""A file's name as a word of a shell's command line; bash and zsh know the escapes.

    >>> print(quoted("net.t7"), quoted("my net.t7"), quoted("it's\n.t7"))
    net.t7 'my net.t7' $'it\'s\n.t7'
    """
    if path.isprintable():
        return shlex.quote(path)
    return "$'" + "".join(clean(c) if c not in "\\'" else f"\\{c}" for c in path) + "'"


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def fit(text: str, width: int) -> str:
    """The text in exactly ``width`` columns; what is too long loses its middle.

    >>> fit("weight", 8), fit("modules[1].modules[2].weight", 16)
    ('weight  ', 'modul…[2].weight')
    """
    text = clean(text)
    if cells(text) > width:
        tail = (width - 1) * 2 // 3
        head = width - 1 - tail
        left, right = text[:head], text[len(text) - tail :] if tail > 0 else ""
        while cells(left) + 1 + cells(right) > width:
            left, right = left[:-1], right[1:]
        text = f"{left}…{right}"
    return text + " " * (width - cells(text))


def bar(fraction: float, width: int) -> str:
    """A bar of ``fraction`` of ``width`` columns, drawn to an eighth of one; what is not nothing shows.

    >>> bar(0.5, 5), bar(0.0001, 5), bar(0, 5)
    ('██▌', '▏', '')
    """
    eighths = min(round(fraction * width * 8), width * 8)
    full, rest = divmod(max(eighths, 1 if fraction > 0 else 0), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()


def percent(part: int, whole: int) -> str:
    """A share for people: ``93.5%``, ``<0.1%``."""
    share = part / max(whole, 1)
    return "<0.1%" if 0 < share < 0.0005 else f"{share:.1%}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """``1 file``, ``1,024 files``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def wrapped(text: str, width: int, first: str = "", indent: str = "", style: str = "") -> list[Line]:
    """A sentence in lines of at most ``width``; words that are longer, such as a command, stay whole."""
    rows: list[str] = []
    row = first
    empty = True
    for word in clean(text).split(" "):
        if not empty and cells(row) + 1 + cells(word) > width:
            rows.append(row)
            row, empty = indent, True
        row = f"{row}{word}" if empty else f"{row} {word}"
        empty = False
    return [[Part(r, style)] for r in [*rows, row]]


def say(what: str | Iterable[Line]) -> None:
    """Prints to stdout: in colour on a terminal that has it, else plain; nowhere where there is none."""
    try:
        _write([[Part(row)] for row in what.split("\n")] if isinstance(what, str) else what, sys.stdout)
    except BrokenPipeError:
        _let_go(sys.stdout)
        raise typer.Exit(Exit.UNREAD) from None


def complain(message: str) -> None:
    """Prints one sentence to stderr; where nobody can read it, the exit code says enough."""
    try:
        _write([[Part("clearstate: ", "wrong"), Part(message)]], sys.stderr)
    except OSError:
        _let_go(sys.stderr)


def _write(lines: Iterable[Line], stream: TextIO | None) -> None:
    if stream is None:
        return
    colour = _is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    rows = []
    for line in lines:
        parts = [Part(clean(text), style) for text, style in line]
        if colour:
            rows.append("".join(typer.style(p.text, **STYLES[p.style]) if p.style else p.text for p in parts))
        else:
            rows.append("".join(part.text for part in parts).rstrip())
    typer.echo(writable("\n".join(rows), stream), file=stream)


def writable(text: str, stream: TextIO) -> str:
    """The text in characters that the stream's encoding has: plain ones for those drawn with, else escapes."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    return text


def _let_go(stream: TextIO) -> None:
    """Nobody reads this stream any more: what is still to be flushed goes nowhere, without a complaint at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
