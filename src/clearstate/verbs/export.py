"""Files that leave Torch7: what `convert` does for a state dict, for Python source, and for ONNX."""

from __future__ import annotations

import importlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ClearstateError, ConversionError
from .convert import Converted, How
from .inspect import open_path

if TYPE_CHECKING:
    from ..export.covered import Coverage
    from ..formats.t7 import File

SHAPES = re.compile(r"\d+(?:x\d+)*(?:,\d+(?:x\d+)*)*")
"""A sample's shape, ``2x3x224x224``; of a table, the shapes of its entries, with commas between."""

GRAPH_PARTS = ("nngraph.Node", "graph.Node", "graph.Edge", "graph.Graph")
"""Classes that a net of nngraph is made of, and that are no nets by themselves."""


def to_state(path: str, output: str | None, how: How) -> Converted:
    """Writes the state dict of the model in a Torch7 file."""
    _needs_torch()
    from ..export.state import state_size, write_state

    file, model = _opened(path, how)
    before = [_class(tensor) for tensor in model.state_dict().values()]
    state = _cast(model, how).state_dict()
    types = Counter(zip(before, (str(t.dtype).removeprefix("torch.") for t in state.values()), strict=True))
    tensors = tuple((old, new, count) for (old, new), count in types.most_common())
    if output is None:
        return Converted(tensors=tensors, size=(file.size, state_size(state)))
    write_state(state, output)
    return Converted(tensors=tensors, path=output, size=(file.size, os.path.getsize(output)))


def to_source(path: str, output: str | None, how: How) -> Converted:
    """Writes the model in a Torch7 file as Python source, and its weights beside it."""
    _needs_torch()
    from ..export.definition import beside, write_definition

    weights = [] if output is None else [beside(output)]
    note = f"Its weights and running statistics are in {', '.join(weights)}."
    return _compared(path, output, how, write_definition, note, weights)


def to_onnx(path: str, output: str | None, how: How) -> Converted:
    """Writes the model in a Torch7 file as an ONNX file."""
    _needs_torch()
    from ..export.onnx import to_onnx as write_onnx

    return _compared(path, output, how, write_onnx, "onnxruntime gives the same too.")


def _compared(
    path: str,
    output: str | None,
    how: How,
    write: Callable[[Any, str, Any], Coverage],
    note: str,
    besides: Sequence[str] = (),
) -> Converted:
    """Writes the net by a function that compares each layer; without an output, only says what would become of them."""
    file, model = _opened(path, how)
    model = _cast(model, how)
    if output is None:
        return _told(file, _covered(model, how))
    coverage = write(model, output, _sample(model, how))
    size = sum(os.path.getsize(written) for written in (output, *besides))
    return _told(file, coverage, note, path=output, size=size)


def _needs_torch() -> None:
    try:
        importlib.import_module("torch")
    except ImportError:
        raise ClearstateError("PyTorch is not installed: pip install 'clearstate[torch]'") from None


def _opened(path: str, how: How) -> tuple[File, Any]:
    """The file, and the net in it."""
    from ..formats import t7
    from ..nn.t7.files import UnknownClass, to_live

    for option, value in (("backend", how.backend), ("device", how.device)):
        if value is not None:
            raise ValueError(f"a {option} is for Torch7 files: leave {value} out, or write a .t7 file")
    file = open_path(path, long_size=how.long_size)
    if not isinstance(file, t7.File):
        raise ClearstateError(f"{path} is a PyTorch checkpoint; nets to convert come from Torch7 files")
    try:
        return file, _net(path, to_live(file.root))
    except UnknownClass as error:
        raise ConversionError(f"{path} {_unknown(error.typename)}") from error


def _unknown(typename: str) -> str:
    """What a file with a class that Python does not have is, and what to do about it."""
    if typename in GRAPH_PARTS:
        return f"holds no net but a part of a graph ({typename}): a net is the nn.gModule that is made of its nodes"
    name = typename.rpartition(".")[2]
    return (
        f"has a layer of a class that nobody defined, {typename}: in Python, define it (class "
        f'{name}(clearstate.nn.Module, typename="{typename}")), load the file with clearstate.load, and give the net '
        "to clearstate.save, or to clearstate.to_stock once clearstate.export.rule says what the class becomes"
    )


def _net(path: str, value: Any) -> Any:
    """The net: what the file holds, or the only one in its table."""
    from ..nn import Criterion, Module

    nets: dict[int, tuple[str, Any]] = {}
    for where, part in _parts(value):
        if isinstance(part, Module):
            nets.setdefault(id(part), (where, part))
    if len(nets) == 1:
        return next(iter(nets.values()))[1]
    if not nets:
        losses = sorted({type(part).__name__ for _, part in _parts(value) if isinstance(part, Criterion)})
        if losses:
            raise ConversionError(
                f"{path} holds no net but a criterion ({', '.join(losses)}): load it in Python, "
                "and clearstate.to_stock makes it PyTorch's loss"
            )
        raise ConversionError(f"{path} holds no net")
    names = ", ".join(where for where, _ in nets.values())
    raise ConversionError(f"{path} holds {len(nets)} nets: {names}; load it in Python and export the one you mean")


def _parts(value: Any, path: str = "", depth: int = 0) -> Iterable[tuple[str, Any]]:
    yield path, value
    if isinstance(value, dict | list) and depth < 8:
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _parts(part, f"{path}.{key}" if path else str(key), depth + 1)


def _cast(model: Any, how: How) -> Any:
    if how.dtype is None:
        return model
    from ..formats.t7.backends.types import check

    check(None, how.dtype)
    return getattr(model, how.dtype)()


def _sample(model: Any, how: How) -> Any:
    """The sample that is asked for: a shape, or a file; of the net's type."""
    import torch

    asked = how.sample
    if not isinstance(asked, str | os.PathLike):
        return asked
    held = (t.dtype for t in (*model.parameters(), *model.buffers()) if t.is_floating_point())
    dtype = next(held, torch.get_default_dtype())
    text = os.fspath(asked)
    if SHAPES.fullmatch(text):
        generator = torch.Generator().manual_seed(0)
        drawn = [
            torch.randn([int(size) for size in shape.split("x")], generator=generator).to(dtype)
            for shape in text.split(",")
        ]
        return drawn if "," in text else drawn[0]
    return _read(text, dtype)


def _read(path: str, dtype: Any) -> Any:
    """A sample from a file of Torch7, NumPy or PyTorch."""
    from ..nn.protocol.ownership import mapped

    try:
        value = _value(path, os.path.splitext(path)[1].lower())
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ClearstateError(f"cannot read the sample {path}: {reason}") from error
    except Exception as error:  # each format's reader has errors of its own
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ClearstateError(f"cannot read the sample {path}: {reason}") from error
    return mapped(value, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def _value(path: str, suffix: str) -> Any:
    """What a file of a sample holds, by its suffix."""
    import torch

    if suffix == ".npy":
        import numpy as np

        return torch.from_numpy(np.load(path, allow_pickle=False))
    if suffix in (".pt", ".pth"):
        return torch.load(path, weights_only=True)
    from ..nn.t7.files import load

    return load(path)


def _covered(model: Any, how: How) -> Coverage:
    """What would become of each layer: by a run where there is a sample, else by its class."""
    from ..export.convert import traced
    from ..export.covered import Coverage, coverage

    static = coverage(model)
    try:
        return Coverage(traced(model, _sample(model, how)).rows)
    except (ConversionError, ValueError, RuntimeError, TypeError, IndexError):
        return static


def _told(file: File, coverage: Coverage, *notes: str, path: str | None = None, size: int = 0) -> Converted:
    from ..formats.t7.backends.pairs import Refused

    rows = tuple(row for row in coverage.rows if row.becomes is not None)
    left = tuple(Refused(row.path, row.typename, row.reason) for row in coverage.missing)
    if any(row.difference is not None for row in rows):
        whole = "" if path is None else ", and the whole net,"
        notes = (f"Each layer{whole} gives the same as in Torch7, on a sample.", *notes)
    return Converted((), left, (), (*notes, *coverage.notes), path, (file.size, size), rows)


def _class(tensor: Any) -> str:
    """The Torch7 class of a tensor."""
    from ..nn.declarations.dtypes import CLASSES_OF_DTYPE

    return f"torch.{CLASSES_OF_DTYPE[tensor.dtype]}Tensor"
