"""Checkpoints in shards: an index that says which file each tensor is in, and the files, read as one and written back.

Follows ``save_pretrained`` and ``load_sharded_checkpoint`` of Hugging Face's transformers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, BinaryIO

from ....errors import ClearstateError, FormatError
from ...atomic import replacing
from ...readers import INDEX, kind_of
from ...safetensors import ties
from ..pickle.brief import brief
from ..pickle.stubs import Ordered, Stub, Tensor, Value
from .file import File
from .kinds import CONTAINERS
from .zip import storages_of

LONGEST_INDEX = 64 << 20
"""Bytes of an index; one of a million tensors has about as many."""

MOST_PARTS = 100_000
"""Objects and lists in an index, which needs three; brackets in names count too."""

Check = Callable[[str, File], None]
Watch = Callable[[BinaryIO], BinaryIO]


@dataclass(slots=True)
class Sharded(File):
    """An opened checkpoint in shards: its root has the tensors of all of them, its layout is ``sharded``.

    Attributes:
        index: what the index says, besides where each tensor is.
        shards: the opened files, by the names that the index has for them.
    """

    index: dict[str, Any] = field(default_factory=dict)
    shards: dict[str, File] = field(default_factory=dict)

    @property
    def flat(self) -> bool:
        """Whether all shards hold tensors by name and nothing else."""
        return all(file.flat for file in self.shards.values())

    def merged(self) -> File:
        """The same as one file, whose layout is still to be chosen."""
        return File(**{each.name: getattr(self, each.name) for each in fields(File)})


def open_sharded(path: str) -> Sharded:
    """The tensors of all shards under one root, in the order of the shards' names. Their bytes are mapped, not read.

    A tensor that a shard has and the index does not name is read all the same, as every loader of whole shards does.

    Args:
        path: the index, or a folder that has one.

    Raises:
        FormatError: the index makes no sense, a shard is missing or damaged, or a tensor is not in the shard that the
            index names, or in two.
        OSError: a file cannot be read.
    """
    path = _index_in(path) if os.path.isdir(path) else path
    index, places = _read_index(path)
    folder = os.path.dirname(path)
    shards = {name: _opened(path, folder, name) for name in sorted(set(places.values()))}
    root: dict[str, Value] = {}
    homes: dict[str, str] = {}
    for shard, file in shards.items():
        for name, value in file.root.items():
            if name in homes:
                found = f"it in {homes[name]} and in {shard}"
                raise FormatError(f"{brief(name)} in one shard", found, path=path)
            root[name], homes[name] = value, shard
    for name, shard in places.items():
        if homes.get(name) != shard:
            found = f"it in {homes[name]}" if name in homes else "none"
            raise FormatError(f"{brief(name)} in {shard}, where the index has it", found, path=path)
    size = os.path.getsize(path) + sum(file.size for file in shards.values())
    storages = [storage for file in shards.values() for storage in file.storages]
    kinds = {file.kind for file in shards.values()}
    kind = f"{len(shards)} shards ({kinds.pop()})" if len(kinds) == 1 else f"{len(shards)} shards"
    texts = {name: text for file in shards.values() for name, text in file.metadata.items()}
    return Sharded(path, kind, "sharded", root, size, storages=storages, metadata=texts, index=index, shards=shards)


def shard_names(path: str) -> list[str]:
    """The files that an index names, each once.

    Raises:
        FormatError: the index makes no sense.
        OSError: it cannot be read.
    """
    return sorted(set(_read_index(path)[1].values()))


def _index_in(folder: str) -> str:
    names = sorted(filter(INDEX.fullmatch, os.listdir(folder)))
    if len(names) != 1:
        found = " and ".join(names) + ": name the one to read" if names else "none"
        raise FormatError("one index of shards (*.index.json) in the folder", found, path=folder)
    return os.path.join(folder, names[0])


def _read_index(path: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What an index says besides, and the shard of each name."""
    with open(path, "rb") as handle:
        size = os.fstat(handle.fileno()).st_size  # memory is set aside for as much as is asked for
        if size > LONGEST_INDEX:
            raise FormatError(f"an index of at most {LONGEST_INDEX} bytes", "a longer one", path=path)
        data = handle.read(size)
    if data.count(b"{") + data.count(b"[") > MOST_PARTS:
        raise FormatError("an index: names, and the shard of each", "a heap of lists or objects", path=path)
    try:
        index = json.loads(data, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        found = str(error)[:120] if isinstance(error, ValueError) else "a nest without end"
        place = error.pos if isinstance(error, json.JSONDecodeError) else None
        raise FormatError("an index in JSON", found, offset=place, path=path) from None
    places = index.pop("weight_map", None) if isinstance(index, dict) else None
    if not isinstance(places, dict) or not isinstance(index.get("metadata", {}), dict):
        raise FormatError("an index with a weight_map (names, and the shard of each)", brief(index), path=path)
    for name, shard in places.items():
        if not isinstance(shard, str) or not shard or shard in (".", "..") or set(shard) & set("/\\:\0\n"):
            raise FormatError(f"the name of a file beside the index, for {brief(name)}", brief(shard), path=path)
    return index, places


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        met: set[str] = set()
        twice = next(key for key, _ in pairs if key in met or met.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"{brief(twice)} twice")
    return found


def _opened(index: str, folder: str, name: str) -> File:
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        raise FormatError(f"the shard {name[:99]} beside the index", "no such file", path=index)
    kind = kind_of(path)
    if kind not in CONTAINERS:
        found = f"{kind or 'another'} file"
        raise FormatError(f"a shard {name[:99]} that PyTorch or safetensors wrote", found, path=index)
    file = CONTAINERS[kind].open(path)
    if not isinstance(file.root, dict) or not all(isinstance(key, str) for key in file.root):
        raise FormatError("a dict of tensors by name in a shard", brief(file.root), path=path)
    return file


def write_sharded(file: Sharded, folder: str, check: Check | None = None, watch: Watch | None = None) -> None:
    """Writes the root back into the same shards and formats, and then the index, with its ``total_size`` counted anew.

    Each file is replaced whole or not at all. What was dropped from the root is in no shard; one that has nothing left
    is an empty one. An entry with a new name goes where its value was.

    Args:
        file: what `open_sharded` gave, its root changed or not.
        folder: where to write; the files' names stay. It may be where they are.
        check: called for each finished shard, before it replaces anything, with a name to read it by and what it
            should hold.
        watch: gives what to write to in place of each open file.

    Raises:
        ClearstateError: an entry of the root was in no shard, or its shard's format cannot hold it.
        OSError: a file cannot be written.
    """
    parts = parted(file)
    index = _index_of(file, parts)
    for shard, part in parts.items():
        with replacing(os.path.join(folder, shard), _checking(check, part)) as handle:
            CONTAINERS[part.layout].write(part, watch(handle) if watch else handle)
    with replacing(os.path.join(folder, os.path.basename(file.path))) as handle:
        handle.write(index)


def sharded_size(file: Sharded) -> int:
    """Bytes that `write_sharded` would write, in all files together."""
    parts = parted(file)
    return len(_index_of(file, parts)) + sum(CONTAINERS[part.layout].size(part) for part in parts.values())


def parted(file: Sharded) -> dict[str, File]:
    """What each shard is to hold, by its name, after changes to the root.

    Raises:
        ClearstateError: an entry was in no shard, or its shard's format cannot hold it.
    """
    named = {name: shard for shard, part in file.shards.items() for name in part.root}
    valued = {
        id(value): shard
        for shard, part in file.shards.items()
        for value in part.root.values()
        if isinstance(value, Tensor | Stub)
    }
    roots = {shard: _emptied(part.root) for shard, part in file.shards.items()}
    for name, value in file.root.items():
        shard = named.get(name) or valued.get(id(value))
        if shard is None:
            raise ClearstateError(f"{brief(name)} was in no shard of {file.path}: there is no file to write it to")
        if file.shards[shard].layout == "safetensors" and not isinstance(value, Tensor):
            raise ClearstateError(f"{brief(name)} is no tensor: the safetensors file {shard} has no place for it")
        roots[shard][name] = value
    return {shard: replace(part, root=roots[shard]) for shard, part in file.shards.items()}


def _emptied(root: dict[str, Value]) -> dict[str, Value]:
    if not isinstance(root, Ordered):
        return {}
    empty = Ordered()
    empty.state = root.state
    return empty


def _index_of(file: Sharded, parts: dict[str, File]) -> bytes:
    """The index's text, as ``save_pretrained`` writes it. A number of parameters in it goes if some entries went."""
    places: dict[str, str] = {}
    total = 0
    for shard, part in parts.items():
        left_out = ties(part.root) if part.layout == "safetensors" else {}
        written = [name for name in part.root if name not in left_out]
        places.update(dict.fromkeys(written, shard))
        if part.layout == "safetensors":
            total += sum(part.root[name].nbytes for name in written)
        else:
            total += sum(storage.nbytes for storage in storages_of(part.root))
    notes = {**file.index.get("metadata", {}), "total_size": total}
    if len(file.root) != sum(len(part.root) for part in file.shards.values()):
        notes.pop("total_parameters", None)
    index = {**file.index, "metadata": notes, "weight_map": places}
    return (json.dumps(index, indent=2, sort_keys=True) + "\n").encode()


def _checking(check: Check | None, part: File) -> Callable[[str], None] | None:
    return None if check is None else lambda path: check(path, part)
