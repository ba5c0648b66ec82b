"""The list of a model's pieces: what each is for, how big it is, and how its role was found out.

Files of every format and modules in memory give the same `Inventory`; everything clearstate
shows about a model is drawn from one.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .roles import GLOSS, Role
from .wording import size_text

SHOWN = 10
"""How many pieces of a live module are told one by one."""

FRAME = 'title="clearstate report" sandbox="allow-scripts" width="100%" height="720" frameborder="0"'
"""How a notebook shows a report: its scripts run, but out of reach of the notebook."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One piece of a model.

    Attributes:
        path: where it is, from the root (``modules[1].weight``).
        module: the path of the module it belongs to.
        type: its class (``torch.FloatTensor``).
        role: what it is for.
        bytes: bytes it is the first to use; a view of memory counted elsewhere has 0.
        evidence: how the role was found out: ``declared`` by the catalog or the class, ``structural`` (from what it
            is), ``guessed`` from its name, or ``none``; of live modules also ``alias`` (it is memory of a parameter
            or a buffer), ``computed`` (it has a graph), ``observed`` (it came after a baseline), ``proved`` (runs
            without it give the same, in both modes), ``proved in eval mode alone`` and ``needed in training``.
        dtype: element type of a tensor (``float32``).
        shape: sizes of a tensor.
        device: where a live tensor is (``cuda:0``).

    >>> entry = Entry("bias", "", "torch.FloatTensor", Role.PARAMETER, 64, "declared", "float32", (16,))
    >>> entry.role, entry.shape
    (<Role.PARAMETER: 'parameter'>, (16,))
    """

    path: str
    module: str
    type: str
    role: Role
    bytes: int
    evidence: str
    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One step of a graph of modules.

    Attributes:
        label: its name, or else what it does.
        module: the path of the module that runs there; ``None`` where a value is only passed on.
        reads: the nodes whose values it takes, by their places in the graph.
    """

    label: str
    module: str | None
    reads: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Graph:
    """How values flow through the modules of an nngraph net.

    Attributes:
        path: where the net is, from the root.
        type: its class.
        nodes: all steps, in the order in which they run.
    """

    path: str
    type: str
    nodes: tuple[GraphNode, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a model or file holds.

    Attributes:
        source: the file's name or the model's class.
        kind: what the source is, in words.
        size: bytes of the file, or of all memory counted.
        entries: all pieces; their bytes add up to ``size``.
        modules: the class of every module, by path.
        notes: what a person should know besides: classes nobody declared, and what was kept of them.
        graphs: the graphs of its nngraph nets.
        contents: what the pieces of a role are, in words, where more is known of them than their role.

    >>> entry = Entry("weight", "", "torch.FloatTensor", Role.PARAMETER, 24, "declared", "float32", (2, 3))
    >>> held = Inventory("net.t7", "Torch7 file", 24, (entry,))
    >>> print(held)
    net.t7: Torch7 file, 24 B
      parameter        24 B  100.0%
    >>> held.by_role(), [entry.path for entry in held.select("parameter")]
    ({<Role.PARAMETER: 'parameter'>: 24}, ['weight'])
    """

    source: str
    kind: str
    size: int
    entries: tuple[Entry, ...]
    modules: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    graphs: tuple[Graph, ...] = ()
    contents: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)

    def gloss(self, role: Role) -> str:
        """What the pieces of a role are, in a few words.

        >>> Inventory("net.t7", "Torch7 file", 0, ()).gloss(Role.PARAMETER)
        'weights'
        """
        return ", ".join(self.contents.get(role, ())) or GLOSS[role]

    def by_role(self) -> dict[Role, int]:
        """Bytes of each role that has any, the largest first."""
        totals: dict[Role, int] = {}
        for entry in self.entries:
            totals[entry.role] = totals.get(entry.role, 0) + entry.bytes
        return dict(sorted(((r, n) for r, n in totals.items() if n), key=lambda pair: -pair[1]))

    def select(self, *roles: Role | str) -> tuple[Entry, ...]:
        """The entries of these roles."""
        wanted = {Role(role) for role in roles}
        return tuple(entry for entry in self.entries if entry.role in wanted)

    def largest(self, roles: Iterable[Role | str] = tuple(Role), count: int = 10) -> list[Entry]:
        """The largest entries of these roles, the largest first."""
        return sorted(self.select(*roles), key=lambda entry: -entry.bytes)[:count]

    def to_dict(self) -> dict[str, Any]:
        """The whole inventory in plain values, as ``inspect --json`` prints it.

        Pieces in memory have a ``device``, models with nngraph nets have ``graphs``.
        """
        return {
            "source": self.source,
            "kind": self.kind,
            "size": self.size,
            "roles": {str(role): n for role, n in self.by_role().items()},
            **(
                {"contents": {str(role): list(words) for role, words in self.contents.items()}} if self.contents else {}
            ),
            "modules": dict(self.modules),
            "notes": list(self.notes),
            **({"graphs": [asdict(graph) for graph in self.graphs]} if self.graphs else {}),
            "entries": [
                {
                    "path": entry.path,
                    "module": entry.module,
                    "type": entry.type,
                    "role": str(entry.role),
                    "bytes": entry.bytes,
                    "evidence": entry.evidence,
                    "dtype": entry.dtype,
                    "shape": None if entry.shape is None else list(entry.shape),
                    **({} if entry.device is None else {"device": entry.device}),
                }
                for entry in self.entries
            ],
        }

    def to_json(self, indent: int | None = None) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=indent)

    def to_html(self, after: Inventory | None = None) -> str:
        """A page that shows where the bytes are: it works offline, and asks the network for nothing.

        Args:
            after: what the same model holds once it is cleared: the two are drawn side by side.

        >>> "<!doctype html>" in Inventory("empty.t7", "Torch7 file", 0, ()).to_html()
        True
        """
        from .report import page

        return page(self, after)

    def _worth_showing(self) -> tuple[Entry, ...]:
        """Of a live module: what goes and what nobody knows, and by which evidence; of files the roles say enough."""
        told = [e for e in self.select(Role.TRANSIENT, Role.UNKNOWN) if e.device is not None]
        return tuple(sorted(told, key=lambda entry: -entry.bytes)[:SHOWN])

    def _devices(self) -> str:
        devices = sorted({entry.device for entry in self.entries if entry.device is not None})
        return f" on {', '.join(devices)}" if devices else ""

    def __str__(self) -> str:
        rows = [f"{self.source}: {self.kind}{self._devices()}, {size_text(self.size)}"]
        for role, n in self.by_role().items():
            rows.append(f"  {role!s:<10} {size_text(n):>10} {n / max(self.size, 1):>7.1%}")
        shown = self._worth_showing()
        if shown:
            width = max(len(entry.path) for entry in shown)
            rows += [f"  {e.path:<{width}} {size_text(e.bytes):>10}  {_judgement(e)}" for e in shown]
        if more := len([e for e in self.select(Role.TRANSIENT, Role.UNKNOWN) if e.device is not None]) - len(shown):
            rows.append(f"  and {more} more")
        return "\n".join([*rows, *(f"  note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """For notebooks: the report in a frame of its own, and a table that folds out where no frames are shown."""
        cells = [_row("th", "role", "bytes", "share")]
        cells += [_row("td", str(r), size_text(n), f"{n / max(self.size, 1):.1%}") for r, n in self.by_role().items()]
        tables = [f"<table>{''.join(cells)}</table>"]
        if shown := self._worth_showing():
            cells = [_row("th", "path", "bytes", "role", "evidence", "type", "shape", "device")]
            for e in shown:
                shape = "" if e.shape is None else " x ".join(map(str, e.shape))
                cells.append(
                    _row("td", e.path, size_text(e.bytes), str(e.role), e.evidence, e.dtype or e.type, shape, e.device)
                )
            tables.append(f"<table>{''.join(cells)}</table>")
        if self.notes:
            tables.append(f"<ul>{''.join(f'<li>{html.escape(note)}</li>' for note in self.notes)}</ul>")
        head = f"{self.source}: {self.kind}{self._devices()}, {size_text(self.size)}"
        table = f"<details><summary><b>{html.escape(head)}</b></summary>{''.join(tables)}</details>"
        frame = f'<iframe {FRAME} srcdoc="{html.escape(self.to_html())}"></iframe>'
        return f"<div>{frame}{table}</div>"


def _judgement(entry: Entry) -> str:
    why = "nothing tells what it is for" if entry.evidence == "none" else entry.evidence
    return f"{entry.role}: {why}{f', {entry.device}' if entry.device not in (None, 'cpu') else ''}"


def _row(tag: str, *cells: str | None) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell or str())}</{tag}>' for cell in cells)}</tr>"
