"""The modules of a model as a tree that fits a screen: where it does not, the smallest are counted, not drawn.

Equal ones in a row are one line, with all they hold; what is drawn inside it is what one of them holds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import clearstate as cs
from clearstate.report.folding import alike, in_order, in_words, label, name_of
from clearstate.report.folding import rows as rows_of
from clearstate.wording import size_text

from .drawing import Line, Part, cells, clean, counted, fit

DEEPEST = 10
"""Levels of guide lines drawn; of deeper modules only the last ones are."""

STRUCTURE = cs.Role.METADATA
"""The role that has no column: the structure of a file belongs to no module."""


@dataclass(slots=True, eq=False)
class Node:
    """A module with everything below it: bytes by role, and the number of parameters; or a row of equal ones.

    Of a row these are those of all ``times`` modules; ``children`` and ``own`` are the first one's.
    """

    path: str
    label: str
    type: str
    depth: int = 0
    roles: dict[cs.Role, int] = field(default_factory=dict)
    parameters: int = 0
    modules: int = 1
    times: int = 1
    children: list[Node] = field(default_factory=list)
    own: list[cs.Entry] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(self.roles.values())

    def add(self, other: Node) -> None:
        """Counts what another one has as its own."""
        self.parameters += other.parameters
        self.modules += other.modules
        for role, count in other.roles.items():
            self.roles[role] = self.roles.get(role, 0) + count


def forest(inventory: cs.Inventory) -> list[Node]:
    """The outermost modules, with those inside them; at the end what is in no module, where there is any.

    >>> from clearstate.formats import t7
    >>> net = t7.Object("nn.Linear", t7.Table(gradInput=t7.Tensor.of([1.0]), weight=t7.Tensor.of([2.0, 3.0])))
    >>> [(node.type, node.parameters, node.bytes) for node in forest(cs.inspect(net))]
    [('nn.Linear', 2, 24)]
    """
    nodes = {path: Node(path, "", typename) for path, typename in inventory.modules.items()}
    elsewhere = Node("", "", "in no module", modules=0)
    homes: dict[str, Node] = {}
    for entry in inventory.entries:
        if entry.role is STRUCTURE:
            continue
        home = homes.get(entry.module)
        if home is None:
            home = homes[entry.module] = nodes.get(entry.module) or _around(entry.module, nodes) or elsewhere
        home.own.append(entry)
        home.roles[entry.role] = home.roles.get(entry.role, 0) + entry.bytes
        if entry.role is cs.Role.PARAMETER and entry.bytes:
            home.parameters += math.prod(entry.shape or ())
    roots = []
    for path, node in nodes.items():
        above = _around(path, nodes)
        node.label = label(path, above.path if above else "")
        if above is None:
            roots.append(node)
        else:
            above.children.append(node)
    roots = _in_order(roots)
    order = list(roots)
    for node in order:
        node.children = _in_order(node.children)
        for child in node.children:
            child.depth = node.depth + 1
        order.extend(node.children)
    for node in reversed(order):
        for child in node.children:
            node.add(child)
    return [*roots, elsewhere] if elsewhere.own else roots


def _in_order(siblings: list[Node]) -> list[Node]:
    return [siblings[i] for i in in_order([node.label for node in siblings])]


def folded(roots: Sequence[Node]) -> list[Node]:
    """The same modules with equal ones in a row as one. A module that holds nothing but a row is the row.

    >>> from clearstate.formats import t7
    >>> layers = [t7.Object("nn.Linear", t7.Table(weight=t7.Tensor.of([2.0, 3.0]))) for _ in range(4)]
    >>> net = t7.Object("nn.Sequential", t7.Table(modules=t7.Table.of(layers)))
    >>> [(node.label, node.times, node.parameters) for node in folded(forest(cs.inspect(net)))[0].children]
    [('(1-4)', 4, 8)]
    """
    every = list(_all(roots))
    numbers = {node: i for i, node in enumerate(every)}
    above = [-1] * len(every)
    for node in every:
        for child in node.children:
            above[numbers[child]] = numbers[node]
    held = [[_structure(entry, node.path) for entry in node.own] for node in every]
    kinds = alike(above, [node.label for node in every], [node.type for node in every], held)
    for node in reversed(every):
        node.children = _rows(node.children, [kinds[numbers[child]] for child in node.children], node.label)
    return _rows(list(roots), [kinds[numbers[root]] for root in roots], "")


def _structure(entry: cs.Entry, home: str) -> Hashable:
    """What has to be the same of two pieces."""
    name = entry.path[len(home) :]
    return name, entry.type, entry.role, entry.bytes, entry.dtype, entry.shape, entry.device


def _rows(siblings: list[Node], kinds: Sequence[int], around: str) -> list[Node]:
    found = []
    for start, stop in rows_of([node.label for node in siblings], kinds):
        first, last = siblings[start], siblings[stop - 1]
        if start + 1 == stop:
            found.append(_plainly(first))
            continue
        row = Node(first.path, name_of(first.label, last.label, around), first.type, first.depth, modules=0)
        row.times, row.children, row.own = stop - start, first.children, first.own
        for node in siblings[start:stop]:
            row.add(node)
        found.append(row)
    return found


def _plainly(node: Node) -> Node:
    """The row that is all a module holds, where its name says whose it is; else the module."""
    if len(node.children) != 1 or node.own or not node.depth:
        return node
    (row,) = node.children
    if row.times == 1 or not row.label.startswith(f"{node.label}."):
        return node
    row.depth, row.modules = node.depth, node.modules
    return row


def _around(path: str, nodes: dict[str, Node]) -> Node | None:
    """The innermost module that holds the one at ``path``."""
    while path:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
        if path in nodes:
            return nodes[path]
    return None


def drawn(roots: Sequence[Node], width: int, rows: int | None, goes: Collection[cs.Role]) -> list[Line]:
    """The tree as a table: a line for each module, with its number of parameters and its bytes by role.

    Args:
        roots: what `forest` gave.
        width: columns.
        rows: the most lines; ``None`` draws every module with every field, the largest that go first.
        goes: the roles that clearing drops.
    """
    columns = _columns(roots, width)
    shown = _largest(roots, rows) if rows is not None else None
    name_width = width - 2 - 11 - 10 * len(columns)
    lines = [_row("", "", columns, ["# params", *[name for name, _ in columns]], name_width, goes, heading=True)]
    for guide, node, more in _walk(roots, shown):
        values = [f"{node.parameters:,}" if node.parameters else ""]
        values += [size_text(n) if (n := sum(node.roles.get(r, 0) for r in roles)) else "" for _, roles in columns]
        if more:
            name = f"… {counted(node.modules, 'more module')}"
        elif node.times > 1:
            name = _row_name(node, _room(name_width, guide))
        else:
            name = f"{node.label} {node.type}".strip()
        lines.append(_row(guide, name, columns, values, name_width, goes))
        if rows is None and not more:
            lines.extend(_fields(guide, node, columns, name_width, goes))
    return lines


def _columns(roots: Sequence[Node], width: int) -> list[tuple[str, list[cs.Role]]]:
    """The roles that have a column each, the largest first, and those that share the last for want of room."""
    total = Node("", "", "")
    for root in roots:
        total.add(root)
    roles = [role for role, n in sorted(total.roles.items(), key=lambda pair: -pair[1]) if n]
    room = max(2, (width - 11 - 36) // 10)
    if len(roles) <= room:
        return [(str(role), [role]) for role in roles]
    return [*((str(role), [role]) for role in roles[: room - 1]), ("other", roles[room - 1 :])]


def _row(
    guide: str,
    name: str,
    columns: Sequence[tuple[str, list[cs.Role]]],
    values: Sequence[str],
    name_width: int,
    goes: Collection[cs.Role],
    *,
    heading: bool = False,
) -> Line:
    room = _room(name_width, guide)
    parts = [Part("  " + guide, "faint"), Part(fit(name, room), "faint" if name.startswith("…") else "")]
    parts.append(Part(f"{values[0]:>11}", "faint" if heading else ""))
    for value, (_, roles) in zip(values[1:], columns, strict=True):
        style = "faint" if heading else "goes" if set(roles) <= set(goes) else ""
        parts.append(Part(f"{value:>10}", style))
    return parts


def _room(name_width: int, guide: str) -> int:
    return max(name_width - len(guide), 12)


def _row_name(node: Node, room: int) -> str:
    """A row in words, with its bytes where there is room for them; what has no room loses its end."""
    words = clean(in_words(node.label, node.times, node.type))
    told = f"{words}, {size_text(node.bytes)}" if node.bytes else words
    if cells(told) <= room:
        return told
    if cells(words) > room:
        words = words[:room]
        while cells(words) >= room:
            words = words[:-1]
        words += "…"
    return words


def has_rows(roots: Iterable[Node]) -> bool:
    """Whether any modules are drawn as one."""
    return any(node.times > 1 for node in _all(roots))


def _largest(roots: Sequence[Node], rows: int) -> set[Node]:
    """The modules that hold most, as many as fit with the lines that count the others; never one without its parent."""
    every = list(_all(roots))
    if len(every) <= rows:
        return set(every)
    ranked = heapq.nsmallest(rows, enumerate(every), key=lambda pair: (-pair[1].bytes, pair[1].depth, pair[0]))
    best = [node for _, node in ranked]
    shown: set[Node] = set()
    while best:
        shown = set(best)
        counting = sum(any(child not in shown for child in node.children) for node in best)
        if len(best) + counting + any(root not in shown for root in roots) <= rows:
            break
        best.pop()
    alone = {hidden[0] for node in best if len(hidden := [c for c in node.children if c not in shown]) == 1}
    return shown | {node for node in alone if node.modules == 1}


def _all(roots: Iterable[Node]) -> Iterator[Node]:
    stack = [*roots][::-1]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def _walk(roots: Sequence[Node], shown: set[Node] | None) -> Iterator[tuple[str, Node, bool]]:
    """Each line's guide and node; a node that stands for those not shown comes last among its siblings."""
    outer: tuple[str, ...] = ("",)
    stack = [(outer, "", node, more) for node, more in reversed(_siblings(roots, shown))]
    while stack:
        above, branch, node, more = stack.pop()
        yield _guide(above) + branch, node, more
        if not more:
            here = (*above[-DEEPEST:], "  " if branch == "└ " else "│ " if branch else "")
            children = _siblings(node.children, shown)
            last = len(children) - 1
            stack.extend(
                (here, "└ " if i == last else "├ ", child, below)
                for i, (child, below) in reversed(list(enumerate(children)))
            )


def _guide(above: tuple[str, ...]) -> str:
    return "".join(above) if len(above) <= DEEPEST else "… " + "".join(above[-DEEPEST:])


def _siblings(nodes: Sequence[Node], shown: set[Node] | None) -> list[tuple[Node, bool]]:
    if shown is None:
        return [(node, False) for node in nodes]
    rest = Node("", "", "", modules=0)
    hidden = [node for node in nodes if node not in shown]
    for node in hidden:
        rest.add(node)
    return [(node, False) for node in nodes if node in shown] + ([(rest, True)] if hidden else [])


def _fields(
    guide: str,
    node: Node,
    columns: Sequence[tuple[str, list[cs.Role]]],
    name_width: int,
    goes: Collection[cs.Role],
) -> Iterator[Line]:
    inner = guide.replace("├ ", "│ ").replace("└ ", "  ") + ("│ " if node.children else "  ")
    for entry in sorted(node.own, key=lambda entry: (entry.role not in goes, -entry.bytes)):
        name = entry.path[len(node.path) :].lstrip(".") if node.path else entry.path
        values = ["", *[size_text(entry.bytes) if entry.role in roles else "" for _, roles in columns]]
        yield _row(inner, f"· {name}  {geometry(entry)}", columns, values, name_width, goes)


def geometry(entry: cs.Entry) -> str:
    """Element type and sizes of a tensor, the class of anything else: ``float32 32x144x64``.

    >>> geometry(cs.Entry("w", "", "torch.FloatTensor", cs.Role.PARAMETER, 24, "declared", "float32", (2, 3)))
    'float32 2x3'
    """
    if entry.shape is None:
        return entry.type
    return f"{entry.dtype or entry.type} {'x'.join(map(str, entry.shape)) or 'empty'}"
