"""The documents, and what is in them: fenced blocks, tables, links and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.recordings import REPO

DOCS = REPO / "docs"
DOCUMENTS = [REPO / "README.md", REPO / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

_FENCED = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)[^)]*\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, the line it begins on, and its text."""

    language: str
    line: int
    text: str


def blocks(path: Path, *languages: str) -> Iterator[Block]:
    """A document's fenced blocks in these languages, in their order."""
    text = path.read_text(encoding="utf-8")
    for match in _FENCED.finditer(text):
        if match[1] in languages:
            yield Block(match[1], text.count("\n", 0, match.start(2)), match[2])


def prose(path: Path) -> str:
    """A document without its fenced blocks."""
    return _FENCED.sub("", path.read_text(encoding="utf-8"))


def links(path: Path) -> Iterator[str]:
    """Where a document's links lead."""
    for match in _LINK.finditer(prose(path)):
        yield match[1]


def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings."""
    return {
        re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", text).strip().lower()) for text in _HEADING.findall(prose(path))
    }


def rows(path: Path, heading: str, *, quotes: bool = False) -> list[list[str]]:
    """Cells of the table whose first column has this heading, back quotes taken off unless they are asked for."""
    lines = iter(path.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith(f"| {heading} |"):
            next(lines)
            break
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        found.append(cells if quotes else [cell.replace("`", "") for cell in cells])
    assert found, f"{path.name} has no table of {heading}"
    return found
