"""Classes of other packages that mean the same as one of nn: they load as that, and are written back as what they were.

cudnn.torch runs nn's layers on cuDNN, inn (imagine-nn) has nn's pooling layers under the names of their first years.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..formats.t7.objects import Value

NOTHING: Mapping[str, Value] = MappingProxyType({})


class Meaning(NamedTuple):
    """The class of nn, and fields it needs that the other class's files do not have."""

    typename: str
    defaults: Mapping[str, Value] = NOTHING
    """Fields where the file has none."""
    always: Mapping[str, Value] = NOTHING
    """Fields whatever the file says: what the other class's forward sets first."""


SAME = (
    "SpatialConvolution SpatialFullConvolution SpatialDilatedConvolution TemporalConvolution VolumetricConvolution "
    "VolumetricDilatedConvolution VolumetricFullConvolution SpatialMaxPooling VolumetricMaxPooling "
    "VolumetricAveragePooling Tanh Sigmoid SoftMax LogSoftMax SpatialSoftMax SpatialLogSoftMax BatchNormalization "
    "SpatialBatchNormalization VolumetricBatchNormalization SpatialCrossMapLRN Dropout"
)

MEANINGS: dict[str, Meaning] = {
    **{f"cudnn.{name}": Meaning(f"nn.{name}") for name in SAME.split()},
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


def completed(typename: str, fields: dict[Any, Value]) -> dict[Any, Value]:
    """A file's fields with those that the class of nn needs besides."""
    meaning = MEANINGS.get(typename)
    return fields if meaning is None else {**meaning.defaults, **fields, **meaning.always}
