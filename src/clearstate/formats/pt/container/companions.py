"""The files beside weights that make them a model which loads: its configuration, its tokenizer, its code.

``from_pretrained`` of Hugging Face's transformers and diffusers reads them from the folder that the weights are in.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable, Sequence

from ....wording import some
from ...atomic import replacing
from ...readers import INDEX
from .shards import Sharded

WEIGHTS = (
    *".safetensors .bin .pt .pth .ckpt .tar .t7 .pkl .pickle .h5 .msgpack .onnx .gguf .ggml".split(),
    *".npz .npy .tflite .pb .zip".split(),
)
"""How files end that hold weights, of this model or of another, or what training left: none of them goes along."""

READ = (*".json .txt .md .model .spm .tiktoken .vocab .bpe .jinja .yaml .yml .toml .py".split(), "")
"""How files end that loaders of a model read, or people; what else is in a whole folder may be anything."""

CONFIGURATION = re.compile(r"(\w+_)?config\.json|model_index\.json|modules\.json")
"""Files by which loaders of Hugging Face's libraries know a folder, with its subfolders, for one of a model."""

LOADED = re.compile(
    r"(?:(?:pytorch_|diffusion_pytorch_|adapter_|open_clip_|open_clip_pytorch_)?model)(?:\.[\w-]+)?\.(?:safetensors|bin)"
)
"""What loaders call weights in one file; a variant's name (``fp16``) may stand before the last part."""

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


def is_loaded(path: str) -> bool:
    """Whether a file is called as the loader of a model's folder calls weights in one file.

    >>> is_loaded("unet/diffusion_pytorch_model.fp16.safetensors"), is_loaded("last.safetensors")
    (True, False)
    """
    return LOADED.fullmatch(os.path.basename(path)) is not None


def neighbours(listed: Iterable[tuple[str, int]], stay: Collection[str]) -> tuple[list[str], list[str]]:
    """Of the files beside weights in one file: those that go along to another folder, and those that stay behind.

    From a folder without a configuration nothing goes along: what is there may be anything.

    Args:
        listed: the names of the files there, and their bytes; not the hidden ones.
        stay: names of files that are neither: the weights themselves, and what the other folder has already.

    >>> neighbours([("config.json", 2), ("model.safetensors", 9), ("flax_model.msgpack", 9)], {"model.safetensors"})
    (['config.json'], ['flax_model.msgpack'])
    >>> neighbours([("notes.txt", 2), ("model.safetensors", 9)], {"model.safetensors"})
    ([], [])
    """
    sizes = dict(listed)
    if not any(map(CONFIGURATION.fullmatch, sizes)):
        return [], []
    others = [name for name in sorted(sizes) if name not in stay]
    along = [name for name in others if goes_along(name, sizes[name])]
    return along, [name for name in others if name not in set(along)]


def below(folder: str, output: str, taken: Collection[str]) -> tuple[list[str], list[str]]:
    """Of a whole folder that is cleared into another: the files that go along, and those that stay behind, by name.

    From a folder in which no loader knows a model nothing goes along: what is there may be anything.

    Args:
        folder: the folder, whose subfolders are looked through, too; not the hidden ones.
        output: the folder that it is cleared into.
        taken: the files that are cleared, or shards of one.
    """
    along: list[str] = []
    behind: list[str] = []
    own = {os.path.realpath(path) for path in taken}
    new = os.path.realpath(output)
    models: set[str] = set()
    for place, folders, names in os.walk(os.path.normpath(folder)):
        if os.path.dirname(place) in models or any(map(CONFIGURATION.fullmatch, names)):
            models.add(place)
        folders[:] = sorted(
            f for f in folders if not f.startswith(".") and os.path.realpath(os.path.join(place, f)) != new
        )
        for name in sorted(names):
            path = os.path.join(place, name)
            relative = os.path.relpath(path, folder)
            there = os.path.lexists(os.path.join(output, relative))
            if name.startswith(".") or there or not os.path.isfile(path) or os.path.realpath(path) in own:
                continue
            read = os.path.splitext(name)[1].lower() in READ and goes_along(name, os.path.getsize(path))
            (along if read and place in models else behind).append(relative)
    return along, behind


def told(file: Sharded, folder: str) -> list[str]:
    """What goes along and what stays behind, in sentences."""
    return sentences("copied beside the new index", *companions(file, folder))


def sentences(copied: str, along: Sequence[str], behind: Sequence[str]) -> list[str]:
    """The same of names that are known.

    >>> sentences("copied", ["config.json"], ["optimizer.pt"])
    ['copied: config.json', 'not copied, since these may hold weights of their own: optimizer.pt']
    """
    said = ((copied, along), ("not copied, since these may hold weights of their own", behind))
    return [f"{what}: {some(names, 8)}" for what, names in said if names]


def copy(file: Sharded, folder: str) -> None:
    """Copies what goes along, each file whole or not at all."""
    copy_all(companions(file, folder)[0], os.path.dirname(file.path), folder)


def copy_all(names: Iterable[str], folder: str, output: str) -> None:
    """Copies files from one folder to another by their names, each whole or not at all."""
    for name in names:
        target = os.path.join(output, name)
        os.makedirs(os.path.dirname(target) or os.curdir, exist_ok=True)
        with open(os.path.join(folder, name), "rb") as old, replacing(target) as new:
            shutil.copyfileobj(old, new)
