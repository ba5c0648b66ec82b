"""Files elsewhere (``s3://``, ``gs://``, ``hf://``, ``memory://``): fetched before they are read, delivered once whole.

What can be reached is what fsspec reaches; it is imported when an address comes up, and only then.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..errors import ClearstateError, FormatError

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(::[A-Za-z0-9+.-]+)*://")
"""How an address begins, and no path does."""

Parts = Callable[[str], list[str]]
"""The names of the files that a file names, as an index does its shards: they come with it."""

Beside = Callable[[str, int], bool]
"""Says of a file in the same folder, by its name and its bytes, whether it is to come."""

LONGEST = 300
"""Letters of what a backend says that are told."""


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Whether this is an address, and no path.

    >>> is_remote("s3://models/net.pt"), is_remote("models/net.pt"), is_remote("C:/net.pt")
    (True, False, False)
    """
    return ADDRESS.match(os.fspath(path)) is not None


def here(
    path: str | os.PathLike[str],
    *,
    outline: bool = False,
    parts: Parts | None = None,
    beside: Beside | None = None,
) -> AbstractContextManager[str]:
    """The path of a file on this machine: itself, or that of a copy of what is elsewhere.

    With ``outline`` the copy may have holes in place of numbers. For ``parts`` and ``beside`` see `fetched`.

    >>> with here("model.t7") as path:
    ...     path
    'model.t7'
    """
    name = os.fspath(path)
    return fetched(name, outline=outline, parts=parts, beside=beside) if is_remote(name) else nullcontext(name)


@contextmanager
def fetched(
    address: str, *, outline: bool = False, parts: Parts | None = None, beside: Beside | None = None
) -> Iterator[str]:
    """A copy of the file for the time of the block; with ``parts``, all that these say it names beside it.

    With ``beside`` come the other files of its folder for whose name and bytes it says yes, where the place can list
    what it has.

    Raises:
        ClearstateError: fsspec, or what it needs for such addresses, is not installed, or does not let us in.
        OSError: there is no such file, or it cannot be reached. All that is raised names the address.

    >>> import fsspec
    >>> with fsspec.open("memory://models/net.pt", "wb") as file:
    ...     _ = file.write(b"x")
    >>> with fetched("memory://models/net.pt") as path:
    ...     os.path.basename(path), os.path.getsize(path)
    ('net.pt', 1)
    """
    system, place = _system(address)
    with _folder() as folder:
        local = os.path.join(folder, posixpath.basename(place))
        with _named(folder, posixpath.dirname(address)):
            _get(system, place, local, address, outline)
            names = parts(local) if parts is not None else []
            if beside is not None:
                known = {os.path.basename(local), *names}
                listed = _listed(system, posixpath.dirname(place))
                names += [name for name, size in listed if name not in known and beside(name, size)]
            for name in names:
                there = posixpath.join(posixpath.dirname(place), name)
                told = posixpath.join(posixpath.dirname(address), name)
                _get(system, there, os.path.join(folder, name), told, outline)
            yield local


@contextmanager
def delivered(address: str) -> Iterator[str]:
    """A place for a new file; what was written there, and beside it, is sent when the block ends well.

    >>> import fsspec
    >>> with delivered("memory://models/new.pt") as path, open(path, "wb") as file:
    ...     _ = file.write(b"xyz")
    >>> fsspec.filesystem("memory").size("/models/new.pt")
    3
    """
    system, place = _system(address)
    above = posixpath.dirname(place)
    with _folder() as folder, _named(folder, posixpath.dirname(address)):
        yield os.path.join(folder, posixpath.basename(place))
        with _reaching(address):
            for name in sorted(os.listdir(folder)):
                system.makedirs(above, exist_ok=True)
                system.put_file(os.path.join(folder, name), posixpath.join(above, name))


def found(pattern: str, suffixes: tuple[str, ...]) -> list[str]:
    """The addresses that a pattern, or a folder (all in it with these endings), stands for; else the address itself.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/nets/a.pt", b"x")
    >>> found("memory://nets/*.pt", (".pt",)), found("memory://nets", (".pt",))
    (['memory://nets/a.pt'], ['memory://nets/a.pt'])
    """
    system, place = _system(pattern)
    scheme = pattern[: pattern.index("://") + 3]
    with _reaching(pattern):
        if any(sign in place for sign in "*?["):
            names = sorted(str(name) for name in system.glob(place))
        elif system.isdir(place):
            names = sorted(str(name) for name in system.find(place) if str(name).lower().endswith(suffixes))
        else:
            return [pattern]
    if not names:
        raise ClearstateError(f"no file matches {pattern}")
    return [scheme + name.lstrip("/") for name in names]


def beside(path: str) -> list[tuple[str, int]]:
    """The names and bytes of the files in the folder that a file is in, here or elsewhere; hidden ones aside.

    There are none where there is no such folder, or where nobody lists what it has.

    >>> import fsspec
    >>> fsspec.filesystem("memory").pipe("/beside/net.pt", b"x")
    >>> beside("memory://beside/other.pt"), beside("no such folder/other.pt")
    ([('net.pt', 1)], [])
    """
    if is_remote(path):
        system, place = _system(path)
        return _listed(system, posixpath.dirname(place))
    folder = os.path.dirname(path) or os.curdir
    names = [name for name in _entries(folder) if not name.startswith(".")]
    return [(name, os.path.getsize(at)) for name in names if os.path.isfile(at := os.path.join(folder, name))]


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _listed(system: Any, folder: str) -> list[tuple[str, int]]:
    """The names and bytes of the files in a folder, hidden ones aside; none where the place does not list them, as
    most of the web."""
    try:
        files = [found for found in system.ls(folder, detail=True) if found["type"] == "file"]
        listed = [(posixpath.basename(found["name"]), found["size"]) for found in files]
    except Exception:
        return []
    return [(name, size) for name, size in listed if not name.startswith(".") and isinstance(size, int)]


def _folder() -> AbstractContextManager[str]:
    import tempfile

    return tempfile.TemporaryDirectory(prefix="clearstate-")


def _system(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError:
        raise ClearstateError(f"{address}: reading from there needs fsspec: pip install clearstate[remote]") from None
    with _reaching(address):
        system, place = fsspec.core.url_to_fs(address)
    return system, place


def _get(system: Any, place: str, local: str, address: str, outline: bool) -> None:
    from .outline import fetch_outline

    with _reaching(address):
        if not (outline and fetch_outline(system, place, local)):
            system.get_file(place, local)


@contextmanager
def _reaching(address: str) -> Iterator[None]:
    """Says of whatever a backend of fsspec raises that this address could not be reached, and why.

    A backend raises what the library behind it has: errors of the net, of credentials, of arguments it misses.
    """
    try:
        yield
    except (ClearstateError, MemoryError):
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno or errno.ENOENT, "no such file", address) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror or _reason(error), address) from error
        raise ClearstateError(f"{address} cannot be reached: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """What an error says, on one line; one that says nothing has a name.

    >>> _reason(KeyError()), _reason(ValueError("two  lines\\n of it.\\n"))
    ('KeyError', 'two lines of it')
    """
    text = " ".join(str(error).split()).rstrip(".")
    return text if 0 < len(text) <= LONGEST else f"{text[: LONGEST - 1]}…" if text else type(error).__name__


@contextmanager
def _named(folder: str, address: str) -> Iterator[None]:
    """Says the address where an error says the name of the folder that stands for it."""
    try:
        yield
    except FormatError as error:
        if error.path is not None:
            error.path = os.fspath(error.path).replace(folder, address)
        raise
    except ClearstateError as error:
        error.args = tuple(part.replace(folder, address) if isinstance(part, str) else part for part in error.args)
        raise
    except OSError as error:
        if isinstance(error.filename, str):
            error.filename = error.filename.replace(folder, address)
        raise
