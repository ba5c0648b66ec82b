"""``clearstate inspect``: what a file holds, by role, and why it is so big. On one screen."""

from __future__ import annotations

import os
from typing import Annotated

import typer

import clearstate as cs

from .drawing import (
    Exit,
    Line,
    Part,
    Screen,
    bar,
    cells,
    clean,
    complain,
    counted,
    fit,
    percent,
    quoted,
    say,
    screen,
    wrapped,
)
from .files import find, long_size, readable, sentence
from .html import Html, may_write, write

NO_MODEL = (*(role for role in cs.Role if role.droppable), cs.Role.METADATA)
"""Roles that a file can have without a model in it."""

WORDS = 38
"""Columns for such words with what adds that role to those that go."""

LUA = "numbered from 1, as in Lua: (4) is modules[4]"
ROWS = "equal ones: one line; inside, one of them (--all)"
"""What is to be known of the tree; each as wide as the narrowest screen, at most."""

PIECES = 7
"""How many of the largest pieces one screen shows."""


def inspect(
    files: Annotated[list[str], typer.Argument(metavar="FILE", hidden=True)],
    everything: Annotated[bool, typer.Option("--all", help="Every module with every field, however many.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document a line, for each file.")] = False,
    html: Html = None,
    longs: Annotated[
        str | None, typer.Option("--long-size", metavar="4|8", help="Bytes of a C long; found out unless given.")
    ] = None,
) -> None:
    """Show what a file holds by role, what is biggest, and what clearing would save.

    FILE: files of Torch7, PyTorch and safetensors, indexes of shards, folders (with all in them),
    quoted patterns, and addresses (s3://..., hf://...).
    """
    size = long_size(longs)
    failed = False
    found = find(files)
    may_write(html, [file.path for file in found])
    for number, file in enumerate(found):
        try:
            inventory = cs.inspect(readable(file.path), long_size=size)
        except Exception as error:
            complain(sentence(error, reading=file.path))
            failed = True
            continue
        if as_json:
            say(inventory.to_json())
        else:
            say([*([[]] if number else []), *report(inventory, screen(), everything=everything)])
        if html is not None:
            write(html, inventory)
    if failed:
        raise typer.Exit(Exit.REFUSED)


def report(inventory: cs.Inventory, on: Screen, *, everything: bool = False) -> list[Line]:
    """All that `inspect` prints of one file."""
    from clearstate.roles import DROPPED_BY_DEFAULT

    from .tree import drawn, folded, forest, has_rows

    width = on.width
    lines = [*_heading(inventory, width), [], *_roles(inventory, width)]
    going = [entry for entry in inventory.select(*DROPPED_BY_DEFAULT) if entry.bytes]
    staying = [entry for entry in inventory.entries if entry.bytes and entry.shape is not None]
    pieces, title = (going, "Largest that go") if going else (staying, "Largest pieces")
    count = PIECES if going else min(PIECES, 4)
    if len(pieces) > 1:
        lines += [[], [Part(title, "strong")], *_pieces(pieces, count, width)]
    freed = sum(entry.bytes for entry in going)
    footer = [[], *_notes(inventory, width, everything), *_advice(inventory, freed, width)]
    if inventory.modules:
        roots = forest(inventory) if everything else folded(forest(inventory))
        said = [LUA] if inventory.kind.startswith("Torch7") else []
        said += [ROWS] if has_rows(roots) else []
        lines += [[], [Part("Modules", "strong"), *(Part(f"  {text}", "faint") for text in said[:1])]]
        lines += [[Part(f"{' ' * 9}{text}", "faint")] for text in said[1:]]
        rows = None if everything else max(on.height - len(lines) - len(footer) - 3, 8)
        lines += drawn(roots, width, rows, DROPPED_BY_DEFAULT)
    return [*lines, *footer]


def _heading(inventory: cs.Inventory, width: int) -> list[Line]:
    from clearstate.wording import size_text

    name, rest = clean(inventory.source), f"{inventory.kind}, {size_text(inventory.size)}"
    if cells(name) + 2 + len(rest) <= width:
        return [[Part(name, "strong"), Part(f"  {rest}")]]
    return [[Part(name, "strong")], [Part(rest)]]


def _roles(inventory: cs.Inventory, width: int) -> list[Line]:
    """A line for each role: bytes, share, a bar, whether clearing drops it, and what it is."""
    from clearstate.roles import DROPPED_BY_DEFAULT
    from clearstate.wording import size_text

    totals, size = inventory.by_role(), inventory.size
    long = max(10, min(30, width - 38 - WORDS))
    lines: list[Line] = []
    for role, count in totals.items():
        goes = role in DROPPED_BY_DEFAULT
        style = "goes" if goes else "stays"
        share = f"  {role!s:<9} {size_text(count):>8} {percent(count, size):>6}  "
        fate = "goes" if goes else "stays"
        words = inventory.gloss(role)
        gloss = words + (f" (--drop {role})" if role.droppable and not goes else "")
        drawn = bar(count / max(size, 1), long)
        start = [Part(share), Part(f"{drawn:<{long}}", style), Part(f"  {fate:<5}  ", style)]
        room = width - sum(len(part.text) for part in start)
        lines.append([*start, Part(gloss if len(gloss) <= room else fit(words, room) if room >= 28 else "")])
    return lines


def _pieces(pieces: list[cs.Entry], count: int, width: int) -> list[Line]:
    """The largest pieces: bytes, path, class of the module, sizes."""
    import heapq

    from clearstate.wording import size_text

    from .tree import geometry

    largest = heapq.nlargest(count, pieces, key=lambda entry: entry.bytes)
    shapes = max(len(geometry(entry)) for entry in largest)
    shapes = min(shapes, 30)
    room = width - 2 - 8 - 2 - 2 - shapes
    paths = min(max(cells(clean(entry.path or "the file itself")) for entry in largest), room)
    lines: list[Line] = [
        [
            Part(f"  {size_text(entry.bytes):>8}  "),
            Part(fit(entry.path or "the file itself", paths)),
            Part("  " + fit(geometry(entry), shapes), "faint"),
        ]
        for entry in largest
    ]
    rest = sum(entry.bytes for entry in pieces) - sum(entry.bytes for entry in largest)
    if rest:
        lines.append([Part(f"  {size_text(rest):>8}  … in {len(pieces) - len(largest):,} more", "faint")])
    return lines


def _notes(inventory: cs.Inventory, width: int, everything: bool) -> list[Line]:
    shown = inventory.notes if everything else inventory.notes[:3]
    lines = [line for note in shown for line in wrapped(note, width, "note: ", "      ")]
    if len(shown) < len(inventory.notes):
        more = counted(len(inventory.notes) - len(shown), "more note")
        lines.append([Part(f"      … {more} (--all)", "faint")])
    return lines


def _advice(inventory: cs.Inventory, freed: int, width: int) -> list[Line]:
    """What clearing would save, and the command that does it."""
    from clearstate.wording import size_text

    if not freed:
        return [[Part("Nothing to clear: work left nothing behind here.")]]
    if not any(entry.bytes for entry in inventory.entries if entry.role not in NO_MODEL):
        return [[Part("No model is in this file: all of it is what training left.")]]
    name = inventory.source.removesuffix("/")
    stem, ending = (name[:-8], name[-8:]) if name.endswith(".pth.tar") else os.path.splitext(name)
    here = "./" if name.startswith("-") else ""  # else it were read as an option
    command = f"clearstate clear {here}{quoted(inventory.source)} -o {here}{quoted(f'{stem}-cleared{ending}')}"
    text = f"Clearing saves {size_text(freed)} of {size_text(inventory.size)}:"
    if len(text) + 1 + cells(command) <= width:
        return [[Part(text + " "), Part(command, "command")]]
    return [[Part(text)], [Part("  "), Part(command, "command")]]
