"""Trains a model, clears it, and sees that nothing but what work left is gone."""

from __future__ import annotations

import copy
import importlib
import inspect
import io
import pickle
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.parametrize import is_parametrized

import clearstate as cs
from clearstate.live.evidence.libraries import CACHES


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of an output, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module | type):
        yield from tensors(vars(value))


def run(model: Any, inputs: Any) -> list[Tensor]:
    torch.manual_seed(1)
    return list(tensors(model(**inputs) if isinstance(inputs, dict) else model(inputs)))


def train(model: Any, inputs: Any) -> None:
    loss = sum(t.double().square().mean() for t in run(model.train(), inputs) if t.grad_fn is not None)
    assert isinstance(loss, Tensor)
    loss.backward()  # type: ignore[no-untyped-call]
    model.eval()


class Pickler(pickle.Pickler):
    """Pickles also modules with parametrizations, whose class is made on the fly and refuses it, and their hooks."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.nn.Module) and is_parametrized(value):
            return object.__new__, (type(value).__base__,), value.__dict__
        if isinstance(value, types.FunctionType) and "<locals>" in value.__qualname__:
            return str, (value.__qualname__,)
        return NotImplemented


def size(model: Any) -> int:
    file = io.BytesIO()
    Pickler(file).dump(model)
    return len(file.getvalue())


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def keeps_the_promises(model: Any, inputs: Any) -> None:
    """Trains a model, and clears it: nothing but what work left is gone."""
    before = size(model.eval())
    train(model, inputs)
    expected = run(model, inputs)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    assert cs.clear_state(model, sample=inputs) is model
    assert size(model) == before
    assert list(model.state_dict()) == list(state)
    assert all(value.equal(state[name]) for name, value in model.state_dict().items())
    copy.deepcopy(model)
    assert same(run(model, inputs), expected)
    assert same(run(model, inputs), expected)
    train(model, inputs)


def is_in_the_installed_class(name: str) -> None:
    """What is declared of a library's class, by qualified name, is what its source stores."""
    module, _, cls = name.rpartition(".")
    source = inspect.getsource(getattr(importlib.import_module(module), cls))
    for cache in CACHES[name]:
        stored = rf"self\.{cache}(, self\.\w+)*(\[\w+\])? = |, self\.{cache}\b.* = "
        assert re.search(r"@cached\(" if cache == "_memoize_cache" else stored, source), cache
