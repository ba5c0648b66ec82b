"""The `Inventory` of an object graph: every tensor, function and unseen byte, with its role."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from ....inventory import Entry, Graph, Inventory
from ....roles import Role
from ....wording import some
from ...coverage import shares
from ..codec.objects import Function, Object, Storage, Tensor, Value, view_of
from ..codec.reader import File
from .graphs import graph
from .survey import PRIORITY, Piece, Survey, survey


def inspect(root: Value, source: str = "", kind: str = "Torch7 objects", size: int | None = None) -> Inventory:
    """What an object graph holds.

    Args:
        root: anything that `load` returns.
        source: a name for it.
        kind: what it is, in words.
        size: bytes of the file it came from; the bytes that are no tensor's are its structure.

    >>> from clearstate.formats.t7 import Table
    >>> net = Object("nn.Linear", Table(weight=Tensor.of([1.0]), output=Tensor.of([2.0, 3.0])))
    >>> {str(role): size for role, size in inspect(net).by_role().items()}
    {'transient': 16, 'parameter': 8}
    """
    found = survey(root)
    entries = list(_entries(found))
    counted = sum(entry.bytes for entry in entries)
    if size is not None and size > counted:
        entries.append(Entry("", "", "structure", Role.METADATA, size - counted, "structural"))
    return Inventory(
        source,
        kind,
        counted if size is None else size,
        tuple(entries),
        found.modules,
        tuple(_notes(found)),
        tuple(_graphs(found)),
    )


def inspect_file(file: File) -> Inventory:
    """What an opened file holds; the entries' bytes are bytes of the file.

    >>> import os, tempfile
    >>> from clearstate.formats import t7
    >>> path = os.path.join(tempfile.mkdtemp(), "x.t7")
    >>> t7.save(t7.Object("nn.Identity", t7.Table(output=Tensor.of([1.0, 2.0]))), path)
    >>> sorted(map(str, inspect_file(t7.open_file(path)).by_role()))
    ['metadata', 'transient']
    """
    return inspect(file.root, file.path or "", f"Torch7 file, {file.layout}", file.size)


_LISTED = (Tensor, Storage, Function, Object)


def _entries(found: Survey) -> Iterable[Entry]:
    seen: dict[int, tuple[Storage, list[Piece]]] = {}
    for piece in found.pieces:
        storage = piece.value.storage if type(piece.value) is Tensor else piece.value
        if type(storage) is Storage:
            seen.setdefault(id(storage), (storage, []))[1].append(piece)
    fresh: dict[int, int] = {}
    unseen: dict[int, int] = {}
    for storage, pieces in seen.values():
        pieces.sort(key=lambda piece: PRIORITY.get(piece.role, 99))
        each = storage.data.occupies / max(len(storage), 1)
        counts, total = shares([view_of(piece.value) for piece in pieces])
        fresh.update({id(piece.value): round(n * each) for piece, n in zip(pieces, counts, strict=True)})
        unseen[id(pieces[0].value)] = round((len(storage) - total) * each)
    places = {id(piece.value): piece.path for piece in found.pieces if type(piece.value) is Object}
    for piece in found.pieces:
        value = piece.value
        if type(value) not in _LISTED or (type(value) is Object and type(value.state) is not bytes):
            continue
        path = str(piece.path or "")
        module = str(places.get(id(piece.owner)) or "")
        if type(value) is Tensor or type(value) is Storage:
            memory: Storage | None = value.storage if isinstance(value, Tensor) else value
            shape = value.size if isinstance(value, Tensor) else (len(value),)
            dtype = memory.data.dtype.newbyteorder("=").name if memory else None
            yield Entry(path, module, value.typename, piece.role, fresh.get(id(value), 0), piece.evidence, dtype, shape)
            if memory is not None and unseen.get(id(value)):
                yield Entry(f"{path}.<unseen>", module, memory.typename, Role.SLACK, unseen[id(value)], "structural")
        elif type(value) is Function:
            yield Entry(path, module, "function", piece.role, len(value.bytecode), piece.evidence)
        elif type(value) is Object:
            yield Entry(path, module, value.typename, piece.role, len(value.state), piece.evidence)


def _graphs(found: Survey) -> Iterable[Graph]:
    nets = [piece for piece in found.pieces if type(piece.value) is Object and piece.value.typename == "nn.gModule"]
    if nets:
        places = {id(piece.value): str(piece.path or "") for piece in found.pieces if type(piece.value) is Object}
        for net in nets:
            drawn = graph(net.value, places[id(net.value)], lambda module: places.get(id(module)))
            if drawn is not None:
                yield drawn


def _notes(found: Survey) -> Iterable[str]:
    names = sorted(found.undeclared)
    if names:
        verb = "is" if len(names) == 1 else "are"
        yield f"{some(names, 6)} {verb} not in the catalog: only fields named as nn's classes name their buffers go"
    for name in names:
        if kept := sorted(found.undeclared[name]):
            declaration = shlex.quote(f"{name}:{','.join(kept)}")
            yield f"kept of {name}: {', '.join(kept)}; if work left these, say --transient {declaration}"
