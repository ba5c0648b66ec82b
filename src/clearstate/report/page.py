"""The page itself: inventories as text and data, styles and scripts, in one file that may fetch nothing.

Names in files are hostile. What Python writes is escaped for HTML; what the scripts draw comes as JSON in which no
character can end its element, and becomes text, never markup. The page's policy lets only these very scripts run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections import Counter
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from ..errors import ClearstateError
from ..roles import DROPPED_BY_DEFAULT, GLOSS, Role
from ..wording import size_text
from .columns import clean, columns
from .drawn import Held

SCRIPTS = ("tree.js", "colours.js", "maps.js", "table.js", "modules.js", "graphs.js", "page.js")
"""Our scripts, in the order they need each other; together they are one."""

START = "<!doctype html>"


def write(path: str | os.PathLike[str], before: Held, after: Held | None = None) -> None:
    """Writes the page to a file.

    Args:
        path: the file; an older report is replaced, anything else is not.
        before: what a model or file holds.
        after: what it holds once it is cleared.

    Raises:
        ClearstateError: there is a file that is no report.
        OSError: the file cannot be written.

    >>> import tempfile
    >>> name = os.path.join(tempfile.mkdtemp(), "report.html")
    >>> from clearstate.inventory import Inventory
    >>> write(name, Inventory("empty.t7", "Torch7 file", 0, ()))
    >>> os.path.getsize(name) > 100_000
    True
    """
    text = page(before, after).encode()
    check(path)
    with open(path, "wb") as handle:
        handle.write(text)


def check(path: str | os.PathLike[str]) -> None:
    """Whether a report may be written there.

    Raises:
        ClearstateError: there is a file that is no report.
        OSError: there is something that cannot be read.
    """
    if os.path.exists(path):
        with open(path, "rb") as old:
            start = old.read(len(START))
        if start and start.lower() != START.encode():
            raise ClearstateError(f"{os.fspath(path)} is no report but another file: it is left alone; name a new one")


def page(before: Held, after: Held | None = None) -> str:
    """The page as text.

    Args:
        before: what a model or file holds.
        after: what it holds once it is cleared: the two are drawn side by side.

    >>> from clearstate.inventory import Inventory
    >>> page(Inventory("<script>.t7", "Torch7 file", 0, ())).count("<script>.t7")
    0
    """
    charts, script, style = asset("charts.js"), _script(), asset("style.css")
    scripts = " ".join(_hash(text) for text in (charts, script))
    policy = f"default-src 'none'; script-src {scripts}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    return Template(asset("page.html")).substitute(
        policy=policy,
        style=style,
        charts=charts,
        script=script,
        title=_text(_title(before, after)),
        lead=_lead(before, after),
        sources=_sources(before, after),
        notes=_notes(before, after),
        totals=_totals(before, after),
        data=_data(columns(before, after)),
    )


@cache
def asset(name: str) -> str:
    """The text of a file that comes with the package."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    """Our scripts as one, whose names are seen by nobody else."""
    parts = "\n".join(asset(name) for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


@cache
def _hash(text: str) -> str:
    """How a content policy names an element's text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(value: dict[str, Any]) -> str:
    """JSON that holds no character with a meaning in HTML, and none but ASCII."""
    text = json.dumps(value, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _text(text: str) -> str:
    return html.escape(clean(text))


def _title(before: Held, after: Held | None) -> str:
    names = [before.source] if after is None or after.source == before.source else [before.source, after.source]
    return " → ".join(name.replace("\\", "/").rstrip("/").rpartition("/")[2] or name for name in names)


def _lead(before: Held, after: Held | None) -> str:
    """What the file is and how big, in one sentence."""
    pieces = f"{len(before.entries):,} {'piece' if len(before.entries) == 1 else 'pieces'}"
    modules = len(before.modules)
    inside = f" in {modules:,} {'module' if modules == 1 else 'modules'}" if modules else ""
    if after is None:
        rest = f"<b>{size_text(before.size)}</b>"
    else:
        rest = f"<b>{size_text(before.size)} → {size_text(after.size)}</b>"
        if before.size > after.size:
            freed = before.size - after.size
            rest += f", {size_text(freed)} less ({freed / before.size:.1%})"
    return f"{_text(before.kind)}, {rest}, {pieces}{inside}"


def _sources(before: Held, after: Held | None) -> str:
    """Where the files are, as far as that was told."""
    sources = dict.fromkeys(side.source for side in (before, after) if side is not None)
    told = " → ".join(sources)
    return "" if told == _title(before, after) else f"<p class=source>{_text(told)}</p>"


def _notes(before: Held, after: Held | None) -> str:
    notes = dict.fromkeys([*before.notes, *(after.notes if after is not None else ())])
    return f"<ul id=notes>{''.join(f'<li>{_text(note)}</li>' for note in notes)}</ul>" if notes else ""


def _totals(before: Held, after: Held | None) -> str:
    """Bytes by role, as a table that reads without any script."""
    old = before.by_role()
    new = after.by_role() if after is not None else {}
    met = [role for role in Role if old.get(role) or new.get(role)]
    met.sort(key=lambda role: -(old.get(role) or new[role]))
    heads = [
        "Role",
        "What it is",
        "When cleared",
        "Pieces",
        *(["Bytes", "Share"] if after is None else ["Before", "After"]),
    ]
    kinds = {"What it is": " class=gloss", **dict.fromkeys(heads[3:], " class=n")}
    cells = (f"<th scope=col{kinds.get(head, '')}>{head}</th>" for head in heads)
    pieces = Counter(entry.role for entry in before.entries)
    rows = [
        _total(role, before.size, pieces[role], old.get(role, 0), None if after is None else new.get(role, 0))
        for role in met
    ]
    return f"<table id=totals><thead><tr>{''.join(cells)}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _total(role: Role, size: int, pieces: int, old: int, new: int | None) -> str:
    goes = role in DROPPED_BY_DEFAULT
    fate = "goes" if goes else "stays, or goes with <span class=word>--drop</span>" if role.droppable else "stays"
    share = f"{old / max(size, 1):.1%}" if new is None else size_text(new) if new else "&ndash;"
    cells: Iterable[tuple[str, str]] = (
        (" class=gloss", GLOSS[role]),
        (" class=goes" if goes else "", fate),
        (" class=n", f"{pieces:,}"),
        (" class=n", size_text(old) if old else "&ndash;"),
        (" class=n", share),
    )
    name = f"<th scope=row><i class=swatch></i>{role}</th>"
    return f"<tr data-role={role}>{name}{''.join(f'<td{attribute}>{text}</td>' for attribute, text in cells)}</tr>"
