"""What does it hold? One door to the `Inventory` of anything."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from ..errors import FormatError
from ..inventory import Inventory
from ..transport.remote import here

if TYPE_CHECKING:
    from ..live.evidence.baseline import Baseline


def inspect(
    what: Any, *, sample: Any = None, baseline: Baseline | None = None, long_size: Literal[4, 8] | None = None
) -> Inventory:
    """The `Inventory` of a file, an object graph, or a live module.

    Args:
        what: the path (or address: ``s3://``, ``hf://``) of a Torch7 file, of a checkpoint of PyTorch (also
            safetensors, or the index of shards) or of a folder with such an index; an object graph that
            `clearstate.formats.t7.load` returned; or a module.
        sample: of a module, an input (a tuple: several): runs without what nobody knows say whether it is needed.
        baseline: of a module, what `observe` gave: what appeared or changed since is work's.
        long_size: bytes of a C ``long`` in the file; found out unless given.

    Raises:
        FormatError: the file is no whole file of these; names what it is where that can be known.
        TypeError: the argument is none of these.
        OSError: the file cannot be read.

    >>> from clearstate.formats import t7
    >>> print(inspect(t7.Object("nn.Linear", t7.Table(weight=t7.Tensor.of([[1.0, 2.0]])))))
    nn.Linear: Torch7 objects, 16 B
      parameter        16 B  100.0%
    """
    if isinstance(what, str | os.PathLike):
        with here(what, outline=True, parts=shards) as path:
            file = open_path(path, long_size=long_size)
            held: Inventory = door_of(file).inventory(file)
            return replace(held, source=os.fspath(what))
    from ..formats import t7

    if isinstance(what, t7.Object | t7.Table | t7.Tensor | t7.Storage | t7.Function):
        return t7.inspect(what, getattr(what, "typename", "table"))
    if is_module(what):
        from ..live.inventory import inspect as inspect_module

        return inspect_module(what, baseline, sample)
    raise TypeError(
        f"inspect takes a file's path, an object graph of clearstate.formats.t7 or a module, not {type(what)!r}"
    )


def is_module(value: Any) -> bool:
    """Whether a value is a ``torch.nn.Module``; torch is not imported to find out.

    >>> is_module(3)
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def open_path(path: str | os.PathLike[str], *, long_size: Literal[4, 8] | None = None) -> Any:
    """Opens a file, or a folder of shards, by what its bytes say; one of another kind is named for what it is."""
    name = os.fspath(path)
    if not os.path.isdir(name) and not _is_zip(name):
        from ..formats import t7

        try:
            return t7.open_file(name, long_size=long_size)
        except FormatError as error:
            wrong = error
    else:
        wrong = FormatError("a file of a model, or a folder with the index of a model's shards", "another", path=name)

    from ..formats.readers import kind_of
    from ..formats.sniff import refuse, sniff

    found = sniff(name)
    kind = kind_of(name, found) if found.whole else None
    if kind is None or kind == "t7":
        raise refuse(name) or wrong
    from ..formats.pt import door

    return door.open_as(name, kind)


def _is_zip(path: str) -> bool:
    """Whether a file begins as zip files do, and no Torch7 file: for these, Torch7's reader need not be loaded."""
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04"


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether a file is called as the index of a checkpoint in shards is.

    >>> is_index("model.safetensors.index.json"), is_index("config.json")
    (True, False)
    """
    from ..formats.readers import INDEX

    return INDEX.fullmatch(os.path.basename(path)) is not None


def shards(path: str | os.PathLike[str]) -> list[str]:
    """The names of the files that an index of shards names; none where the file is no such index, or makes no sense.

    >>> shards("config.json")
    []
    """
    if not is_index(path):
        return []
    from ..formats.pt.container.shards import shard_names

    try:
        return shard_names(os.fspath(path))
    except (FormatError, OSError):
        return []


def door_of(file: Any) -> Any:
    """What there is to do with an opened file: the module ``door`` of the format that it is of."""
    return importlib.import_module(".".join([*type(file).__module__.split(".")[:3], "door"]))
