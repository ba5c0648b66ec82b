"""What was decided of an attribute, and the words for the evidence that decided it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...roles import Role
from ..holdings.attributes import Attribute, Found

PROVED = "proved"


EVAL_ALONE = "proved in eval mode alone"


NEEDED_IN_TRAINING = "needed in training"
"""What runs on a sample say of an attribute. It goes by the first; by the others it stays, and its role is unknown."""


@dataclass(slots=True)
class Judged:
    """An attribute with tensors in it, or a number that work left; what it is for, and how that is known."""

    attribute: Attribute
    tensors: list[Found]
    role: Role
    evidence: str
    recomputed: bool = False
    """Whether its value stays and only its graph goes: a hook makes it anew before each forward, it is a buffer, or
    methods go on from it."""

    aliases: Sequence[Found] = ()
    """Those of the tensors that are memory of a parameter or a buffer."""


Said = Mapping[tuple[int, str], str]
"""What runs on a sample said of attributes: by the id of the module, and the name."""
