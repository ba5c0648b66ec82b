"""Averaged copies of the model (EMA): which there are, and the choice between the model and its copy.

Training programs keep one under a key of its own (timm's ``state_dict_ema``, Ultralytics' ``ema``), or among the
model's own tensors under a prefix (latent diffusion's ``model_ema``, with the dots left out of its names). A choice is
made only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ...errors import ClearstateError
from ..changes import Use
from .layouts import Layout, is_copy, is_module, layout_of, tensor_in
from .models import Place, main_model, places
from .objects import Stub, Tensor, Value
from .prefixes import unwrapped

PREFIXES = ("model_ema.", "ema_model.", "averaged_model.")
"""How names begin, among those of the model, of what an averaged copy holds."""

STEPS = ("", "module.", "ema_model.", "model.", "shadow.", "averaged_model.", "_orig_mod.", "ema.", "state_dict.")
"""What a copy's names may have before the model's; the first that fits is taken."""

ONLINE = "online_model."
"""How names begin, in what ema-pytorch saves, of the model that it keeps beside the copy."""


class Average(NamedTuple):
    """An averaged copy.

    Attributes:
        path: where it is.
        entries: the entries of the checkpoint that are its own, each with its path.
        tensors: where its tensors are, by the names it has for them.
        whole: the pickled module that it is, if it is one.
    """

    path: str
    entries: dict[str, Place]
    tensors: Mapping[str, Place]
    whole: Value = None


def averages(root: Value, layout: Layout | None = None) -> list[Average]:
    """The averaged copies in a checkpoint.

    >>> [copy.path for copy in averages({"model": {}, "model_ema": {"decay": 0.9}})]
    ['model_ema']
    """
    if not isinstance(root, dict):
        return []
    layout = layout or layout_of(root)
    found = [
        Average(str(key), {str(key): Place(root, key)}, places(value), value if is_module(value) else None)
        for key, value in root.items()
        if is_copy(layout, key) and isinstance(value, dict | Stub | list) and value
    ]
    keys, model = main_model(root)
    start = "".join(f"{key}." for key in keys)
    for prefix in PREFIXES if isinstance(model, dict) else ():
        inside = {name: Place(model, name) for name in model if isinstance(name, str) and name.startswith(prefix)}
        if inside and len(inside) < len(model):
            named = {name.removeprefix(prefix): place for name, place in inside.items()}
            found.append(Average(f"{start}{prefix}*", {start + name: place for name, place in inside.items()}, named))
    return found


def choose(root: Value, use: Use) -> str:
    """Keeps the model or its averaged copy, in place. What the copy has no value for stays the model's.

    Returns:
        What was done, in a sentence.

    Raises:
        ClearstateError: there is no copy, there are several, it has tensors that the model has not, or there is no
            model but it.

    >>> choose({"epoch": 3}, "model")
    Traceback (most recent call last):
    clearstate.errors.ClearstateError: there is no averaged copy (EMA) of the model in this file to choose
    """
    copies = averages(root)
    if not copies:
        raise ClearstateError("there is no averaged copy (EMA) of the model in this file to choose")
    if use == "ema" and len(copies) > 1:
        raise ClearstateError(f"there are {len(copies)} averaged copies: {', '.join(copy.path for copy in copies)}")
    if use == "model" and not beside(root, copies):
        raise ClearstateError(f"there is no model beside its averaged copy (EMA) {copies[0].path}: --use ema keeps it")
    done = _take(root, copies[0]) if use == "ema" else "went"
    for copy in copies:
        for place in copy.entries.values():
            place.table.pop(place.key, None)
    return f"the averaged copy (EMA) {', '.join(copy.path for copy in copies)} {done}"


def beside(root: Value, copies: Collection[Average]) -> bool:
    """Whether there is a model beside its averaged copies: Ultralytics writes the copy alone.

    >>> root = {"model": None, "model_ema": {"decay": 0.9}}
    >>> beside(root, averages(root))
    False
    """
    keys, model = main_model(root)
    copied = () if keys else tuple(f"{copy.path}." for copy in copies)
    return any(_is_array(place.value) for name, place in places(model).items() if not name.startswith(copied))


def _take(root: dict[Value, Value], copy: Average) -> str:
    keys, model = main_model(root)
    if copy.whole is not None and (not keys or is_module(model)):
        root[keys[0] if keys else "model"] = copy.whole
        return "took the place of the model"
    own = {(id(place.table), place.key) for place in copy.entries.values()}
    targets = _bare({n: p for n, p in places(model).items() if (id(p.table), p.key) not in own})
    sources = _sources(copy, targets)
    used = {id(place.value) for place in sources.values()}
    left = [name for name, place in copy.tensors.items() if id(place.value) not in used and _is_average(name, place)]
    wrong = next(filter(None, (_misfit(name, place, targets[name]) for name, place in sources.items())), None)
    if left or wrong or not sources:
        what = f"the model has no {left[0]}" if left else wrong or "it has no tensors by the names of the model's"
        raise ClearstateError(f"{copy.path} is no copy of this model: {what}")
    _tie(sources, targets)
    for name, place in sources.items():
        target = targets[name]
        target.table[target.key] = _in_place_of(target.value, place.value)
    kept = sum(name not in sources and _is_array(place.value) for name, place in targets.items())
    return "took the place of the model" + (f", {kept} tensors of which it does not have" * bool(kept))


def _misfit(name: str, source: Place, target: Place) -> str | None:
    new, old = tensor_in(source.value), tensor_in(target.value)
    if new is None or old is None or new.size == old.size:
        return None
    sizes = ["x".join(map(str, size)) or "one number" for size in (new.size, old.size)]
    return f"{name} is of size {sizes[0]}, the model's of {sizes[1]}"


def _tie(sources: dict[str, Place], targets: Mapping[str, Place]) -> None:
    """Gives the names that the model has for one tensor what the copy, which may have it once, has for one of them."""
    seen: dict[Value, Place] = {}
    for name, place in sources.items():
        if (view := _view(targets[name])) is not None:
            seen.setdefault(view, place)
    for name, place in targets.items():
        if name not in sources and (source := seen.get(_view(place))) is not None:
            sources[name] = source


def _view(place: Place) -> tuple[Value, ...] | None:
    tensor = tensor_in(place.value)
    if tensor is None or not tensor.numel:
        return None
    return id(tensor.storage), tensor.offset, tensor.size, tensor.stride, tensor.dtype


def _sources(copy: Average, names: Collection[str]) -> dict[str, Place]:
    """The copy's tensors by the model's names: under the step before them that gives most."""
    tensors = _bare(copy.tensors)
    best: dict[str, Place] = {}
    for step in STEPS:
        found = {}
        for name in names:
            candidates = (name, name.replace(".", ""), name.removeprefix("model.").replace(".", ""))
            place = next((tensors[step + c] for c in candidates if step + c in tensors), None)
            if place is not None and tensor_in(place.value) is not None:
                found[name] = place
        best = max(best, found, key=len)
    return best


def _bare(places: Mapping[str, Place]) -> dict[str, Place]:
    """The same by the names without the steps of wrappers: the model may have been wrapped and its copy not."""
    return {short: places[name] for name, short in unwrapped(places).items()}


def _is_average(name: str, place: Place) -> bool:
    return _is_array(place.value) and not name.startswith(ONLINE)


def _is_array(value: Value) -> bool:
    """Whether it is a tensor, and no number beside the copy (its decay, how often it was updated)."""
    tensor = tensor_in(value)
    return tensor is not None and bool(tensor.size)


def _in_place_of(old: Value, new: Value) -> Value:
    """The new value; where a parameter stood, and the copy has a plain tensor, a parameter of it."""
    if not isinstance(old, Stub) or not isinstance(new, Tensor) or not isinstance(old.args, tuple):
        return new
    made = Stub(old.how, old.function, (new, *old.args[1:]), old.kwargs)
    made.state = old.state
    return made
