"""Clears a checkpoint: entries of dropped roles go, and storages keep the bytes that a tensor sees."""

from __future__ import annotations

from collections.abc import Collection

from ...errors import ClearstateError
from ...roles import DROPPED_BY_DEFAULT, Role
from ..coverage import cover
from .file import File
from .layouts import role_by_structure
from .objects import Storage, Tensor, Value, view_of, walk
from .survey import survey


def clear(file: File, drop: Collection[Role] = DROPPED_BY_DEFAULT) -> File:
    """Drops roles from an opened checkpoint, in place, and returns it. The file it came from is not touched.

    Every key of the model's state dict stays, as do epochs, names and configurations.

    Raises:
        ClearstateError: nothing would be left: the file is an optimizer's or a scheduler's state alone.
    """
    whole = role_by_structure(file.root)
    if whole in drop:
        raise ClearstateError(f"{file.path} is {whole} state and nothing else: nothing would be left of it")
    for place in survey(file.root).places:
        if place.role in drop:
            place.table.pop(place.key, None)
    if Role.SLACK in drop:
        compact(file.root)
    return file


def not_cleared(file: File, drop: Collection[Role] = DROPPED_BY_DEFAULT) -> list[str]:
    """Paths of what `clear` would still take away."""
    return [place.path for place in survey(file.root).places if place.role in drop]


def compact(root: Value) -> None:
    """Gives tensors storages without the bytes that none of them sees. Views that overlap do so afterwards."""
    whole: set[int] = set()  # storages that the file holds without a tensor
    viewers: dict[int, list[Tensor]] = {}
    for value in walk(root):
        if isinstance(value, Storage):
            whole.add(id(value))
        elif isinstance(value, Tensor):
            viewers.setdefault(id(value.storage), []).append(value)
    for sharers in viewers.values():
        storage = sharers[0].storage
        if id(storage) in whole or storage.data is None or len({t.itemsize for t in sharers}) > 1:
            continue
        _compact_one(storage, sharers)


def _compact_one(storage: Storage, sharers: list[Tensor]) -> None:
    size = sharers[0].itemsize
    assert storage.data is not None
    groups = cover([view_of(tensor) for tensor in sharers])
    kept = sum(group.count for group in groups)
    if kept * size >= storage.nbytes:
        return
    runs = [(a * size, b * size) for group in groups for a, b in group.runs]
    data = storage.data.select(runs)
    smaller = Storage(storage.dtype, storage.key, storage.location, data, storage.kind)
    start = 0
    for tensor in sharers:
        tensor.storage = smaller
    for group in groups:
        for i, (offset, stride) in group.moved.items():
            sharers[i].offset, sharers[i].stride = start + offset, stride
        start += group.count
    for tensor in sharers:
        if not tensor.numel:
            tensor.offset = 0
