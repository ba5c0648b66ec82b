"""One inventory, or the same model's before and after, as columns: what the page's scripts read.

100,000 pieces stay small that way: words are written once and named by number, paths leave out their module's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from ..roles import DROPPED_BY_DEFAULT, Role
from .drawn import Flow, Held, Piece
from .folding import alike, in_order, in_words, label, name_of
from .folding import rows as rows_of

LEVELS = 1000
"""How far out a module is looked for: names in files may be any number of dots."""

ROLES = {role: i for i, role in enumerate(Role)}


def columns(before: Held, after: Held | None = None) -> dict[str, Any]:
    """Everything the page shows, in plain values; all text is `clean`.

    >>> from clearstate.inventory import Entry, Inventory
    >>> weight = Entry("a[1].weight", "a[1]", "torch.FloatTensor", Role.PARAMETER, 8, "declared", "float32", (2,))
    >>> found = columns(Inventory("x.t7", "Torch7 file", 8, (weight,), {"": "nn.Sequential", "a[1]": "nn.Add"}))
    >>> found["modules"]["path"], found["modules"]["above"]
    (['', 'a[1]'], [-1, 0])
    >>> found["pieces"]["home"], found["pieces"]["rest"], found["pieces"]["before"], found["pieces"]["after"]
    ([1], ['.weight'], [8], None)
    """
    modules = _in_order({**(after.modules if after is not None else {}), **before.modules})
    paths, homes = list(modules), _Homes(modules)
    outer = [homes[above(path)] if path else -1 for path in paths]
    words: dict[str, int] = {}

    def word(text: str) -> int:
        return words.setdefault(clean(text), len(words))

    rows = []
    for entry, old, new in _pairs(before, after):
        home = homes[entry.path]
        rest = clean(entry.path[len(paths[home]) :] if home >= 0 else entry.path)
        said = (word(entry.type), word(entry.evidence), word(geometry(entry)))
        rows.append((home, rest, ROLES[entry.role], *said, old, new))
    names = ("home", "rest", "role", "type", "evidence", "geometry", "before", "after")
    pieces: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    if after is None:
        pieces["after"] = None
    return {
        "sides": [_side(side) for side in (before, after) if side is not None],
        "roles": [[str(role), before.gloss(role), role in DROPPED_BY_DEFAULT] for role in ROLES],
        "modules": {
            "path": [clean(path) for path in paths],
            "type": [clean(name) for name in modules.values()],
            "above": outer,
        },
        "equal": _equal(paths, list(modules.values()), outer, rows),
        "pieces": pieces,
        "words": list(words),
        "graphs": [_graph(graph, homes) for graph in before.graphs],
    }


def _in_order(modules: dict[str, str]) -> dict[str, str]:
    """The modules in the order in which they are shown, each before those inside it."""
    homes, paths = _Homes(modules), list(modules)
    inside = _inside([homes[above(path)] if path else -1 for path in paths])
    found: dict[str, str] = {}
    stack = [-1]
    while stack:
        at = stack.pop()
        if at >= 0:
            found[paths[at]] = modules[paths[at]]
        inner = inside.pop(at, [])
        order = in_order([label(paths[i], paths[at] if at >= 0 else "") for i in inner])
        stack.extend(inner[i] for i in reversed(order))
    return found


def _inside(outer: list[int]) -> dict[int, list[int]]:
    """The modules in each, by number; those in none at -1."""
    inside: dict[int, list[int]] = {}
    for i, at in enumerate(outer):
        inside.setdefault(at, []).append(i)
    return inside


def _equal(paths: list[str], types: list[str], outer: list[int], pieces: Iterable[tuple[Any, ...]]) -> dict[str, Any]:
    """The rows of equal modules: the path of each, what it is in words, and its modules by number."""
    labels = [label(path, paths[at] if at >= 0 else "") for path, at in zip(paths, outer, strict=True)]
    held: list[list[Hashable]] = [[] for _ in paths]
    for home, rest, role, kind, _, shape, old, new in pieces:
        if home >= 0 and role != ROLES[Role.METADATA]:
            held[home].append((rest, role, kind, shape, old, new))
    kinds = alike(outer, labels, types, held)
    found: dict[str, Any] = {"path": [], "text": [], "modules": []}
    for at, inner in _inside(outer).items():
        for start, stop in rows_of([labels[i] for i in inner], [kinds[i] for i in inner]):
            if stop - start > 1:
                first, last = inner[start], inner[stop - 1]
                name = name_of(labels[first], labels[last], labels[at] if at >= 0 else "")
                found["path"].append(clean(name_of(paths[first], paths[last])))
                found["text"].append(clean(in_words(name, stop - start, types[first])))
                found["modules"].append(inner[start:stop])
    return found


def above(path: str) -> str:
    """The path of what holds the thing at ``path``.

    >>> above("modules[1].weight"), above("modules[1]"), above("modules")
    ('modules[1]', 'modules', '')
    """
    return path[: max(path.rfind("."), path.rfind("["), 0)]


class _Homes(dict[str, int]):
    """The number of the innermost module at or around a path, or -1."""

    def __init__(self, modules: dict[str, str]) -> None:
        super().__init__((path, i) for i, path in enumerate(modules))
        self.setdefault("", -1)
        self._longest = max(map(len, self))

    def __missing__(self, path: str) -> int:
        at = above(path)
        if at not in self:
            inner = at if len(at) <= self._longest else above(at[: self._longest + 1])
            for _ in range(LEVELS):
                if inner in self:
                    break
                inner = above(inner)
            self[at] = self.get(inner, -1)
        return self[at]


def _pairs(before: Held, after: Held | None) -> Iterator[tuple[Piece, int | None, int | None]]:
    """Every piece with its bytes before and after; ``None`` where it is not. Pieces are the same by path and class.

    What is only there after, and empty, is no piece: clearing makes empty tensors where the constructor made them.
    """
    left: dict[tuple[str, str], list[Piece]] = {}
    for entry in reversed(after.entries if after is not None else ()):
        left.setdefault((entry.path, entry.type), []).append(entry)
    for entry in before.entries:
        same = left.get((entry.path, entry.type))
        yield entry, entry.bytes, same.pop().bytes if same else None
    for rest in left.values():
        for entry in reversed(rest):
            if entry.bytes:
                yield entry, None, entry.bytes


def _side(inventory: Held) -> dict[str, Any]:
    return {"source": clean(inventory.source), "kind": clean(inventory.kind), "size": inventory.size}


def _graph(graph: Flow, homes: _Homes) -> dict[str, Any]:
    nodes = graph.nodes
    return {
        "title": clean(f"{graph.path} {graph.type}".strip()),
        "label": [clean(node.label) for node in nodes],
        "home": [-1 if node.module is None else homes[node.module] for node in nodes],
        "reads": [list(node.reads) for node in nodes],
    }


def geometry(entry: Piece) -> str:
    """Element type and sizes of a tensor, and where it is if that is no plain memory.

    >>> from clearstate.inventory import Entry
    >>> geometry(Entry("w", "", "torch.FloatTensor", Role.PARAMETER, 24, "declared", "float32", (2, 3)))
    'float32 2 x 3'
    """
    if entry.shape is None:
        return ""
    sizes = " x ".join(map(str, entry.shape)) or ("one number" if entry.bytes else "empty")
    device = f" on {entry.device}" if entry.device not in (None, "cpu") else ""
    return f"{entry.dtype or ''} {sizes}{device}".lstrip()


def clean(text: str) -> str:
    r"""Text without characters that are not seen, or that turn the text around them: these become escapes.

    >>> clean("a\x1b\nb\u202e"), clean("\udcff.t7"), clean("größer than")
    ('a\\x1b\\nb\\u202e', '\\udcff.t7', 'größer than')
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
