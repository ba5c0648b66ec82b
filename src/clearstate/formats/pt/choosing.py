"""``--use``: keeps the model, or a copy of it, as the model.

A choice is made only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import ClearstateError
from ...inventory import some
from .copies import Copy, beside, copies, is_array, listed, path_of
from .layouts import is_averaged, is_module, tensor_in
from .matching import Model
from .models import Place, at, main_model, places
from .objects import Stub, Tensor, Value

ONLINE = "online_model."
"""How names begin, in what ema-pytorch saves, of the model that it keeps beside the copy."""


def choose(root: Value, use: str) -> list[str]:
    """Keeps one of the model and its copies as the model, in place. What a copy has no value for stays the model's.

    Args:
        root: the value that a checkpoint holds.
        use: ``ema``: the average; ``model``: the weights as trained; or the path of a copy.

    Returns:
        What was done, in sentences.

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
        done.append(f"{called(chosen)} {_take(root, chosen)}")
    going = [copy for copy in found if copy.holds != "weights" and copy is not chosen]
    for copy in found:
        for place in copy.entries.values() if copy.holds != "weights" else ():
            remove(place)
    if going:
        done.append(f"{some([called(going[0]), *(copy.path for copy in going[1:])], 5)} went")
    return done


def remove(place: Place) -> None:
    """Takes an entry out of a dict; of a list or a tuple, whose length says what is where, it leaves nothing in it."""
    if isinstance(place.table, dict):
        place.table.pop(place.key, None)
    elif isinstance(place.table, list):
        place.table[place.key] = None


def _chosen(root: Value, found: Sequence[Copy], use: str) -> Copy | None:
    """The copy that is to be the model; ``None`` where that is what stands in its place."""
    averages = [copy for copy in found if copy.holds == "average"]
    trained = [copy for copy in found if copy.holds == "trained"]
    if use not in ("ema", "model"):
        if use == path_of(main_model(root)[0]):
            return None
        if named := [copy for copy in found if copy.path == use]:
            return named[0]
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


def _take(root: Any, copy: Copy) -> str:
    keys, model = main_model(root)
    if copy.whole is not None and (not keys or is_module(model)):
        holder = at(root, keys[:-1]) if keys else root
        holder[keys[-1] if keys else "model"] = copy.whole
        return "took the place of the model"
    own = {(id(place.table), place.key) for place in copy.entries.values()}
    target = Model("", {n: p for n, p in places(model).items() if (id(p.table), p.key) not in own})
    sources = _sources(copy, target)
    _tie(sources, target.targets)
    for name, place in sources.items():
        there = target.targets[name]
        there.table[there.key] = _in_place_of(there.value, place.value)
    kept = sum(name not in sources and bool(tensor.size) for name, tensor in target.tensors.items())
    return "took the place of the model" + (f", {kept} tensors of which it does not have" * bool(kept))


def _sources(copy: Copy, model: Model) -> dict[str, Place]:
    """The copy's tensors by the model's names.

    Raises:
        ClearstateError: it has a tensor that the model has not, or has with another size.
    """
    found: dict[str, Place] = {}
    tables = sorted(copy.tables.items(), key=lambda item: not is_averaged(item[0].rpartition(".")[2]))
    unsure = None
    for path, value in tables:
        if tensors := listed(value):
            places_of = list(_each(value))
            names = model.listed(tensors) if not found else None
            if names is not None:
                found = dict(zip(names, places_of, strict=True))
            elif not found:
                unsure = f"which of the model's tensors the {len(tensors)} in {path} are, their sizes do not tell"
            continue
        table = {name: place for name, place in _table(value).items() if not name.startswith(ONLINE)}
        named = model.named(table)
        for raw, place in table.items():
            if raw not in named.values() and is_array(place.value) and (wrong := _misfit(raw, place, model)):
                raise ClearstateError(f"{copy.path} is no copy of this model: {wrong}")
        found.update((name, table[raw]) for name, raw in named.items() if name not in found)
    if not found:
        what = unsure or "it has no tensors by the names of the model's"
        raise ClearstateError(f"{copy.path} is no copy of this model: {what}")
    return found


def _table(value: Value) -> Mapping[str, Place]:
    if is_module(value):
        return places(value)
    return {key: Place(value, key) for key in value if isinstance(key, str)} if isinstance(value, dict) else {}


def _each(value: Value) -> Iterator[Place]:
    keys = value if isinstance(value, dict) else range(len(value))
    return (Place(value, key) for key in keys)


def _misfit(raw: str, place: Place, model: Model) -> str:
    steps = raw.split(".")
    for i in range(len(steps)):
        if (old := model.tensors.get(".".join(steps[i:]))) is not None:
            sizes = [_by(size) for size in (getattr(tensor_in(place.value), "size", ()), old.size)]
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
