"""From the arguments of a command to files, and from what went wrong to one sentence."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Literal, NamedTuple

import clearstate as cs
from clearstate.transport.remote import found as remote_files
from clearstate.transport.remote import is_remote
from clearstate.verbs.inspect import is_index, shards

SUFFIXES = (".t7", ".pt", ".pth", ".ckpt", ".bin", ".safetensors")
"""What files of models are called, in a folder."""


class Found(NamedTuple):
    """A file to work on, and its name below the folder or pattern it was found by."""

    path: str
    relative: str


def find(arguments: Iterable[str], *, outside: str | None = None) -> list[Found]:
    """The files that the arguments name: files, directories (all in them that end in `SUFFIXES`) and patterns.

    Args:
        arguments: as given.
        outside: a folder that is not searched: the one the results go to.

    Raises:
        ClearstateError: an argument names nothing.
    """
    found: dict[str, Found] = {}
    for argument in arguments:
        for file in _named(argument, outside):
            found.setdefault(os.path.realpath(file.path), file)
    return list(found.values())


def _named(argument: str, outside: str | None) -> Iterator[Found]:
    if not argument:
        raise cs.ClearstateError("one of the names is empty: no file is called that")
    if is_remote(argument):
        base = _fixed_folder(argument) if glob.has_magic(argument) else argument
        for address in remote_files(argument, SUFFIXES):
            yield Found(address, address.removeprefix(base).lstrip("/") or os.path.basename(address))
    elif os.path.isdir(argument):
        yield from _below(argument, argument, outside)
    elif os.path.lexists(argument) or not glob.has_magic(argument):
        yield Found(argument, os.path.basename(argument))
    else:
        matches = sorted(glob.glob(argument, recursive=True))
        if not matches:
            raise cs.ClearstateError(f"no file matches {argument}")
        base = _fixed_folder(argument)
        for match in matches:
            if not os.path.isdir(match):
                relative = os.path.relpath(match, base)
                yield Found(match, os.path.basename(match) if relative.startswith(os.pardir) else relative)
            elif "**" not in argument:
                yield from _below(match, base, outside)


def is_many(argument: str) -> bool:
    """Whether an argument can stand for more than one file."""
    if is_remote(argument):
        return glob.has_magic(argument) or argument.endswith("/")
    return os.path.isdir(argument) or (glob.has_magic(argument) and not os.path.lexists(argument))


def _below(folder: str, base: str, outside: str | None) -> Iterator[Found]:
    skipped = outside and os.path.realpath(outside)
    none = True
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(f for f in folders if os.path.realpath(os.path.join(place, f)) != skipped)
        indexes, parts = _sharded(place, names)
        for name in sorted(names):
            if name in indexes or (name.lower().endswith(SUFFIXES) and name not in parts):
                none = False
                path = os.path.join(place, name)
                yield Found(path, os.path.relpath(path, base))
    if none and is_distributed(folder):
        yield Found(folder, os.path.basename(folder))  # to be refused in words
    elif none:
        known = f"{', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}"
        raise cs.ClearstateError(f"{folder} holds no {known} file; name the files if they are called otherwise")


def is_distributed(folder: str) -> bool:
    """Whether a folder is a checkpoint of torch.distributed.checkpoint: none is read, and what reads files says so."""
    return os.path.isfile(os.path.join(folder, ".metadata"))


def _sharded(place: str, names: Iterable[str]) -> tuple[set[str], set[str]]:
    """The indexes of shards in a folder, and the shards: they are read and written through their index.

    One that makes no sense is among them, to be refused in words.
    """
    indexes = set(filter(is_index, names))
    return indexes, {part for name in indexes for part in shards(os.path.join(place, name))}


def _refuse(error: OSError) -> None:
    raise error


def _fixed_folder(pattern: str) -> str:
    """The part of a pattern before its first wildcard, as a folder."""
    folder = pattern
    while glob.has_magic(folder):
        folder = os.path.dirname(folder)
    return folder or os.curdir


def readable(path: str) -> str:
    """The path, if it is that of a file, or of a folder with the index of a model's shards.

    Raises:
        ClearstateError: it is something else.
        OSError: there is nothing, or nothing that may be looked at.
    """
    if is_remote(path):
        return path
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        if _sharded(path, os.listdir(path))[0] or is_distributed(path):
            return path
        raise cs.ClearstateError(f"{path} is a directory, not a file")
    if not stat.S_ISREG(mode):
        raise cs.ClearstateError(f"{path} is a pipe or a device; save what it gives in a file first")
    return path


def bytes_of(path: str) -> int:
    """The size of a file; 0 where it cannot be told."""
    with suppress(OSError):
        return 0 if is_remote(path) else os.path.getsize(path)
    return 0


def long_size(given: str | None) -> Literal[4, 8] | None:
    """The size of a C ``long`` that was asked for, if one was."""
    if given is None:
        return None
    if given not in ("4", "8"):
        raise cs.ClearstateError(f"--long-size is 4 or 8, not {given}")
    return 4 if given == "4" else 8


def sentence(error: BaseException, *, writing: str | None = None, reading: str | None = None) -> str:
    """What went wrong, for the person at the keyboard.

    Args:
        error: what was raised.
        writing: the file that was being written, where another one was read.
        reading: the file that was read, for errors that do not name one: of a disk, as numbers are read.
    """
    message = getattr(error, "format_message", None)
    if message is not None:
        text = str(message()).rstrip(".")
        command = getattr(getattr(error, "ctx", None), "command_path", "clearstate")
        return f"{text[:1].lower()}{text[1:]}; see {command} --help"
    if isinstance(error, OSError):
        reason = (error.strerror or str(error) or type(error).__name__).lower()
        name = writing or error.filename or reading
        doing = "write" if writing else "read"
        return f"cannot {doing} {os.fsdecode(name)}: {reason}" if name is not None else reason
    if isinstance(error, MemoryError):
        return "there is not enough memory for this"
    if isinstance(error, cs.ClearstateError | ValueError):
        return str(error)
    return f"this is a mistake in clearstate, please report it: {type(error).__name__}: {error}"
