"""The `Inventory` of a checkpoint, and what reading it with ``torch.load`` would run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ....inventory import Entry, Inventory
from ....roles import GLOSS, Role
from ....wording import size_text
from ...coverage import shares
from ..container.file import File
from ..copies.evaluating import evaluated, warnings
from ..copies.finding import Copy, beside
from ..layout.naming import what_was
from ..layout.programs import class_of, role_by_structure
from ..pickle.arrays import array_of
from ..pickle.stubs import Global, Storage, Stub, Tensor, Value, view_of, walk
from ..pickle.weights_only import READ, is_dangerous
from .survey import Piece, Survey, survey, topmost

PRIORITY = {role: i for i, role in enumerate((Role.PARAMETER, Role.BUFFER, Role.CONSTANT, Role.METADATA, Role.UNKNOWN))}
"""Bytes that several pieces see are counted for the first of these."""


def inspect_file(file: File) -> Inventory:
    """What an opened checkpoint holds; the entries' bytes are bytes of the file.

    >>> import os, tempfile
    >>> import torch
    >>> from clearstate.formats import pt
    >>> path = os.path.join(tempfile.mkdtemp(), "net.pt")
    >>> torch.save({"model": {"weight": torch.ones(2)}, "rng_state": torch.zeros(8)}, path)
    >>> sorted(map(str, inspect_file(pt.open_zip(path)).by_role()))
    ['metadata', 'parameter', 'training']
    """
    found = survey(file.root)
    entries = list(_entries(found))
    counted = sum(entry.bytes for entry in entries)
    if file.size > counted:
        role = role_by_structure(file.root) or Role.METADATA
        entries.append(Entry("", "", "structure", role, file.size - counted, "structural"))
    notes = tuple(_notes(file, found))
    return Inventory(file.path, file.kind, file.size, tuple(entries), found.modules, notes, contents=_contents(found))


def _entries(found: Survey) -> Iterator[Entry]:
    by_storage: dict[int, tuple[Storage, list[Piece]]] = {}
    for piece in found.pieces:
        storage = piece.value.storage if isinstance(piece.value, Tensor) else piece.value
        if isinstance(storage, Storage):
            by_storage.setdefault(id(storage), (storage, []))[1].append(piece)
    fresh: dict[int, int] = {}
    for storage, pieces in by_storage.values():
        pieces.sort(key=lambda piece: PRIORITY.get(piece.role, 99) + 50 * piece.copied)
        unseen = _count(storage, pieces, fresh)
        if unseen > 0:
            path, home = pieces[0].path, found.home(pieces[0].path)
            kind = f"{storage.dtype} storage"
            yield Entry(f"{path}.<unseen>", home, kind, Role.SLACK, unseen, "structural", storage.dtype)
    for piece in found.pieces:
        value = piece.value
        told = (piece.path, found.home(piece.path))
        size = fresh.get(id(value), 0)
        role, evidence = _judged(piece)
        if isinstance(value, Tensor):
            yield Entry(*told, "torch.Tensor", role, size, evidence, value.dtype, value.size)
        elif isinstance(value, Storage):
            yield Entry(*told, "storage", role, size, evidence, value.dtype, (len(value),))
        elif isinstance(value, Stub):
            array = array_of(value) if piece.role is not Role.METADATA else None
            held = (array.nbytes, piece.evidence, array.dtype.name, array.shape) if array else (0, piece.evidence)
            yield Entry(*told, "numpy.ndarray" if array else class_of(value), piece.role, *held)


def _judged(piece: Piece) -> tuple[Role, str]:
    """Role and evidence: numbers of an averaged copy of the model are the copy's, whatever they are in it."""
    whole = piece.copied and not piece.role.droppable
    return (Role.COPY, "layout") if whole else (piece.role, piece.evidence)


def _count(storage: Storage, pieces: list[Piece], fresh: dict[int, int]) -> int:
    """Notes what each piece is the first to see, in bytes; returns what none sees."""
    sizes: set[int] = {piece.value.itemsize for piece in pieces}
    if len(sizes) > 1:
        fresh[id(pieces[0].value)] = storage.nbytes
        return 0
    if storage.data is None:
        return 0
    (size,) = sizes
    counts, seen = shares([view_of(piece.value) for piece in pieces])
    fresh.update({id(piece.value): count * size for piece, count in zip(pieces, counts, strict=True)})
    return storage.nbytes - seen * size


def _notes(file: File, found: Survey) -> Iterator[str]:
    if found.layout is not None:
        yield f"written by {found.layout.name}"
    alone = found.copies and not beside(file.root, found.copies)
    for copy in found.copies:
        yield f"{copy.path} {_judged_copy(copy)}: {_fate(copy, alone=bool(alone))}"
    yield from warnings(evaluated(file.root))
    yield from _calls(file, found)
    if file.is_program:
        size = sum(data.count for data in file.records.values())
        yield f"a TorchScript program: its code and constants ({size_text(size)}) stay as they are"


def _contents(found: Survey) -> dict[Role, tuple[str, ...]]:
    """What the pieces that clearing drops are, in words, where that is more than their role says."""
    words: dict[Role, dict[str, None]] = {}
    for entry in topmost(found.going):
        words.setdefault(entry.role, {})[what_was(entry.path, entry.role, entry.value)] = None
    return {role: tuple(said) for role, said in words.items() if tuple(said) != (GLOSS[role],)}


def _judged_copy(copy: Copy) -> str:
    return {
        "average": "is an averaged copy of the model (EMA)",
        "trained": "has the weights as training left them, and the model's place has their average (EMA)",
        "copy": "is a copy of the model's weights",
        "weights": "has weights of layers, and nothing here says of which model",
    }[copy.holds]


def _fate(copy: Copy, *, alone: bool) -> str:
    if copy.holds == "weights":
        return "it stays; --drop copy drops it"
    if alone:
        return "the model itself is not here"
    return f"both stay; --use {'ema' if copy.holds in ('average', 'trained') else copy.path} or --use model keeps one"


def _calls(file: File, found: Survey) -> Iterator[str]:
    """What ``torch.load`` would import and call besides what makes tensors, the dangerous ones first."""
    names = sorted({str(name) for name in globals_of(file.root, called=True)} - READ)
    dangerous = [name for name in names if is_dangerous(name)]
    if dangerous:
        yield f"DANGEROUS: torch.load would call {', '.join(dangerous)}"
    if file.is_program:
        return  # torch.load leaves it to torch.jit.load, which calls nothing of Python's
    if others := [name for name in names if name not in dangerous]:
        from .plain import has_plain

        calls = ", ".join(others)
        mended = "" if _nothing_left(file, found) or not has_plain(file.root) else "; clear --plain mends that"
        yield f"torch.load would import and call {calls}, so weights_only=True refuses it{mended}"


def _nothing_left(file: File, found: Survey) -> bool:
    """Whether all of the file is to go, so that nothing can be written."""
    whole = None if id(file.root) in found.holders else role_by_structure(file.root)
    own = {entry.key for entry in found.going if entry.table is file.root}
    return (whole is not None and whole.droppable) or (isinstance(file.root, dict) and len(own) == len(file.root))


def globals_of(root: Value, *, called: bool = False) -> Iterable[Global]:
    """Every class and function that a checkpoint names; with ``called`` only those that loading it would call.

    >>> [str(g) for g in globals_of([Global("os", "system")])]
    ['os.system']
    """
    found: dict[Global, None] = {}
    for value in walk(root):
        if isinstance(value, Global) and not called:
            found[value] = None
        elif isinstance(value, Stub) and isinstance(value.function, Global):
            found[value.function] = None
        elif isinstance(value, Tensor):
            found[value.maker] = None
    return found
