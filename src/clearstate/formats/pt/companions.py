"""The files beside an index of shards that make it a model which loads: its configuration, its tokenizer, its code.

``from_pretrained`` of Hugging Face's transformers and diffusers reads them from the folder that the weights are in.
"""

from __future__ import annotations

import os
import shutil

from ...inventory import some
from ..atomic import replacing
from ..kinds import INDEX
from .sharded import Sharded

WEIGHTS = (
    *".safetensors .bin .pt .pth .ckpt .tar .t7 .pkl .pickle .h5 .msgpack .onnx .gguf .ggml".split(),
    *".npz .npy .tflite .pb .zip".split(),
)
"""How files end that hold weights, of this model or of another, or what training left: none of them goes along."""

LARGEST = 100 << 20
"""Bytes of a file that goes along, at most: a tokenizer's takes a few tens of millions."""


def companions(file: Sharded, folder: str) -> tuple[list[str], list[str]]:
    """The names of the files that go along to another folder, and of those that stay behind.

    A file that the folder has already is neither: it stays as it is there. Nor are folders and hidden files.
    """
    home = os.path.dirname(file.path) or os.curdir
    if os.path.realpath(home) == os.path.realpath(folder):
        return [], []
    along: list[str] = []
    behind: list[str] = []
    for name in sorted(os.listdir(home)):
        path = os.path.join(home, name)
        own = name in file.shards or name == os.path.basename(file.path)
        if own or name.startswith(".") or not os.path.isfile(path) or os.path.lexists(os.path.join(folder, name)):
            continue
        (along if goes_along(name, os.path.getsize(path)) else behind).append(name)
    return along, behind


def goes_along(name: str, size: int) -> bool:
    """Whether a file beside an index is no weights, by its name and its bytes.

    >>> goes_along("tokenizer.json", 1 << 20), goes_along("optimizer.bin", 10), goes_along("log.txt", 1 << 30)
    (True, False, False)
    """
    return size <= LARGEST and not name.lower().endswith(WEIGHTS) and not INDEX.fullmatch(name)


def told(file: Sharded, folder: str) -> list[str]:
    """What goes along and what stays behind, in sentences."""
    along, behind = companions(file, folder)
    said = (
        ("copied beside the new index", along),
        ("not copied, since these may hold weights of their own", behind),
    )
    return [f"{what}: {some(names, 8)}" for what, names in said if names]


def copy(file: Sharded, folder: str) -> None:
    """Copies what goes along, each file whole or not at all."""
    for name in companions(file, folder)[0]:
        with (
            open(os.path.join(os.path.dirname(file.path), name), "rb") as old,
            replacing(os.path.join(folder, name)) as new,
        ):
            shutil.copyfileobj(old, new)
