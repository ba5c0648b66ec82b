"""``--use``: keeps the model, or a copy of it, as the model.

A choice is made only when it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ....errors import ClearstateError
from ....wording import some
from ..layout.models import Place, at, main_model, places
from ..layout.programs import is_averaged, is_module, is_set_aside, tensor_in
from ..pickle.stubs import Stub, Tensor, Value
from .finding import Copy, beside, copies, path_of
from .matching import Ambiguous, Model, own_names
from .tables import listed, named, nested, numbers_of

ONLINE = "online_model."
"""How names begin, in what ema-pytorch saves, of the model that it keeps beside the copy."""


def choose(root: Value, use: str) -> tuple[list[str], list[Place]]:
    """Makes one of the model and its copies the model, in place. What a copy has no value for stays the model's.

    Args:
        root: the value that a checkpoint holds.
        use: ``ema``: the average; ``model``: the weights as trained; or the path of a copy.

    Returns:
        What was done, in sentences; and the entries of all copies, which are to go.

    Raises:
        ClearstateError: there is no such copy, there are several, it has tensors that the model has not, or there is
            no model but it.

    >>> choose({"epoch": 3}, "model")
    Traceback (most recent call last):
    clearstate.errors.ClearstateError: there is no averaged copy (EMA) of the model in this file to choose
    """
    found = copies(root)
    chosen = _chosen(root, found, use)
    done = []
    if chosen is not None:
        done.append(f"{called(chosen)} {_take(root, chosen, use)}")
    going = [copy for copy in found if copy.holds != "weights" and copy is not chosen]
    if going:
        done.append(f"{some([called(going[0]), *(copy.path for copy in going[1:])], 5)} went")
    places = [place for copy in found if copy.holds != "weights" or copy is chosen for place in copy.entries.values()]
    return done, places


def _chosen(root: Value, found: Sequence[Copy], use: str) -> Copy | None:
    """The copy that is to be the model; ``None`` where that is what stands in its place."""
    averages = [copy for copy in found if copy.holds == "average"]
    trained = [copy for copy in found if copy.holds == "trained"]
    if use not in ("ema", "model"):
        if use == path_of(main_model(root)[0]):
            return None
        if inner := [copy for copy in found if copy.path == use or use in copy.tables]:
            return inner[0]
        there = f"the copies here are {', '.join(copy.path for copy in found)}" if found else "there is no copy here"
        raise ClearstateError(f"nothing called {use} is a copy of the model: {there}")
    if use == "model":
        if not found:
            raise ClearstateError("there is no averaged copy (EMA) of the model in this file to choose")
        if not beside(root, found):
            raise ClearstateError(
                f"there is no model beside its averaged copy (EMA) {found[0].path}: --use ema keeps it"
            )
        return trained[0] if trained else None
    if trained and not averages:
        return None
    if not averages:
        others = f"; --use {found[0].path} takes the copy there is" if found else ""
        raise ClearstateError(f"there is no averaged copy (EMA) of the model in this file to choose{others}")
    if len(averages) > 1:
        paths = ", ".join(copy.path for copy in averages)
        raise ClearstateError(f"there are {len(averages)} averaged copies: {paths}; --use {averages[0].path} takes one")
    return averages[0]


def called(copy: Copy) -> str:
    """A copy by what it is and where.

    >>> called(Copy("ema", {}, {}))
    'the averaged copy (EMA) ema'
    """
    names = {"average": "the averaged copy (EMA)", "trained": "the weights as trained,"}
    return f"{names.get(copy.holds, 'the copy')} {copy.path}"


def _take(root: Any, copy: Copy, use: str) -> str:
    keys, model = main_model(root)
    if copy.whole is not None and (not keys or is_module(model)):
        holder = at(root, keys[:-1]) if keys else root
        holder[keys[-1] if keys else "model"] = copy.whole
        return "took the place of the model"
    own = {(id(place.table), place.key) for place in copy.entries.values()}
    target = Model("", {n: p for n, p in places(model).items() if (id(p.table), p.key) not in own})
    inner = use in copy.tables and use != copy.path
    sources = _sources(copy, target, {use: copy.tables[use]} if inner else copy.tables)
    _tie(sources, target.targets)
    for name, place in sources.items():
        there = target.targets[name]
        there.table[there.key] = _in_place_of(there.value, place.value)
    kept = sum(name not in sources and bool(tensor.size) for name, tensor in target.tensors.items())
    return "took the place of the model" + (f", {kept} tensors of which it does not have" * bool(kept))


def _sources(copy: Copy, model: Model, given: Mapping[str, Value]) -> dict[str, Place]:
    """A copy's tensors by the model's names, from the tables that it has.

    Raises:
        ClearstateError: it has a tensor that the model has not, or has with another size; several of its tables, or
            several parts of the model, fit.
    """
    tables = {path: value for path, value in given.items() if not _is_aside(path) or len(given) == 1}
    first = next(iter(tables), copy.path)
    part = _part(copy.path)
    whole = nested(tables[first]) if first in tables else {}
    each = [len(own_names(model, named(value))) for value in tables.values()]
    if len(own_names(model, whole)) > max(each, default=0):
        return _checked(copy, model, whole, part)
    full = {path: found for path, value in tables.items() if (found := _of_table(copy, model, path, value, part))}
    averaged = {path: found for path, found in full.items() if is_averaged(path.rpartition(".")[2])} or full
    if not averaged:
        raise ClearstateError(f"{copy.path} is no copy of this model: it has no tensors by the names of the model's")
    best = max(averaged.values(), key=len)
    rivals = [path for path, found in averaged.items() if found.keys() == best.keys()]
    if len(rivals) > 1:
        raise ClearstateError(f"{copy.path} holds {len(rivals)} copies: {some(rivals, 5)}; --use {rivals[0]} takes one")
    result = dict(best)
    for found in full.values():  # a copy in several tables: its parameters in one, its buffers in another
        result.update((name, place) for name, place in found.items() if name not in result)
    return result


def _is_aside(path: str) -> bool:
    key = path.rpartition(".")[2]
    return is_set_aside(key) and not is_averaged(key)


def _part(path: str) -> str:
    """The name of the part of a model that a copy is of, by its own: ``G_ema`` is of ``G``."""
    words = [word for word in re.split(r"[_.\-]", path) if word and not is_averaged(word)]
    return "_".join(words)


def _by_name(copy: Copy, model: Model, table: Mapping[str, Place], part: str) -> dict[str, str]:
    try:
        return model.named({name: place for name, place in table.items() if not name.startswith(ONLINE)}, part)
    except Ambiguous:
        what = "its names fit several parts of the model as well"
        raise ClearstateError(f"{copy.path}: which part of the model it is a copy of is not certain: {what}") from None


def _checked(copy: Copy, model: Model, table: Mapping[str, Place], part: str) -> dict[str, Place]:
    """The tensors of a table by the model's names, all of which must be the model's."""
    table = {name: place for name, place in table.items() if not name.startswith(ONLINE)}
    known = _by_name(copy, model, table, part)
    for raw, place in table.items():
        if raw not in known.values() and _has_size(place.value) and (wrong := _misfit(raw, place, model)):
            raise ClearstateError(f"{copy.path} is no copy of this model: {wrong}")
    for raw in known.values():
        if tensor_in(table[raw].value) is None:
            raise ClearstateError(f"{copy.path}: {raw} is no plain tensor, which alone can take the place of a weight")
    return {name: table[raw] for name, raw in known.items()}


def _of_table(copy: Copy, model: Model, path: str, value: Value, part: str) -> dict[str, Place]:
    items = [place for place in listed(value) if tensor_in(place.value) is not None]
    if not items:
        return _checked(copy, model, named(value), part)
    names = model.listed([numbers for place in items if (numbers := numbers_of(place.value)) is not None])
    if names is None:
        what = f"which of the model's tensors the {len(items)} in {path} are, their sizes do not tell"
        raise ClearstateError(f"{copy.path} is no copy of this model: {what}")
    return dict(zip(names, items, strict=True))


def _has_size(value: Value) -> bool:
    numbers = numbers_of(value)
    return numbers is not None and bool(numbers.size)


def _misfit(raw: str, place: Place, model: Model) -> str:
    steps = raw.split(".")
    for i in range(len(steps)):
        if (old := model.tensors.get(".".join(steps[i:]))) is not None:
            sizes = [_by(size) for size in (getattr(numbers_of(place.value), "size", ()), old.size)]
            return f"{'.'.join(steps[i:])} is of size {sizes[0]}, the model's of {sizes[1]}"
    return f"the model has no {raw}"


def _by(size: tuple[int, ...]) -> str:
    return "x".join(map(str, size)) or "one number"


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


def _in_place_of(old: Value, new: Value) -> Value:
    """The new value; where a parameter stood, and the copy has a plain tensor, a parameter of it."""
    if not isinstance(old, Stub) or not isinstance(new, Tensor) or not isinstance(old.args, tuple):
        return new
    made = Stub(old.how, old.function, (new, *old.args[1:]), old.kwargs)
    made.state = old.state
    return made
