"""Which of clearstate's readers a file is for. What a file is, in words, says `sniff`."""

from __future__ import annotations

import os
import re

from .kinds import Kind
from .sniff import sniff

INDEX = re.compile(r".+\.(?:safetensors|bin)\.index(?:\.[\w-]+)?\.json")
"""Names of the index of a checkpoint in shards; a variant's name (``fp16``) may stand before the last part."""

STREAM = re.compile(
    rb"\x80[\2-\5](?:\x95.{8})?\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19\.|L119547037146038801333356L?\n\.", re.S
)
"""The number that PyTorch's stream format begins with, in a pickle of each protocol."""

READERS: dict[str, str] = {
    "t7": "t7",
    "pytorch-zip": "zip",
    "torchscript": "zip",
    "pytorch-legacy": "legacy",
    "pytorch-tar": "tar",
    "pickle": "pickle",
    "safetensors": "safetensors",
    "safetensors-index": "sharded",
}
"""By the name of what `sniff` finds."""


def kind_of(path: str | os.PathLike[str], found: Kind | None = None) -> str | None:
    """The reader that a file or folder is for.

    Args:
        path: any file; a folder is one for shards if it has their index.
        found: what `sniff` says of it, where that is known.

    Returns:
        ``t7``, ``zip``, ``legacy``, ``tar``, ``pickle``, ``safetensors``, ``sharded``, or ``None`` for none of them. A
        damaged file has its kind too: its reader says what is wrong.

    Raises:
        OSError: there is no such file, or it cannot be read.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.safetensors.index.json")
    >>> _ = path.write_text('{"weight_map": {}}')
    >>> kind_of(path), kind_of(path.parent)
    ('sharded', 'sharded')
    """
    name = (found or sniff(path)).name
    if name == "folder":
        return "sharded" if any(map(INDEX.fullmatch, os.listdir(path))) else None
    if name == "json" and INDEX.fullmatch(os.path.basename(path)):
        return "sharded"
    if name in ("pickle", "text", "unknown"):
        with open(path, "rb") as handle:
            if STREAM.match(handle.read(64)):
                return "legacy"
    return READERS.get(name)
