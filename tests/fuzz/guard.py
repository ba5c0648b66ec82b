"""A second opinion on two files that verify as the same model: their tensors as others read them.

PyTorch and the safetensors library read their own files. Torch7 files are read by clearstate and compared element by
element, without what `verify` compares with.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch

import clearstate as cs
from clearstate.formats import t7
from clearstate.formats.t7.meaning.survey import Path as Place
from clearstate.formats.t7.meaning.survey import path_below

KEPT = ("parameter", "buffer", "constant")

MOST = 1 << 20
"""Bytes of a tensor that is compared."""

Keys = tuple[Any, ...]


def unlike(old: Path, new: Path, form: str) -> str | None:
    """A tensor of the first file that is not in the second, or another there; ``None`` where there is none."""
    kept = {entry.path for entry in cs.inspect(old).select(*KEPT)}
    if form == "t7":
        return _unlike_t7(t7.load(old), t7.load(new), kept)
    try:
        ours, theirs = _read(old), _read(new)
    except Exception:
        return None  # others refuse what we read: there is no second opinion
    found = dict(_tensors(theirs))
    for keys, tensor in _tensors(ours):
        if _named(keys) not in kept:
            continue
        other = found.get(keys)
        if other is None:
            return f"{_named(keys)} is not in the second"
        if tensor.layout is torch.strided and not _same(tensor, other):
            return f"{_named(keys)} is another in the second"
    return None


def _read(path: Path) -> Any:
    if path.suffix == ".safetensors":
        return safetensors.torch.load_file(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.load(path, weights_only=True, map_location="cpu")


def _tensors(root: Any) -> Iterator[tuple[Keys, torch.Tensor]]:
    stack: list[tuple[Keys, Any]] = [((), root)]
    met: set[int] = set()
    while stack:
        keys, value = stack.pop()
        if isinstance(value, torch.Tensor):
            yield keys, value
        elif id(value) not in met and isinstance(value, dict | list | tuple):
            met.add(id(value))
            items = value.items() if isinstance(value, dict) else enumerate(value)
            stack += [((*keys, key), item) for key, item in items]


def _named(keys: Keys) -> str:
    text = ""
    for key in keys:
        text += (f".{key}" if text else key) if isinstance(key, str) else f"[{key}]"
    return text


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape or a.is_meta or b.is_meta:
        return a.is_meta and b.is_meta and a.shape == b.shape
    if a.numel() * a.element_size() > MOST or a.is_quantized:
        return True
    one, other = (t.detach().resolve_conj().resolve_neg().contiguous().view(-1).clone() for t in (a, b))
    return bytes(one.untyped_storage()) == bytes(other.untyped_storage())


def _unlike_t7(ours: Any, theirs: Any, kept: set[str]) -> str | None:
    stack: list[tuple[Keys, Place | None, Any]] = [((), None, ours)]
    met: set[int] = set()
    while stack:
        keys, path, value = stack.pop()
        if isinstance(value, t7.Object):
            value = value.state
        if id(value) in met:
            continue
        met.add(id(value))
        if isinstance(value, t7.Table):
            stack += [((*keys, key), path_below(path, key), item) for key, item in value.items()]
        elif isinstance(value, t7.Tensor) and str(path or "") in kept:
            other = _at(theirs, keys)
            if not isinstance(other, t7.Tensor) or value.size != other.size or value.typename != other.typename:
                return f"{path}: {value} became {other}"
            if value.nbytes <= MOST and not _same_numbers(value.numpy(), other.numpy()):
                return f"{path}: other numbers"
    return None


def _same_numbers(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.tobytes() == b.tobytes() or np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _at(root: Any, keys: Keys) -> Any:
    for key in keys:
        root = root.state if isinstance(root, t7.Object) else root
        root = root.get(key) if isinstance(root, t7.Table) else None
    return root
