"""Drops what work left behind: one door that finds the right room for its argument."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar, cast

from .errors import ClearstateError
from .inspecting import door_of, is_module, open_path
from .inventory import Inventory
from .roles import DROPPED_BY_DEFAULT, Role

if TYPE_CHECKING:
    from .live.baseline import Baseline

T = TypeVar("T")
Roles = Iterable["Role | str"]


@dataclass(frozen=True, slots=True)
class Cleared:
    """What `clear_file` did: the inventory before and after, and the file written (``None`` on a dry run)."""

    before: Inventory
    after: Inventory
    path: str | None

    @property
    def freed(self) -> int:
        """Bytes that the file is smaller by."""
        return self.before.size - self.after.size


def roles_to_drop(drop: Roles = (), keep: Roles = ()) -> frozenset[Role]:
    """The default roles, with those in ``drop`` and without those in ``keep``.

    Raises:
        ValueError: a word that is no role, or a role that is the model itself.

    >>> sorted(map(str, roles_to_drop(drop=["gradient"], keep=["optimizer", "training"])))
    ['copy', 'gradient', 'slack', 'transient']
    """
    added, kept = (frozenset(_role(word) for word in words) for words in (drop, keep))
    for role in added:
        if not role.droppable:
            raise ValueError(f"{role} is part of the model and is never dropped")
    return (DROPPED_BY_DEFAULT | added) - kept


def _role(word: Role | str) -> Role:
    try:
        return Role(word)
    except ValueError:
        raise ValueError(f"{word!r} is no role; the roles are {', '.join(map(str, Role))}") from None


def clear_state(
    model: T,
    *,
    sample: Any = None,
    baseline: Baseline | None = None,
    drop: Roles = (),
    keep: Roles = (),
    collect: bool = False,
    dry_run: bool = False,
) -> T:
    """Drops what work left behind on a model, in place, and returns the model.

    Args:
        model: any ``torch.nn.Module``, or an object graph that `clearstate.formats.t7.load` returned.
        sample: an input of the module (a tuple: several): what the module gives the same numbers without goes, too.
        baseline: what `observe` gave: what appeared or changed since goes, and is put back to what it was.
        drop: roles to drop besides the default ones: ``gradient``, ``code``.
        keep: default roles to leave: ``optimizer``, ``slack``, ...
        collect: for modules: also collect garbage, and give the device's cached memory back.
        dry_run: only try it, on a stand-in for the module; raises what it would raise.

    Raises:
        TypeError: the argument is nothing that clearstate clears; says which function takes it.
        ValueError: a word in ``drop`` or ``keep`` is no role that can be dropped; a sample or a baseline for a file.
        ClearstateError: something on the module cannot be cleared; the module is as it was.

    >>> import torch
    >>> layer = torch.nn.Linear(2, 2)
    >>> layer.last = layer(torch.ones(2))
    >>> clear_state(layer) is layer, hasattr(layer, "last")
    (True, False)
    """
    from .formats import t7

    dropped = roles_to_drop(drop, keep)
    if isinstance(model, t7.Object | t7.Table | t7.Tensor | t7.Storage | t7.Function):
        if sample is not None or baseline is not None:
            raise ValueError("a sample or a baseline is for modules: nothing runs in a file")
        if not dry_run:
            t7.clear(model, dropped)
        return model
    if isinstance(model, str | os.PathLike):
        raise TypeError(f"clear_state takes a model; for a file call clear_file({str(model)!r}, ...)")
    if not is_module(model):
        raise TypeError(f"clear_state takes a module or an object graph of clearstate.formats.t7, not {_named(model)}")
    from .live.clearing import clear
    from .live.shadow import shadow

    module = cast(Any, model)
    target = shadow(module)[0] if dry_run else module
    clear(target, dropped, sample=sample, baseline=baseline, collect=collect)
    return model


@contextmanager
def cleared(model: T, **how: Any) -> Iterator[T]:
    """A cleared stand-in for a model, to save it in the middle of training: the model itself stays as it is.

    The stand-in shares all parameters and buffers with the model; no tensor is copied.

    >>> import torch
    >>> layer = torch.nn.Linear(2, 2)
    >>> layer.last = layer(torch.ones(2))
    >>> with cleared(layer) as light:
    ...     hasattr(light, "last"), light.weight is layer.weight
    (False, True)
    >>> layer.last is not None
    True

    Args:
        model: any module.
        how: the arguments of `clear_state`.

    Raises:
        TypeError: the argument is no module.
    """
    from .live.shadow import shadow

    if not is_module(model):
        raise TypeError(f"cleared takes a module, not {_named(model)}; for a file call clear_file")
    stand_in, _ = shadow(cast(Any, model))
    yield cast(T, clear_state(stand_in, **how))


def _named(value: Any) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def clear_file(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    in_place: bool = False,
    drop: Roles = (),
    keep: Roles = (),
    dry_run: bool = False,
    long_size: Literal[4, 8] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Cleared:
    """Clears a file of what work left behind, in the layout it has.

    The new file is written beside its place, flushed to the disk, read back and compared with the
    old one before it replaces anything. A crash at any moment leaves the old file or the new one.

    Args:
        path: a Torch7 file, or a PyTorch checkpoint (zip).
        output: the file to write.
        in_place: replace ``path`` itself; needed where ``output`` is not given.
        drop: roles to drop besides the default ones.
        keep: default roles to leave.
        dry_run: write nothing, only say what would be.
        long_size: bytes of a C ``long`` in the file; found out unless given.
        progress: called now and then with the bytes written so far, and about how many there will be; when
            the two are equal, reading back begins.

    Raises:
        ValueError: no output is given and ``in_place`` is not set, or ``output`` is ``path``; a word is no role.
        FormatError: the file is no whole file of these.
        ClearstateError: what was written does not equal what was read; the old file is as it was.
        OSError: a file cannot be read or written.

    >>> import tempfile, os
    >>> from clearstate.formats import t7
    >>> old, new = (os.path.join(tempfile.mkdtemp(), name) for name in ("old.t7", "new.t7"))
    >>> t7.save(t7.Object("nn.Identity", t7.Table(output=t7.Tensor.of([1.0, 2.0]))), old)
    >>> report = clear_file(old, new)
    >>> report.freed == os.path.getsize(old) - os.path.getsize(new)
    True
    """
    from .formats.atomic import replacing

    dropped = roles_to_drop(drop, keep)
    name = os.fspath(path)
    target = name if in_place else None if output is None else os.fspath(output)
    if in_place and output is not None:
        raise ValueError("give an output or in_place, not both")
    if target is None and not dry_run:
        raise ValueError(f"say where the cleared file goes: an output, or in_place to replace {name}")
    if target is not None and not in_place and os.path.exists(target) and os.path.samefile(name, target):
        raise ValueError(f"{target} is the input itself; to replace it, say in_place")

    file = open_path(name, long_size=long_size)
    door = door_of(file)
    before = door.inventory(file)
    door.drop(file, dropped)
    if target is None or dry_run:
        return Cleared(before, door.inventory(file, door.size(file)), None)

    def check(written: str) -> None:
        old, new = door.reopen(name, file), door.reopen(written, file)
        wrong = [str(d) for d in door.differences(old, new, ignoring=dropped)]
        wrong += [f"{path}: was to be dropped" for path in door.left(new, dropped)]
        if wrong:
            raise ClearstateError(f"{name} was not cleared: what was written differs from it: {wrong[0]}")

    with replacing(target, check) as handle:
        if progress is None:
            door.save(file, handle)
        else:
            total = sum(entry.bytes for entry in before.entries if entry.role not in dropped)
            door.save(file, cast(BinaryIO, _Watched(handle, progress, total)))
            progress(total, total)
    return Cleared(before, door.inventory(file, os.path.getsize(target)), target)


class _Watched:
    """A file being written that tells how far it has come whenever it is flushed: before each large piece."""

    def __init__(self, handle: BinaryIO, progress: Callable[[int, int], None], total: int) -> None:
        self.write = handle.write
        self.fileno = handle.fileno
        self._handle = handle
        self._progress = progress
        self._total = total

    def flush(self) -> None:
        self._handle.flush()
        self._progress(min(os.lseek(self.fileno(), 0, os.SEEK_CUR), max(self._total - 1, 0)), self._total)
