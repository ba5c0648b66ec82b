"""The troubleshooting page has a line for each message of the program: here they are found in its source.

    python tools/site/messages.py    # adds lines that are missing to docs/troubleshooting.md, and takes old ones away

A line has the fixed words of a message, and `…` for what differs from time to time. New lines stand at the end of their
section, with no word on what to do yet: the tests ask for one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from clearstate.formats.kinds import KINDS

REPO = Path(__file__).parents[2]
SOURCE = REPO / "src" / "clearstate"
PAGE = REPO / "docs" / "troubleshooting.md"

OURS = KINDS["t7"][1]
"""What is said of files that clearstate reads."""

CUT = "clearstate reads it. If it is cut off, download it again."

REFUSALS = frozenset(
    "ClearstateError ConversionError NothingLeft Unmapped ValueError TypeError RuntimeError IndexError "
    "NotImplementedError FileNotFoundError OSError _refusal".split()
)
"""What is raised with a sentence."""

FORMAT = frozenset("FormatError Misfit _unexpected unexpected wrong _wrong truncated _truncated _cut".split())
"""What is raised with what was expected, and what was found; the methods of readers that make such an error."""

SECTIONS: tuple[tuple[str, str], ...] = (
    ("pickles", r"formats/pt/pickle/read\.py"),
    ("safetensors", r"formats/safetensors\.py:FormatError"),
    ("shards", r"formats/pt/container/shards\.py:FormatError"),
    ("PyTorch files", r"formats/(pt/.*|data\.py):FormatError"),
    ("t7 files", r"(formats/.*|verbs/inspect\.py):FormatError"),
    ("live modules", r"live/"),
    ("between backends", r"formats/t7/backends/\w*\.py:(Refused|without)"),
    ("leaving Torch7", r"(export/|verbs/export\.py|formats/t7/backends/|nn/t7/backends|verbs/convert\.py)"),
    ("layers", r"nn/(?!t7/(files|reading|writing|registry|packages|numbers|opaque)\.py)"),
    ("files of Torch7", r"(nn/|formats/t7/)"),
    ("checkpoints", r"formats/"),
    ("commands", r""),
)
"""Each section of the page that lists messages, and what its messages are matched by: the file, a colon, the kind."""

LISTS = frozenset(("between backends", "pickles", "safetensors", "shards", "PyTorch files", "t7 files", "layers"))
"""Sections in which one thing is to be done about every message; what, the text above them says."""


class Message(NamedTuple):
    """A message: where it comes from, what is raised, and its words."""

    file: str
    kind: str
    text: str

    @property
    def section(self) -> str:
        place = f"{self.file}:{'FormatError' if self.kind in FORMAT else self.kind}"
        return next(name for name, pattern in SECTIONS if re.match(pattern, place))


def messages() -> list[Message]:
    """All messages, in the order of the source, each once a section."""
    found: dict[tuple[str, str], Message] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for message in messages_of(path.read_text(encoding="utf-8"), path.relative_to(SOURCE).as_posix()):
            found.setdefault((message.section, message.text), message)
    return list(found.values())


def messages_of(source: str, file: str) -> Iterator[Message]:
    """The messages of one file.

    >>> [m.text for m in messages_of("raise ValueError(f'{a} is no role of {b!r}')", "roles.py")]
    ['… is no role of …']
    >>> [m.text for m in messages_of("FormatError('a type' if x else 'a size', 'none')", "formats/t7/a.py")]
    ['expected a type, found none', 'expected a size, found none']
    """
    tree = ast.parse(source)
    for scope, call in _calls(tree):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in REFUSALS:
            texts = [text for argument in call.args for text in _texts(argument, scope)][
                : 2 if len(call.args) == 1 else 1
            ]
        elif name in FORMAT and call.args:
            found = _texts(call.args[1], scope) if len(call.args) > 1 and name == "FormatError" else []
            end = f", found {found[0]}" if len(found) == 1 and _said(found[0]) else ""
            texts = [f"expected {text}{end}" for text in _texts(call.args[0], scope) if _said(text)]
        elif name == "without" and len(call.args) > 1:
            texts = _texts(call.args[1], scope)
        else:
            continue
        yield from (Message(file, name, text) for text in texts if _said(text))
    if "backends" in file:
        yield from (Message(file, "Refused", text) for text in _reasons(tree) if _said(text))


def _calls(tree: ast.AST, scope: ast.AST | None = None) -> Iterator[tuple[ast.AST, ast.Call]]:
    """All calls, each with the function it is in."""
    scope = scope or tree
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            yield scope, node
        yield from _calls(node, node if isinstance(node, ast.FunctionDef) else scope)


def _reasons(tree: ast.AST) -> Iterator[str]:
    """What functions return that say why something cannot be expressed, or nothing where it can."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef)
            and node.returns
            and ast.unparse(node.returns).strip("'\"") == "str | None"
        ):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and inner.value is not None:
                    yield from _texts(inner.value, node)


def _texts(node: ast.expr, scope: ast.AST, depth: int = 3) -> list[str]:
    """The texts that an expression can be, with … for what differs."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in node.values)]
    if isinstance(node, ast.IfExp):
        return _texts(node.body, scope) + _texts(node.orelse, scope)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [a + b for a in _texts(node.left, scope) for b in _texts(node.right, scope)]
    if isinstance(node, ast.Name) and depth:
        given = (n for n in ast.walk(scope) if isinstance(n, ast.Assign))
        values = [n.value for n in given if any(isinstance(t, ast.Name) and t.id == node.id for t in n.targets)]
        return [text for value in values for text in _texts(value, scope, depth - 1)]
    return []


def _said(text: str) -> bool:
    """Whether a text has words of its own."""
    return bool(re.search(r"[A-Za-z]{3}", text))


def cell(text: str) -> str:
    """A text as it stands on the page: one line, in back quotes, no bar of a table.

    >>> cell("say `-o` | or not")
    "`say '-o' / or not`"
    """
    line = " ".join(text.split()).replace("`", "'").replace("|", "/")
    return f"`{re.sub('…+', '…', line)}`"


_ROW = re.compile(r"^(?:\| (`[^`]*`) \|(.*)\||\* (`[^`]*`))$", re.MULTILINE)


def listed(page: str) -> dict[str, dict[str, str]]:
    """The lines of each section of a page: the message, and what is said of it."""
    return {
        name: {row[1] or row[3]: (row[2] or "").strip() for row in _ROW.finditer(body)}
        for name, body in _sections(page)
    }


def _sections(page: str) -> Iterable[tuple[str, str]]:
    return re.findall(r"<!-- messages: ([\w ]+) -->\n(.*?)<!-- end -->", page, re.DOTALL)


def updated(page: str, found: Iterable[Message]) -> str:
    """The page with a line for each of these messages, and for no others."""
    page = re.sub(
        r"(?<=<!-- kinds -->\n).*?(?=\n<!-- end -->)", lambda _: f"\n{kinds()}", page, count=1, flags=re.DOTALL
    )
    due: dict[str, list[str]] = {name: [] for name, _ in SECTIONS}
    for message in found:
        due[message.section].append(cell(message.text))
    for name, known in listed(page).items():
        kept = {text: known[text] for text in known if text in due[name]}
        lines = {**kept, **{text: "" for text in due[name] if text not in kept}}
        start, end = f"<!-- messages: {name} -->\n", "\n<!-- end -->"
        before, _, rest = page.partition(start)
        page = f"{before}{start}\n{_drawn(name, lines)}{end}{rest.partition(end)[2]}"
    return page


def kinds() -> str:
    """The table of other kinds of file: what each is called, and what is to be done."""
    rows = ((what, CUT if advice == OURS else advice) for what, advice in KINDS.values())
    lines = "".join(f"| {cell(_open(what))} | {_open(advice)} |\n" for what, advice in rows)
    return f"| … is | what to do |\n| --- | --- |\n{lines}"


def _open(text: str) -> str:
    return re.sub(r"\{\w+\}", "…", text)


def _drawn(section: str, lines: Mapping[str, str]) -> str:
    """The lines of a section, as a list or a table."""
    if section in LISTS:
        return "".join(f"* {text}\n" for text in lines)
    rows = "".join(f"| {text} | {said} |\n" if said else f"| {text} | |\n" for text, said in lines.items())
    return f"| message | what to do |\n| --- | --- |\n{rows}"


def main() -> None:
    page = PAGE.read_text(encoding="utf-8")
    new = updated(page, messages())
    PAGE.write_text(new, encoding="utf-8")
    empty = sum(not said for name, lines in listed(new).items() if name not in LISTS for said in lines.values())
    print(f"{PAGE.relative_to(REPO)}: {empty} lines have no word on what to do", file=sys.stderr)


if __name__ == "__main__":
    main()
