"""inn (imagine-nn): layers that nn has too by now, one entry a pair.

Its pooling layers are nn's of their first years: their forward sets ``ceil_mode``. Its nets inside a layer are nets of
nn's layers. Follows inn's constructors and forwards.
"""

from __future__ import annotations

from ..codec.objects import Object, Table
from .pairs import Fields, Views, Way, one_way, pair, renew, without

PADDING = {"padW": 0.0, "padH": 0.0}
ROUNDS_UP = {"ceil_mode": True}
MEAN = {"divide": True, "count_include_pad": True}


def rounds_down(fields: Fields) -> str | None:
    return None if fields.get("ceil_mode") else "it takes only windows that end within the input, and inn's rounds up"


def sums(fields: Fields) -> str | None:
    return None if fields.get("divide") else "it sums its windows (divide is not set), and inn's takes the mean"


pair(
    "nn.SpatialMaxPooling",
    "inn.SpatialMaxPooling",
    there=Way(make=PADDING, unless=(rounds_down,)),
    back=Way(make=PADDING, always=ROUNDS_UP),
)
# inn's own class of the first years had neither padding nor these flags, and took the mean.
pair(
    "nn.SpatialAveragePooling",
    "inn.SpatialAveragePooling",
    there=Way(make=PADDING, unless=(rounds_down, sums)),
    back=Way(make={**PADDING, **MEAN}, always=ROUNDS_UP),
)
pair(
    "nn.SpatialCrossMapLRN",
    "inn.SpatialCrossResponseNormalization",
    back=Way(make={"k": 1.0}),
)
one_way("inn.SpatialSameResponseNormalization", "nn.Sequential", Way(drop="size alpha beta"))


def joined(fields: Table, views: Views) -> None:
    """A Concat along the vectors that its nets give, batch or not: a ConcatTable, then a JoinTable of vectors."""
    common = {name: fields[name] for name in ("train", "_type") if name in fields}
    concat = Object("nn.ConcatTable", Table({**common, "modules": fields.pop("modules")}))
    join = Object("nn.JoinTable", Table({**common, "dimension": 1.0, "nInputDims": 1.0}))
    for made in (concat, join):
        renew(made)
    fields["modules"] = Table.of([concat, join])


def no_nets(fields: Fields) -> str | None:
    return None if type(fields.get("modules")) is Table else "it holds no nets"


one_way(
    "inn.SpatialPyramidPooling",
    "nn.Sequential",
    Way(drop="pyr dimension", change=joined, unless=(no_nets,)),
)
without("inn.SpatialStochasticPooling", "nn has no pooling by chance")
without("inn.LocalResponseNormalization", "nn has no class of this name's years")
without(
    "inn.MeanSubtraction inn.ConstAffine inn.SpatialConstAffine",
    "nn's layers that add to planes or multiply them learn what they add, and this one is fixed",
)
without("inn.ROIPooling inn.ROIWarping inn.ROIWarpingGridGenerator inn.ROIWarpingBilinearSample", "nn has no regions")
