"""The backends of Torch7's layers: which classes mean the same, and how a pair of your own is declared.

>>> from clearstate import backends
>>> backends.route("inn.SpatialMaxPooling", "cudnn")[-1].target
'cudnn.SpatialMaxPooling'
>>> backends.pair("nn.Mish", "fast.Mish", there=backends.Way(make={"fused": True}), back=backends.Way(drop="fused"))
>>> "fast" in backends.backends()
True
"""

from .formats.t7.backends.pairs import (
    CannotConvert,
    Changed,
    Refused,
    Way,
    backends,
    one_way,
    pair,
    reads,
    route,
    ways,
    without,
)

__all__ = [
    "CannotConvert",
    "Changed",
    "Refused",
    "Way",
    "backends",
    "one_way",
    "pair",
    "reads",
    "route",
    "ways",
    "without",
]
