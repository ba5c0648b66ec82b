"""A net as a person keeps it: its architecture in Python, its weights beside it."""

from __future__ import annotations

import os
from typing import Any

from ..formats.atomic import replacing
from ..nn import Criterion
from .convert import Exported, export
from .covered import Coverage
from .criterions import stock_loss
from .state import write_state


def to_stock(model: Any, sample: Any = None, *, tolerance: float | None = None) -> Any:
    """The same net of stock PyTorch modules only, with copies of the weights.

    Containers of tables and graphs become statements of its ``forward``; layers that PyTorch has no class for become
    small classes in its source, which is what `write_definition` writes. It takes what the Torch7 net takes (indices
    from 0, a list for a table), as it came in the sample: batches, if that was a batch. A batch of one stays a batch.
    Nothing works in place. Every layer, and the whole net, is compared with Torch7's in evaluation mode.

    The net is copied by ``copy.deepcopy``, pickled, and saved whole by ``torch.save``: its source goes along, so that
    ``torch.load(path, weights_only=False)`` needs neither clearstate nor a file of source.

    A criterion becomes PyTorch's loss (``nn.NLLLoss``, ...), which takes class numbers as whole numbers, from 0.

    Args:
        model: a live Torch7 net, as `clearstate.load` gives it, or a criterion; it stays as it is.
        sample: an input of it (of a criterion, ``[input, target]``); made from the net's shapes unless given.
        tolerance: how far numbers may be apart, by the largest of their tensor; by their type (1e-10 for double, 1e-5
            for float) unless given.

    Raises:
        ConversionError: layers cannot be converted (all are named), one is not equal, or no sample could be made.

    >>> import clearstate.nn as nn
    >>> net = nn.Sequential().add(nn.SpatialConvolution(1, 8, 3, 5)).add(nn.ReLU(True)).add(nn.SpatialMaxPooling(2, 2))
    >>> to_stock(net)
    Net(
      (layers): Sequential(
        (0): Conv2d(1, 8, kernel_size=(5, 3), stride=(1, 1))
        (1): ReLU()
        (2): MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)
      )
    )
    """
    if isinstance(model, Criterion):
        return stock_loss(model, sample, tolerance)
    return export(model, sample, tolerance=tolerance).net


def write_definition(
    model: Any, path: str | os.PathLike[str], sample: Any = None, *, tolerance: float | None = None
) -> Coverage:
    """Writes a net's architecture as Python source, and its weights and running statistics beside it.

    The source is that of what `to_stock` gives; it needs torch, and its ``load()`` needs safetensors. ``net.py`` gets
    ``net.safetensors``.

    Args:
        model: a live Torch7 net.
        path: the file of source, which ends in ``.py``.
        sample: an input of the net; made from the net's shapes unless given.
        tolerance: as in `to_stock`.

    Returns:
        what became of each layer, with the largest difference on the sample.

    Raises:
        ConversionError: as in `to_stock`; nothing was written.
        ValueError: the path does not end in ``.py``.

    >>> import tempfile
    >>> import clearstate.nn as nn
    >>> path = os.path.join(tempfile.mkdtemp(), "net.py")
    >>> write_definition(nn.Sequential().add(nn.Linear(3, 2)), path).complete
    True
    >>> sorted(os.listdir(os.path.dirname(path)))
    ['net.py', 'net.safetensors']
    """
    weights = beside(path)
    exported = export(model, sample, tolerance=tolerance, weights=os.path.basename(weights))
    write(exported, path)
    return exported.coverage


def beside(path: str | os.PathLike[str]) -> str:
    """The file of weights that belongs to a file of source.

    >>> beside("nets/net.py")
    'nets/net.safetensors'
    """
    stem, suffix = os.path.splitext(path)
    if suffix != ".py":
        raise ValueError(f"{os.fspath(path)}: Python source goes into a file that ends in .py")
    return f"{stem}.safetensors"


def write(exported: Exported, path: str | os.PathLike[str]) -> None:
    """Writes the source and the weights of what was exported: the weights first, so that a source never lacks them."""
    write_state(exported.net, beside(path))
    with replacing(path) as handle:
        handle.write(exported.source.text.encode())
