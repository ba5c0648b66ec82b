"""What each class of nn becomes, one file for each family of classes; importing this fills the table."""

from . import (
    activation,
    arithmetic,
    containers,
    convolution,
    linear,
    losses,
    noise,
    normalization,
    pooling,
    shape,
    tables,
)
from .finding import rule_of
from .table import RULES, Rule, Unmapped, class_name, rule

__all__ = [
    "RULES",
    "Rule",
    "Unmapped",
    "activation",
    "arithmetic",
    "class_name",
    "containers",
    "convolution",
    "linear",
    "losses",
    "noise",
    "normalization",
    "pooling",
    "rule",
    "rule_of",
    "shape",
    "tables",
]
