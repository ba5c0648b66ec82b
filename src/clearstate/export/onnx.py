"""A net as an ONNX file, run by onnxruntime and compared before it is anybody's."""

from __future__ import annotations

import importlib
import logging
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ..errors import ClearstateError, ConversionError
from ..formats.atomic import replacing
from ..nn.protocol.ownership import mapped, tensors
from .builder import describe, difference
from .convert import Exported, export
from .covered import Coverage

TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 2e-2}
"""How far onnxruntime's numbers may be from PyTorch's, by the largest of their tensor: its kernels are others."""

LARGEST = 2_000_000_000
"""Bytes of weights that an ONNX file has room for."""


def to_onnx(
    model: Any, path: str | os.PathLike[str], sample: Any = None, *, tolerance: float | None = None
) -> Coverage:
    """Writes a Torch7 net as an ONNX file, whose batch size is open.

    It becomes stock PyTorch first, as by `to_stock`, in evaluation mode; ``torch.onnx.export`` makes the file, and
    onnxruntime runs it on the sample: the file is written if the numbers are the same.

    Args:
        model: a live Torch7 net.
        path: the file; it is replaced as a whole.
        sample: an input of the net; made from the net's shapes unless given. All its sizes but that of the batch (the
            first dimension; of sequences, the second) are the file's.
        tolerance: how far numbers may be apart, by the largest of their tensor; by their type unless given.

    Returns:
        what became of each layer, with the largest difference on the sample.

    Raises:
        ConversionError: layers cannot be converted, or ONNX has no place for one, or the file's numbers differ.
        ClearstateError: onnx, onnxscript or onnxruntime is not installed.

    >>> import clearstate.nn as nn
    >>> to_onnx(nn.Sequential().add(nn.Linear(3, 2)).add(nn.Kmeans(2, 2)), "net.onnx")  # nothing is written
    Traceback (most recent call last):
    clearstate.errors.ConversionError: ... 1 (nn.Kmeans): there is no rule for this class
    """
    _needed()
    exported = export(model, sample, tolerance=tolerance)
    net = exported.net.eval()
    if (size := sum(tensor.nbytes for tensor in exported.source.tensors().values())) > LARGEST:
        raise ConversionError(f"the weights are {size} bytes: an ONNX file has room for {LARGEST}")
    with tempfile.TemporaryDirectory() as folder:
        draft = os.path.join(folder, "net.onnx")
        _written(net, exported, draft)
        _compare(net, exported, draft, tolerance)
        with replacing(path) as handle, open(draft, "rb") as made:
            while piece := made.read(1 << 23):
                handle.write(piece)
    return exported.coverage


def _needed() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise ClearstateError(f"{name} is not installed: pip install 'clearstate[onnx]'") from None


def _written(net: torch.nn.Module, exported: Exported, path: str) -> None:
    batch = torch.export.Dim("batch")
    dim = exported.batch_dim
    shapes = None if dim is None else _plain(mapped(exported.sample, lambda tensor: _Sizes(dim, batch)))
    asked: dict[str, Any] = {"input_names": ["input"]} if isinstance(exported.sample, Tensor) else {}
    if isinstance(exported.sample, dict):  # as an argument, the exporter would take it for keywords
        asked |= {"args": (), "kwargs": {"inputs": exported.sample}, "dynamic_shapes": shapes and {"inputs": shapes}}
    else:
        asked |= {"args": (exported.sample,), "dynamic_shapes": shapes and (shapes,)}
    with _quiet():
        try:
            with torch.no_grad():
                program: Any = torch.onnx.export(net, dynamo=True, verbose=False, **asked)
            program.save(path)
        except Exception as error:
            raise ConversionError(f"ONNX has no place for this net: {_why(error)}") from error


def _why(error: BaseException) -> str:
    """The first line of what was wrong to begin with."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = re.sub("\x1b\\[[0-9;]*m", "", str(error)).strip()
    return text.splitlines()[0] if text else type(error).__name__


class _Sizes:
    """Stands for a tensor among the sizes that are open."""

    def __init__(self, dim: int, batch: Any) -> None:
        self.open = {dim: batch}


def _plain(table: Any) -> Any:
    if isinstance(table, _Sizes):
        return table.open
    if isinstance(table, dict):
        return {key: _plain(part) for key, part in table.items()}
    return [_plain(part) for part in table]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter says of other packages: what matters is compared afterwards."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _is_float(net: torch.nn.Module) -> bool:
    return all(tensor.dtype is torch.float32 for tensor in net.parameters())


def _compare(net: torch.nn.Module, exported: Exported, path: str, tolerance: float | None) -> None:
    onnxruntime: Any = importlib.import_module("onnxruntime")
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:
        advice = (
            "" if _is_float(net) else "; it has few for other types than float: net.float() (or --dtype float) first"
        )
        raise ConversionError(f"onnxruntime does not run this net: {_why(error)}{advice}") from error
    with torch.no_grad():
        due = list(tensors(net(mapped(exported.sample, Tensor.clone))))
    given = {
        slot.name: tensor.numpy() for slot, tensor in zip(session.get_inputs(), tensors(exported.sample), strict=True)
    }
    made = session.run(None, given)
    if len(made) != len(due):
        raise ConversionError(f"the ONNX file gives {len(made)} tensors, not {len(due)}")
    for array, tensor in zip(made, due, strict=True):
        within = TOLERANCE.get(tensor.dtype, 0.0) if tolerance is None else tolerance
        ours = torch.from_numpy(array)
        distance, allowed = difference(ours, tensor, within)
        if not distance <= allowed:
            raise ConversionError(f"onnxruntime does not give the same: {describe(ours, tensor, distance, allowed)}")
