"""Clears a checkpoint: entries of dropped roles go, and storages keep the bytes that a tensor sees."""

from __future__ import annotations

from dataclasses import replace

from ...errors import ClearstateError, NothingLeft
from ...inventory import some
from ...roles import Role
from ..changes import Changes, matches
from ..coverage import cover
from .averages import choose
from .casting import cast
from .file import File
from .layouts import role_by_structure
from .models import main_model
from .objects import Storage, Tensor, Value, view_of, walk
from .plain import make_plain
from .prefixes import unwrap
from .survey import DEFAULT, Going, survey


def clear(file: File, changes: Changes = DEFAULT) -> list[str]:
    """Takes what is to go out of an opened checkpoint, in place, and changes what is asked for besides.

    Every key of the model's state dict stays, as do epochs, names and configurations, unless a pattern names them.
    The file it came from is not touched.

    Returns:
        What was done besides dropping roles, in sentences.

    Raises:
        NothingLeft: the file is an optimizer's or a scheduler's state alone.
        ClearstateError: what is asked for is not there, or cannot be.

    >>> import os, tempfile
    >>> import torch
    >>> from clearstate.formats import pt
    >>> path = os.path.join(tempfile.mkdtemp(), "net.pt")
    >>> torch.save({"model": {"weight": torch.ones(2)}, "rng_state": torch.zeros(8)}, path)
    >>> file = pt.open_zip(path)
    >>> pt.clear(file), list(file.root)
    ([], ['model'])
    """
    if file.is_program and (changes.plain or changes.use or changes.unwrap or changes.dropped):
        raise ClearstateError(
            f"{file.path} is a TorchScript program, whose code asks for each name in it: "
            "--plain, --use, --unwrap and --drop PATH are for checkpoints"
        )
    asked_for = changes if changes.use is None else replace(changes, drop=changes.drop - {Role.COPY})
    found = survey(file.root, asked_for)
    going = found.going
    whole = role_by_structure(file.root)
    own = [entry.role for entry in going if entry.table is file.root]
    if whole in changes.drop or (own and len(own) == len(file.root)):
        by_path = whole not in changes.drop and not changes.drop.issuperset(own)
        what = "all of it is to go" if by_path else f"it is {whole or own[0]} state and nothing else"
        raise NothingLeft(f"{file.path}: {what}, and nothing would be left of it")
    _check_patterns(going, changes)
    for entry in going:
        entry.table.pop(entry.key, None)
    asked = [entry.path for entry in _topmost(going) if entry.role not in changes.drop]
    done = [f"as asked, {some(asked, 3)} went"] if asked else []
    gone = {(id(entry.table), entry.key) for entry in going if entry.role is Role.COPY}
    for copy in found.copies:
        if any((id(place.table), place.key) in gone for place in copy.entries.values()) and Role.COPY in changes.drop:
            done.append(f"the averaged copy (EMA) {copy.path} went")
    if changes.use is not None:
        done.append(choose(file.root, changes.use))
    if changes.plain:
        file.root, names = make_plain(file.root)
        file.protocol = 2
        if file.layout == "pickle":
            file.layout = "zip"
            done.append(
                "the new file is a zip as torch.save writes it: torch.load reads no bare pickle with weights_only"
            )
        if names:
            done.append(f"plain values stand for {', '.join(names)}")
    if changes.unwrap:
        count = unwrap(main_model(file.root)[1])
        done.append(f"{count} {'name' if count == 1 else 'names'} lost the prefix of a wrapper")
    if Role.SLACK in changes.drop:
        compact(file.root)
    if changes.dtype is not None:
        count = cast(file.root, changes.dtype)
        done.append(f"{count} {'parameter was' if count == 1 else 'parameters were'} cast to {changes.dtype}")
    return done


def _topmost(going: list[Going]) -> list[Going]:
    """Without those that are inside another that goes."""
    tables = {entry.path: entry.table for entry in going}

    def inside(entry: Going) -> bool:
        path = entry.path
        while path := path[: max(path.rfind("."), path.rfind("["), 0)]:
            if path in tables and tables[path] is not entry.table:
                return True
        return False

    return [entry for entry in going if not inside(entry)]


def _check_patterns(going: list[Going], changes: Changes) -> None:
    paths = [entry.path for entry in going]
    for pattern in changes.dropped:
        if not any(matches(path, pattern) for path in paths):
            raise ClearstateError(f"nothing here is called {pattern}; clearstate inspect --all shows the paths")


def not_cleared(file: File, changes: Changes = DEFAULT) -> list[str]:
    """Paths of what `clear` would still take away.

    >>> import os, tempfile
    >>> import torch
    >>> from clearstate.formats import pt
    >>> path = os.path.join(tempfile.mkdtemp(), "net.pt")
    >>> torch.save({"model": {"weight": torch.ones(2)}, "rng_state": torch.zeros(8)}, path)
    >>> not_cleared(pt.open_zip(path))
    ['rng_state']
    """
    return [entry.path for entry in survey(file.root, changes).going]


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
