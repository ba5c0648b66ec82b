"""Classes of other packages that mean the same as one of nn: they load as that, and are written back as what they were.

cudnn.torch runs nn's layers on cuDNN, inn (imagine-nn) has nn's pooling layers under the names of their first years.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...formats.t7.backends.cudnn import as_image, as_sequence, padded
from ...formats.t7.backends.pairs import Views
from ...formats.t7.codec.objects import Table, Value

NOTHING: Mapping[str, Value] = MappingProxyType({})


class Meaning(NamedTuple):
    """The class of nn, and fields it needs that the other class's files do not have."""

    typename: str
    defaults: Mapping[str, Value] = NOTHING
    """Fields where the file has none."""
    always: Mapping[str, Value] = NOTHING
    """Fields whatever the file says: what the other class's forward sets first."""
    read: Callable[[Table, Views], None] | None = None
    """Makes fields that the two have under one name, and mean something else by, nn's."""
    write: Callable[[Table, Views], None] | None = None
    """Makes them the other class's again."""
    unless: Callable[[Mapping[Any, Value]], str | None] | None = None
    """Says why nn's class cannot stand for an object with these fields."""


SAME = (
    "SpatialConvolution SpatialFullConvolution SpatialDilatedConvolution VolumetricConvolution "
    "VolumetricDilatedConvolution VolumetricFullConvolution SpatialMaxPooling VolumetricMaxPooling "
    "VolumetricAveragePooling Tanh Sigmoid SoftMax LogSoftMax SpatialSoftMax SpatialLogSoftMax BatchNormalization "
    "SpatialBatchNormalization VolumetricBatchNormalization SpatialCrossMapLRN Dropout"
)

MEANINGS: dict[str, Meaning] = {
    **{f"cudnn.{name}": Meaning(f"nn.{name}") for name in SAME.split()},
    "cudnn.TemporalConvolution": Meaning(
        "nn.TemporalConvolution", read=as_sequence, write=as_image, unless=padded("padW", "padH")
    ),
    "cudnn.ReLU": Meaning("nn.ReLU", {"threshold": 0.0, "val": 0.0}),
    "cudnn.SpatialAveragePooling": Meaning("nn.SpatialAveragePooling", {"count_include_pad": True, "divide": True}),
    "inn.SpatialMaxPooling": Meaning("nn.SpatialMaxPooling", always={"ceil_mode": True}),
    "inn.SpatialAveragePooling": Meaning("nn.SpatialAveragePooling", always={"ceil_mode": True}),
    "inn.SpatialCrossResponseNormalization": Meaning("nn.SpatialCrossMapLRN"),
    "inn.SpatialSameResponseNormalization": Meaning("nn.Sequential"),
}
"""What each class of another package means."""


def meant(typename: str) -> str:
    """The class of nn that a class means; its own name where it is none of another package.

    >>> meant("cudnn.ReLU"), meant("nn.Linear")
    ('nn.ReLU', 'nn.Linear')
    """
    return MEANINGS[typename].typename if typename in MEANINGS else typename


def always(typename: str) -> Mapping[str, Value]:
    """The fields that a class of another package has whatever its file says.

    >>> dict(always("inn.SpatialMaxPooling"))
    {'ceil_mode': True}
    """
    return MEANINGS[typename].always if typename in MEANINGS else NOTHING


def completed(typename: str, fields: dict[Any, Value]) -> dict[Any, Value]:
    """A file's fields with those that the class of nn needs besides.

    Raises:
        ValueError: the class of nn cannot stand for an object with these.
    """
    meaning = MEANINGS.get(typename)
    if meaning is None:
        return fields
    reason = meaning.unless(fields) if meaning.unless is not None else None
    if reason is not None:
        raise ValueError(reason)
    made = Table({**meaning.defaults, **fields, **meaning.always})
    if meaning.read is not None:
        meaning.read(made, Views())
    return dict(made)


def restored(typename: str, fields: Table) -> None:
    """Makes the fields of an object that is to be written those of its own class."""
    meaning = MEANINGS.get(typename)
    if meaning is not None and meaning.write is not None:
        meaning.write(fields, Views())
