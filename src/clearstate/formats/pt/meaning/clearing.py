"""Clears a checkpoint: entries of dropped roles go, and storages keep the bytes that a tensor sees."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ....errors import ClearstateError, NothingLeft
from ....roles import Role
from ....wording import some
from ...changes import Changes, matches
from ...coverage import cover
from ..container.file import File
from ..copies.choosing import called, choose
from ..copies.evaluating import evaluate, evaluated, warnings
from ..layout.models import Place, main_model
from ..layout.prefixes import unwrap
from ..layout.programs import role_by_structure
from ..pickle.stubs import Storage, Tensor, Value, children, view_of, walk
from .casting import cast
from .plain import make_plain
from .survey import DEFAULT, Going, survey, topmost


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
    asked = _asked(survey(file.root, changes).going, changes) if changes.dropped else []
    file.root = _without(file.root, [entry for entry in asked if entry.role is Role.COPY])
    done: list[str] = []
    if changes.use == "eval":
        done = [evaluate(file.root)]
    elif changes.use is not None:
        done, replaced = choose(file.root, changes.use)
        file.root = _without(file.root, replaced)
    found = survey(file.root, changes)
    going = found.going
    whole = None if id(file.root) in found.holders else role_by_structure(file.root)
    own = {entry.key: entry.role for entry in going if entry.table is file.root}
    if whole in changes.drop or (own and not _left(file.root, own)):
        by_path = whole not in changes.drop and not changes.drop.issuperset(own.values())
        what = "all of it is to go" if by_path else f"it is {whole or next(iter(own.values()))} state and nothing else"
        raise NothingLeft(f"{file.path}: {what}, and nothing would be left of it")
    done += warnings(evaluated(file.root)) if Role.OPTIMIZER in changes.drop and changes.use != "eval" else []
    names = [entry.path for entry in topmost(asked) if entry.role not in changes.drop]
    while going:
        file.root = _without(file.root, going)
        going = survey(file.root, changes).going if changes.dropped else []  # a copy of which all went is none
    done += [f"as asked, {some(names, 3)} went"] if names else []
    if Role.COPY in changes.drop:
        gone = [copy for copy in found.copies if changes.fate(copy.path, Role.COPY)]
        done += [f"{called(copy)} went" for copy in gone]
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


def _left(root: Value, going: Collection[Value]) -> bool:
    """Whether anything but empty places is left of a checkpoint without these entries."""
    return any(key not in going and (isinstance(root, dict) or value is not None) for key, value in children(root))


def _without(root: Value, going: Sequence[Going | Place]) -> Value:
    """A checkpoint without these entries, in place; a list keeps its length, and so does what stands for a tuple."""
    empty: dict[int, tuple[Value, set[Value]]] = {}
    for entry in going:
        if isinstance(entry.table, tuple):
            empty.setdefault(id(entry.table), (entry.table, set()))[1].add(entry.key)
        elif isinstance(entry.table, list):
            entry.table[entry.key] = None
        else:
            entry.table.pop(entry.key, None)
    made: dict[int, Value] = {}
    changed = {
        number: tuple(None if i in keys else item for i, item in enumerate(old))
        for number, (old, keys) in empty.items()
    }
    while changed:  # a tuple that holds one of them is another, too
        made.update(changed)
        changed = {}
        for value in walk(root):
            for key, item in children(value) if isinstance(value, dict | list | tuple) else ():
                if id(item) not in made:
                    continue
                if isinstance(value, tuple):
                    changed[id(value)] = tuple(made.get(id(part), part) for part in value)
                else:
                    value[key] = made[id(item)]
        changed = {number: new for number, new in changed.items() if number not in made}
    return made.get(id(root), root)


def _asked(going: Sequence[Going], changes: Changes) -> list[Going]:
    """The entries that patterns of paths ask for.

    Raises:
        ClearstateError: a pattern is that of nothing.
    """
    for pattern in changes.dropped:
        if not any(matches(entry.path, pattern) for entry in going):
            raise ClearstateError(f"nothing here is called {pattern}; clearstate inspect --all shows the paths")
    return [entry for entry in going if any(matches(entry.path, pattern) for pattern in changes.dropped)]


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
