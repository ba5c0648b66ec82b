"""Drops what work left behind: one door that finds the right room for its argument."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from ..errors import ClearstateError
from ..inventory import Inventory
from ..roles import DROPPED_BY_DEFAULT, DROPPED_FROM_MODULES, Role
from ..transport.progress import Watch
from ..transport.remote import beside, delivered, here, is_remote
from .inspect import door_of, is_index, is_module, open_path, shards

if TYPE_CHECKING:
    from ..formats.changes import Changes, Dropped, DType
    from ..live.evidence.baseline import Baseline

T = TypeVar("T")
Roles = Iterable["Role | str"]


@dataclass(frozen=True, slots=True)
class Cleared:
    """What `clear_file` did.

    Attributes:
        before: what the file held.
        after: what the new one holds.
        path: the file written; ``None`` on a dry run.
        done: what was done besides dropping roles, in sentences.
        dropped: what went, each with its path, its role and what it was.

    >>> from clearstate.roles import Role
    >>> from clearstate.inventory import Entry
    >>> weight, output = (Entry(path, "", "torch.FloatTensor", role, 40, "declared")
    ...     for path, role in (("weight", Role.PARAMETER), ("output", Role.TRANSIENT)))
    >>> before = Inventory("a.t7", "Torch7 file", 80, (weight, output))
    >>> after = Inventory("b.t7", "Torch7 file", 40, (weight,))
    >>> Cleared(before, after, "b.t7").freed
    40
    """

    before: Inventory
    after: Inventory
    path: str | None
    done: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def freed(self) -> int:
        """Bytes that the file is smaller by."""
        return self.before.size - self.after.size


def roles_to_drop(drop: Roles = (), keep: Roles = (), default: frozenset[Role] = DROPPED_BY_DEFAULT) -> frozenset[Role]:
    """The default roles, with those in ``drop`` and without those in ``keep``.

    Raises:
        ValueError: a word that is no role, or a role that is the model itself.

    >>> sorted(map(str, roles_to_drop(drop="gradient", keep=["optimizer", "training"])))
    ['gradient', 'slack', 'transient']
    """
    added, kept = (frozenset(map(_role, _words(words))) for words in (drop, keep))
    for role in added:
        if not role.droppable:
            raise ValueError(f"{role} is part of the model and is never dropped")
    return (default | added) - kept


def _words(words: Roles) -> list[Role | str]:
    """One word alone is meant whole, not letter by letter."""
    return [words] if isinstance(words, str) else list(words)


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
            A stand-in is run on it, in evaluation and in training mode; what training cannot prove, since the model
            does not run there, stays, and a warning names it. A sharded model runs its collectives: every rank must
            call, with a sample each; without a sample, no rank waits for another.
        baseline: what `observe` gave: what appeared or changed since goes, and is put back to what it was.
        drop: roles to drop besides the default ones, one or several: ``gradient``, ``code``; of modules also
            ``optimizer``: the state of optimizers that hang on them.
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
    from ..formats import t7

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
    from ..live.clearing import clear
    from ..live.stand_in.stand_in import stand_in_for

    module = cast(Any, model)
    dropped = roles_to_drop(drop, keep, DROPPED_FROM_MODULES)
    target = stand_in_for(module)[0] if dry_run else module
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
    from ..live.stand_in.stand_in import stand_in_for

    if not is_module(model):
        raise TypeError(f"cleared takes a module, not {_named(model)}; for a file call clear_file")
    stand_in, _ = stand_in_for(cast(Any, model))
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
    use: str | None = None,
    unwrap: bool = False,
    dtype: DType | None = None,
    plain: bool = False,
    dry_run: bool = False,
    long_size: Literal[4, 8] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Cleared:
    """Clears a file of what work left behind, in the layout it has, or in that which the output's name asks for.

    The new file is written beside its place, flushed to the disk, read back and compared with the
    old one before it replaces anything. A crash at any moment leaves the old file or the new one.

    Args:
        path: a Torch7 file, or a checkpoint of PyTorch: ``.pt`` and the like, safetensors, the index of shards. It, and
            the output, may be addresses (``s3://``, ``hf://``).
        output: the file to write, or the folder it goes into. A checkpoint's tensors go into a ``.safetensors`` file by
            the names of the state dict; shards go into a folder, or into one file. Along with shards, and with
            weights that a loader finds by their name and a configuration beside them (``model.safetensors``), goes what
            stands beside them and holds no weights (configuration, tokenizer) to another folder.
        in_place: replace ``path`` itself; needed where ``output`` is not given.
        drop: roles to drop besides the default ones; of a checkpoint also paths, with ``*`` as in names of files.
        keep: default roles, or paths, to leave.
        use: of a checkpoint's model and its copies, the one to keep as the model: ``ema`` (the average), ``model`` (the
            weights as trained), ``eval`` (what a schedule-free or averaging optimizer evaluates), or a copy's path.
        unwrap: take the prefixes of wrappers (``module.``, ``_orig_mod.``) off the names of the state dict.
        dtype: cast floating parameters to this type: ``float16``, ``bfloat16``, ``float32``. Buffers keep theirs.
        plain: write plain values in place of namespaces, configurations, paths and NumPy's numbers, and of a pickled
            module its state dict, so that ``torch.load(weights_only=True)`` reads the file.
        dry_run: write nothing, only say what would be.
        long_size: bytes of a C ``long`` in the file; found out unless given.
        progress: called now and then with the bytes written so far, and about how many there will be; when
            the two are equal, reading back begins.

    Raises:
        ValueError: no output is given and ``in_place`` is not set, or ``output`` is ``path``; a word is no role.
        FormatError: the file is no whole file of these.
        NothingLeft: all that the file holds would go.
        ClearstateError: what is asked for cannot be; or what was written does not equal what was read, and the old
            file is as it was.
        OSError: a file cannot be read or written.

    >>> import tempfile, os
    >>> from clearstate.formats import t7
    >>> old, new = (os.path.join(tempfile.mkdtemp(), name) for name in ("old.t7", "new.t7"))
    >>> t7.save(t7.Object("nn.Identity", t7.Table(output=t7.Tensor.of([1.0, 2.0]))), old)
    >>> report = clear_file(old, new)
    >>> report.freed == os.path.getsize(old) - os.path.getsize(new)
    True
    """
    how: dict[str, Any] = {"drop": drop, "keep": keep, "use": use, "unwrap": unwrap, "dtype": dtype, "plain": plain}
    how |= {"long_size": long_size, "progress": progress}
    done = clear_alone(path, output, in_place=in_place, dry_run=dry_run, **how)
    target = None if in_place or output is None else _file_in(os.fspath(path), os.fspath(output))
    said = [] if target is None else bring_neighbours(path, target, [path], dry_run=dry_run)
    return replace(done, done=(*done.done, *said))


def clear_alone(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    in_place: bool = False,
    dry_run: bool = False,
    long_size: Literal[4, 8] | None = None,
    progress: Callable[[int, int], None] | None = None,
    drop: Roles = (),
    keep: Roles = (),
    **asked: Any,
) -> Cleared:
    """`clear_file` without what lies beside one file of weights: for many files, of which each is beside the others."""
    changes = _changes(drop, keep, **asked)
    name = os.fspath(path)
    target = name if in_place else None if output is None else _file_in(name, os.fspath(output))
    if in_place and output is not None:
        raise ValueError("give an output or in_place, not both")
    if target is None and not dry_run:
        raise ValueError(f"say where the cleared file goes: an output, or in_place to replace {name}")
    if target is not None and not in_place and os.path.exists(target) and os.path.samefile(name, target):
        raise ValueError(f"{target} is the input itself; to replace it, say in_place")

    if is_remote(name) or (target is not None and is_remote(target)):
        how = {"drop": drop, "keep": keep, "long_size": long_size, "progress": progress, **asked}
        _make_folder(output, dry_run)
        return _elsewhere(name, target, dry_run=dry_run, **how)

    file = open_path(name, long_size=long_size)
    door = door_of(file)
    before = door.inventory(file)
    dropped = tuple(door.going(file, changes, before))
    done = door.change(file, changes)
    made, homeless = door.aimed(file, name if target is None else target)
    done = (*done, *homeless)
    if target is None or dry_run:
        return Cleared(before, door.inventory(made, door.size(made)), None, done, dropped)

    def check(written: str, part: Any) -> None:
        new = door.reopen(written, part)
        as_it_was = changes.only_roles and Role.COPY not in changes.drop and part is file
        old = door.reopen(name, file) if as_it_was else part
        wrong = [str(d) for d in door.differences(old, new, ignoring=changes.drop)]
        wrong += [f"{path}: was to be dropped" for path in door.left(new, changes)]
        if wrong:
            raise ClearstateError(f"{name} was not cleared: what was written differs from it: {wrong[0]}")

    total = sum(entry.bytes for entry in before.entries if entry.role not in changes.drop)
    watch = Watch(progress, total)
    _make_folder(output, dry_run)
    door.write(made, target, check, watch)
    if progress is not None:
        progress(total, total)
    return Cleared(before, door.inventory(made, door.written(made, target)), target, done, dropped)


def _make_folder(output: str | os.PathLike[str] | None, dry_run: bool) -> None:
    """Makes the folder that an output names by its last letter."""
    name = "" if output is None else os.fspath(output)
    if name.endswith(("/", os.sep)) and not is_remote(name) and not dry_run:
        os.makedirs(name, exist_ok=True)


def bring_along(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    cleared: Iterable[str | os.PathLike[str]],
    *,
    dry_run: bool = False,
) -> list[str]:
    """Copies what a folder holds besides weights (configuration, tokenizer) to that which its files were cleared into.

    Args:
        folder: the folder whose files were cleared; with its subfolders.
        output: the folder they went into. What it has already stays as it is there.
        cleared: the files, or indexes of shards, that were cleared.
        dry_run: copy nothing, only say what would be.

    Returns:
        What went along, and what stayed behind, in sentences.

    Raises:
        OSError: a file cannot be read or written.

    >>> import pathlib, tempfile
    >>> old, new = (pathlib.Path(tempfile.mkdtemp()) for _ in range(2))
    >>> _ = (old / "adapter_config.json").write_text("{}")
    >>> bring_along(old, new, []) == [f"went along from {old}: adapter_config.json"]
    True
    """
    from ..formats.pt.container.companions import below, copy_all
    from ..wording import some

    source, target = os.fspath(folder), os.fspath(output)
    taken: list[str] = []
    for path in [os.fspath(path) for path in cleared]:
        taken += [path, *(os.path.join(os.path.dirname(path), name) for name in shards(path))]
    along, behind = below(source, target, taken)
    if not dry_run:
        copy_all(along, source, target)
    said = (
        (f"went along from {source}", along),
        (f"not copied from {source}, since these may hold weights, or no loader asks for them", behind),
    )
    return [f"{what}: {some(names, 8)}" for what, names in said if names]


def bring_neighbours(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    cleared: Iterable[str | os.PathLike[str]],
    *,
    dry_run: bool = False,
) -> list[str]:
    """Copies what lies beside one file of weights in a folder that a loader knows to the folder it was cleared into.

    Nothing is copied where no loader would look: from a folder without its configuration, of a file or to a file that
    is not called as loaders call weights. Shards take along what lies beside their index when they are written.

    Args:
        path: the file that was cleared; it and the output may be addresses.
        output: the file it was cleared into. What lies beside that already stays as it is there.
        cleared: all files that were cleared with it: they stay behind, and no word of it.
        dry_run: copy nothing, only say what would be.

    Returns:
        What was copied, and what stayed behind, in sentences.

    Raises:
        OSError: a file cannot be read or written.

    >>> import pathlib, tempfile
    >>> old, new = (pathlib.Path(tempfile.mkdtemp(), "model.safetensors") for _ in range(2))
    >>> _ = old.with_name("config.json").write_text("{}")
    >>> bring_neighbours(old, new, [old])
    ['copied beside the new file: config.json']
    """
    from ..formats.pt.container.companions import copy_all, is_loaded, neighbours, sentences

    old, new = os.fspath(path), os.fspath(output)
    source, target = _folder_of(old), _folder_of(new)
    if source == target or not (is_loaded(old) and is_loaded(new)):
        return []
    own = {os.path.basename(name) for name in [os.fspath(one) for one in cleared] if _folder_of(name) == source}
    along, behind = neighbours(beside(old), {*own, *(name for name, _ in beside(new))})
    for name in [] if dry_run else along:
        with ExitStack() as copies:
            copied = copies.enter_context(here(f"{source}/{name}"))
            folder = os.path.dirname(copies.enter_context(delivered(f"{target}/{name}"))) if is_remote(new) else target
            copy_all([name], os.path.dirname(copied), folder)
    return sentences("copied beside the new file", along, behind)


def _folder_of(path: str) -> str:
    """The folder that a file is in, by the one name it has."""
    return os.path.dirname(path) if is_remote(path) else os.path.realpath(os.path.dirname(path) or os.curdir)


def _file_in(name: str, output: str) -> str:
    """The file to write, where a folder is given for one file; shards have a folder to themselves."""
    folder = output.endswith(("/", os.sep)) or (not is_remote(output) and os.path.isdir(output))
    whole = (is_index(name) and not is_remote(output)) or (not is_remote(name) and os.path.isdir(name))
    return os.path.join(output, os.path.basename(name)) if folder and not whole else output


def _elsewhere(name: str, target: str | None, *, dry_run: bool, **how: Any) -> Cleared:
    """The same where the file is elsewhere, or is to go there: on copies here."""
    from ..formats.pt.container.companions import goes_along

    whole = is_remote(name) and is_index(name) and target is not None and target.endswith(("/", ".json"))
    with ExitStack() as copies:
        local = copies.enter_context(here(name, parts=shards, beside=goes_along if whole else None))
        alone = whole and len(os.listdir(os.path.dirname(local))) == 1 + len(shards(local))
        place = target
        if target is not None and is_remote(target):
            place = None if dry_run else copies.enter_context(delivered(target))
        held = []
        if is_index(name) and target is not None and place is not None and place != target:
            there = [found for found, size in beside(target) if goes_along(found, size)]
            held = [os.path.join(os.path.dirname(place), found) for found in there]
        for path in held:
            open(path, "xb").close()  # what is there already stays: it is not written here, nor sent
        done = clear_alone(local, place, dry_run=dry_run, **how)
        for path in held:
            os.unlink(path)
    before, after = replace(done.before, source=name), replace(done.after, source=target or name)
    if alone:
        missing = (
            "nothing but the index and its shards was found there: config.json and the like are still to be copied"
        )
        done = replace(done, done=(*done.done, missing))
    return replace(done, before=before, after=after, path=None if dry_run else target)


def _changes(drop: Roles, keep: Roles, **asked: Any) -> Changes:
    """What is asked for: words that are roles, words that are paths, and the rest.

    Raises:
        ValueError: a choice there is not.
    """
    from ..formats.changes import Changes, choices

    roles, paths = zip(*(_sorted_out(words) for words in (drop, keep)), strict=True)
    for option, known in choices().items():
        if asked[option] not in (None, *known):
            raise ValueError(f"{option} is one of {', '.join(known)}, not {asked[option]!r}")
    return Changes(roles_to_drop(*roles), *paths, **asked)


def _sorted_out(words: Roles) -> tuple[list[Role | str], tuple[str, ...]]:
    """Words that name roles, and words that name paths: all others."""
    known = {str(role) for role in Role}
    given = _words(words)
    return [word for word in given if str(word) in known], tuple(str(word) for word in given if str(word) not in known)
