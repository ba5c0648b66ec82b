"""Values that do not belong on a model that is to be copied, pickled or sent: lambdas, generators, files, trainers."""

from __future__ import annotations

import io
import types
from typing import Any

import torch

from .training_objects import training_kind
from .values import parts


def uncopyable(value: Any, depth: int = 0) -> str | None:
    """What a value is, where it does not belong on a model that is to be copied, pickled or sent."""
    if isinstance(value, types.FunctionType) and value.__name__ == "<lambda>":
        return "a lambda, which cannot be pickled"
    if isinstance(value, io.IOBase):
        return "an open file"
    if training_kind(type(value)) is not None:
        return in_words(value)
    if isinstance(value, types.GeneratorType):
        return "a generator, which cannot be copied or pickled"
    if depth < 2 and not isinstance(value, torch.Tensor | torch.nn.Module | str | bytes | type):
        for step, item in parts(value):
            if (what := uncopyable(item, depth + 1)) is not None:
                return f"{container_word(value)} that holds {what} ({step})"
    return None


def in_words(value: Any) -> str:
    """What a thing that is no part of a model is, with its class."""
    known = training_kind(type(value))
    return f"{known.word if known else 'an object'} ({type(value).__qualname__})"


def container_word(value: Any) -> str:
    return "an object" if hasattr(value, "__dict__") else "a table"
