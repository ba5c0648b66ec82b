"""Optimizers that hold the weights to evaluate: which there are, and how their ``eval()`` makes them.

Schedule-free optimizers train at one point and evaluate at another; Lookahead and averaging optimizers keep the
weights to evaluate beside those that they train. In a checkpoint they lie in the optimizer's state, a tensor for each
parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....errors import ClearstateError
from ....roles import Role
from ...data import PIECE, Array, Data, Held
from ..layout.models import main_model, places
from ..layout.programs import is_averaged, is_moment, is_optimizer, role_by_structure, tensor_in
from ..pickle.stubs import LEAVES, NUMPY, Storage, Stub, Tensor, Value, children, is_in_order
from .matching import Model
from .rounding import FLOATING, narrowed, widened

LEVELS = 12
"""Levels down to which optimizers are looked for."""

LOOKAHEAD = frozenset(
    "slow_buffer slow_param slow_params slow_weight slow_weights slow_p lookahead_slow_buff cached_params".split()
)
"""Names under which Lookahead keeps its slow weights."""

MASTERS = frozenset("master_param master_params master_weight fp32_param fp32_params".split())
"""Names under which optimizers keep the weights in float32, beside a model of half precision."""

APART = 0.6
"""How far, by their size, weights to evaluate are at most from those that train; of two random ones it is 0.7."""

RIVALS = 200
"""How many weights of one size are compared with what may belong to another of them."""

ENOUGH = 4096
"""Numbers of a tensor that tell whose weights they are."""


@dataclass(slots=True)
class Evaluated:
    """The weights to evaluate that an optimizer holds.

    Attributes:
        path: of the optimizer.
        field: under which its state has them, for each parameter.
        words: what they are.
        tensors: they, for each parameter that has them, in the optimizer's order.
        names: the parameters' names, where the optimizer knows them.
        groups: which of its groups each parameter is in.
        count: how many parameters it has.
        beta: of each group, what its ``eval()`` goes back by; ``None`` where the weights are taken as they are.
        training: whether the model's weights were saved as they train, and are not those to evaluate; ``None`` where
            the file does not say.
    """

    path: str
    field: str
    words: str
    tensors: dict[Value, Tensor]
    names: dict[Value, str]
    groups: dict[Value, int]
    count: int
    beta: list[float | None]
    training: bool | None = True


def evaluated(root: Value) -> list[Evaluated]:
    """The optimizers in a checkpoint that hold weights to evaluate, and what those are.

    >>> evaluated({"optimizer": {"state": {}, "param_groups": []}})
    []
    """
    found: list[Evaluated] = []
    stack: list[tuple[str, Value, int]] = [("", root, 0)]
    met: set[int] = set()
    while stack:
        path, value, depth = stack.pop()
        if type(value) in LEAVES or isinstance(value, Tensor) or id(value) in met or depth > LEVELS:
            continue
        met.add(id(value))
        if isinstance(value, Stub):
            found += _of(path, _unpickled(value)) if is_optimizer(value) else ()
            continue
        if role_by_structure(value) is Role.OPTIMIZER and isinstance(value, dict):
            found += _of(path, value)
            continue
        if isinstance(value, dict | list | tuple):
            pairs = [(key, item) for key, item in children(value) if isinstance(item, dict | list | tuple | Stub)]
            stack.extend((_below(path, key), item, depth + 1) for key, item in reversed(pairs))
    return found


def _unpickled(optimizer: Stub) -> dict[Any, Any]:
    """A pickled optimizer as its state dict would be: its parameters by number, in the order of its groups."""
    numbers: dict[int, int] = {}
    groups = []
    for group in optimizer.attribute("param_groups"):
        held = group.get("params") if isinstance(group, dict) else None
        if isinstance(held, list):
            groups.append({**group, "params": [numbers.setdefault(id(item), len(numbers)) for item in held]})
    state = optimizer.attribute("state")
    pairs = state.items() if isinstance(state, dict) else state.entries if isinstance(state, Stub) else ()
    return {"state": {numbers[id(key)]: item for key, item in pairs if id(key) in numbers}, "param_groups": groups}


def _below(path: str, key: Value) -> str:
    return (f"{path}.{key}" if path else key) if isinstance(key, str) else f"{path}[{key!r}]"


def _of(path: str, optimizer: dict[Any, Any]) -> Iterator[Evaluated]:
    groups = [group for group in optimizer["param_groups"] if isinstance(group, dict)]
    states = [table for key, table in optimizer.items() if str(key).endswith("state") and isinstance(table, dict)]
    order: dict[Value, int] = {}
    names: dict[Value, str] = {}
    for i, group in enumerate(groups):
        numbers = group.get("params")
        numbers = [n for n in numbers if isinstance(n, int | str)] if isinstance(numbers, list) else []
        order.update(dict.fromkeys(numbers, i))
        known = group.get("param_names")
        if isinstance(known, list) and len(known) == len(numbers):
            names.update((n, name) for n, name in zip(numbers, known, strict=True) if isinstance(name, str))
    names.update((n, n) for n in order if isinstance(n, str))
    for field in dict.fromkeys(field for table in states for field in _fields(table)):
        tensors = {
            n: tensor
            for n in order
            for table in states
            if isinstance(table.get(n), dict) and (tensor := tensor_in(table[n].get(field))) is not None
        }
        together = {name for table in states for name in _fields(table)}
        if tensors and (how := _how(field, together, groups)) is not None:
            words, beta, training = how
            yield Evaluated(path, field, words, tensors, names, order, len(order), beta, training)


def _fields(table: dict[Any, Any]) -> list[str]:
    """The names under which the state of a parameter has tensors."""
    for state in table.values():
        if isinstance(state, dict):
            named = [(key, tensor_in(item)) for key, item in state.items() if isinstance(key, str)]
            if fields := [key for key, tensor in named if tensor is not None and tensor.dtype in FLOATING]:
                return fields
    return []


def _how(
    field: str, together: set[str], groups: Sequence[dict[Any, Any]]
) -> tuple[str, list[float | None], bool | None] | None:
    """What a field of an optimizer's state is, if it holds weights to evaluate."""
    plain: list[float | None] = [None] * len(groups)
    modes = {group.get("train_mode") for group in groups}
    if field == "x" and "z" in together and modes != {False}:
        return "the weights to evaluate of a schedule-free optimizer", plain, True
    if field == "z" and "x" not in together:
        betas: list[float | None] = [_beta(group) for group in groups]
        training = None if (modes != {True} and modes != {False}) or None in betas else modes == {True}
        return "what a schedule-free optimizer makes the weights to evaluate of", betas, training
    if field == "ax":
        return "Polyak averages of the weights", plain, True
    if field in LOOKAHEAD:
        return "the slow weights of Lookahead", plain, True
    if field in MASTERS:
        return "the weights in float32", plain, True
    if is_averaged(field) and not is_moment(field):
        return "averages of the weights", plain, True
    return None


def _beta(group: dict[Any, Any]) -> float | None:
    betas = group.get("betas")
    beta = betas[0] if isinstance(betas, list | tuple) and betas else group.get("momentum")
    return float(beta) if isinstance(beta, float) and 0 < beta <= 1 else None


def warnings(found: Sequence[Evaluated]) -> list[str]:
    """What dropping these optimizers means, in sentences.

    >>> warnings([])
    []
    """
    said = []
    for one in found:
        where = f"{one.path or 'the optimizer'} ({one.field}, of {len(one.tensors):,} parameters)"
        if one.field == "z" and one.training is False:
            said.append(f"{one.words} is in {where}; the weights were saved in eval mode: they are those to evaluate")
        elif one.field == "z" and one.training:
            said.append(
                f"the weights were saved in train mode and are not those to evaluate: {one.words} is in {where}, and "
                "--use eval computes them as its eval() does"
            )
        elif one.field == "z":
            said.append(
                f"{one.words} is in {where}, and the file does not say in which mode the weights were saved: "
                "those of its closure variants are the ones to evaluate"
            )
        elif one.field in MASTERS:
            said.append(f"{one.words} are in {where}: --keep optimizer keeps them")
        else:
            said.append(f"{one.words} are in {where}: --use eval keeps them as the model's")
    return said


def evaluate(root: Value) -> str:
    """Makes the model's weights those that its optimizer would evaluate, in place, without reading one.

    Follows ``eval()`` of schedule-free optimizers: ``weight.lerp_(z, 1 - 1 / beta)``; of others, takes what they keep.

    Returns:
        What was done, in a sentence.

    Raises:
        ClearstateError: no optimizer here has such weights, several have, they are the model's already, or it is not
            certain which is of which parameter.

    >>> evaluate({"model": {}})
    Traceback (most recent call last):
    clearstate.errors.ClearstateError: no optimizer in this file holds other weights to evaluate than the model's
    """
    found = [one for one in evaluated(root) if one.field not in MASTERS]
    if not found:
        raise ClearstateError("no optimizer in this file holds other weights to evaluate than the model's")
    if len(found) > 1:
        which = ", ".join(f"{one.path}.{one.field}" for one in found)
        raise ClearstateError(f"several optimizers in this file hold weights to evaluate: {which}")
    (one,) = found
    if one.training is False:
        raise ClearstateError(f"{one.path}: the weights were saved in eval mode: they are those to evaluate already")
    if one.training is None:
        raise ClearstateError(f"{one.path} does not say in which mode, or with which momentum, the weights were saved")
    model = Model("", places(main_model(root)[1]))
    named = _named(one, model)
    _check_near(one, model, named)
    made: dict[int, Tensor] = {}
    for number, name in named.items():
        made[id(model.tensors[name])] = _evaluated(
            model.tensors[name], one.tensors[number], one.beta[one.groups[number]]
        )
    by_view = {_view(model.tensors[name]): made[id(model.tensors[name])] for name in named.values()}
    for name, tensor in model.tensors.items():
        if (new := by_view.get(_view(tensor))) is not None:
            place = model.targets[name]
            _put(place.table, place.key, new)
    return f"the weights are those to evaluate now: {len(named):,} were made of {one.field} in {one.path}"


def _view(tensor: Tensor) -> tuple[Any, ...]:
    return id(tensor.storage), tensor.offset, tensor.size, tensor.stride


def _put(table: Any, key: Value, new: Tensor) -> None:
    old = table[key]
    if isinstance(old, Stub) and isinstance(old.args, tuple):
        made = Stub(old.how, old.function, (new, *old.args[1:]), old.kwargs)
        made.state = old.state
        new = made  # type: ignore[assignment]
    table[key] = new


def _named(one: Evaluated, model: Model) -> dict[Value, str]:
    """The model's name of each parameter of an optimizer.

    Raises:
        ClearstateError: it is not certain.
    """
    if one.names.keys() >= one.tensors.keys():
        short = {name.removeprefix("module."): name for name in model.tensors}
        names = {n: short.get(one.names[n].removeprefix("module.")) for n in one.tensors}
        found = {n: name for n, name in names.items() if name is not None}
        if len(found) == len(names) and all(model.tensors[found[n]].size == one.tensors[n].size for n in found):
            return found
    weights = model.weights()
    if len(set(one.groups.values())) == 1 and len(weights) == one.count:
        found = dict(zip(one.groups, weights, strict=True))
        if all(model.tensors[found[n]].size == tensor.size for n, tensor in one.tensors.items()):
            in_order = {n: found[n] for n in one.tensors}
            if not _contradicted(one, model, in_order):
                return in_order
    return _nearest(one, model)


def _contradicted(one: Evaluated, model: Model, names: dict[Value, str]) -> bool:
    """Whether the numbers say that the optimizer does not have the model's order: others of the size are far nearer."""
    by_size: dict[tuple[int, ...], list[str]] = {}
    for name in names.values():
        by_size.setdefault(model.tensors[name].size, []).append(name)
    heads = {name: _head(model.tensors[name]) for rivals in by_size.values() if len(rivals) > 1 for name in rivals}
    for n, name in names.items():
        if name in heads:
            head = _head(one.tensors[n])
            own = float(np.abs(heads[name] - head).sum())
            rivals = by_size[model.tensors[name].size][:RIVALS]
            if any(float(np.abs(heads[other] - head).sum()) * 2 < own for other in rivals):
                return True
    return False


def _check_near(one: Evaluated, model: Model, names: dict[Value, str]) -> None:
    """Refuses what is not near the weights: it is another network's, or no weights.

    Raises:
        ClearstateError: it is not.
    """
    for n, name in names.items():
        if len(one.tensors[n].size) < 2:
            continue  # biases begin at zero
        ours, theirs = _head(model.tensors[name]), _head(one.tensors[n])
        if float(np.abs(ours - theirs).sum()) > APART * float(np.abs(ours).sum() + np.abs(theirs).sum()):
            raise ClearstateError(f"{one.path}.{one.field} is not near {name}: it may belong to another network")


def _nearest(one: Evaluated, model: Model) -> dict[Value, str]:
    """Each parameter's name: in the model's order where all of a size are in one group, else by its numbers.

    Those to evaluate are near those that train.
    """
    by_size: dict[tuple[int, ...], list[str]] = {}
    for name in model.weights():
        by_size.setdefault(model.tensors[name].size, []).append(name)
    of_size: dict[tuple[int, ...], list[Value]] = {}
    for number in one.groups:
        if number in one.tensors:
            of_size.setdefault(one.tensors[number].size, []).append(number)
    found: dict[Value, str] = {}
    for size, numbers in of_size.items():
        names = by_size.get(size, [])
        if len({one.groups[number] for number in numbers}) == 1 and len(numbers) == len(names):
            in_order = dict(zip(numbers, names, strict=True))
            if not _contradicted(one, model, in_order):
                found.update(in_order)
                continue
        heads = {name: _head(model.tensors[name]) for name in names}
        for number in numbers:
            head = _head(one.tensors[number])
            apart = sorted((float(np.abs(heads[name] - head).sum()), name) for name in names)
            if not apart or (len(apart) > 1 and not apart[0][0] * 2 < apart[1][0]):
                raise ClearstateError(
                    f"which of the model's parameters are those of {one.path} is not certain: it has "
                    f"{len(set(one.groups.values()))} groups without names (PyTorch saves them with named_parameters())"
                )
            found[number] = apart[0][1]
    if len(set(found.values())) < len(found):
        raise ClearstateError(f"which of the model's parameters are those of {one.path} is not certain")
    return found


def _head(tensor: Tensor) -> Array:
    numbers = _numbers(tensor, 0, min(tensor.numel, ENOUGH)) if _is_run(tensor) else _floats(tensor)
    return numbers.reshape(-1)[:ENOUGH]


def _floats(tensor: Tensor) -> Array:
    raw = np.ascontiguousarray(tensor.numpy())
    return (widened(raw) if tensor.dtype == "bfloat16" else raw).astype("f8")


def _is_run(tensor: Tensor) -> bool:
    return is_in_order(tensor) and tensor.storage.data is not None


def _numbers(tensor: Tensor, start: int, stop: int) -> Array:
    size = tensor.itemsize
    assert tensor.storage.data is not None
    first, last = (tensor.offset + start) * size, (tensor.offset + stop) * size
    raw = np.ascontiguousarray(tensor.storage.data.select([(first, last)]).array())
    numbers = widened(raw.view("<u2")) if tensor.dtype == "bfloat16" else raw.view(NUMPY[tensor.dtype])
    return numbers.astype("f8")


def _evaluated(weight: Tensor, kept: Tensor, beta: float | None) -> Tensor:
    """A new tensor in place of a weight."""
    if weight.dtype not in FLOATING or weight.storage.data is None:
        raise ClearstateError(f"a weight of type {weight.dtype} cannot be computed from what the optimizer keeps")
    if _is_run(weight) and _is_run(kept):
        data: Data = Between(weight, kept, beta)
    else:
        data = Held(
            _rounded(_between(_floats(weight), _floats(kept), beta, weight.dtype), weight.dtype).reshape(-1).view("u1")
        )
    old = weight.storage
    new = Storage(old.dtype, f"{old.key}.{weight.offset}", old.location, data, old.kind)
    stride, step = [], 1
    for size in reversed(weight.size):
        stride.append(step)
        step *= size
    return Tensor(new, 0, weight.size, tuple(reversed(stride)), weight.maker, weight.rest)


def _between(weight: Array, kept: Array, beta: float | None, dtype: str) -> Array:
    """``weight.lerp(kept, 1 - 1 / beta)`` as PyTorch does it, with one rounding at the end; or what is kept."""
    if beta is None:
        return kept
    kind = "f8" if dtype == "float64" else "f4"
    by = float(np.array(1 - 1 / beta, kind))
    apart = (kept.astype(kind) - weight.astype(kind)).astype("f8")
    made: Array = weight + by * apart if abs(by) < 0.5 else kept + (by - 1) * apart
    return made


def _rounded(numbers: Array, dtype: str) -> Array:
    made: Array = narrowed(numbers.astype("<f4")) if dtype == "bfloat16" else numbers.astype(NUMPY[dtype])
    return made


class Between:
    """The bytes of weights that lie between two tensors, computed a piece at a time as they are written."""

    __slots__ = ("beta", "dtype", "kept", "start", "stop", "weight")

    def __init__(
        self, weight: Tensor, kept: Tensor, beta: float | None, start: int = 0, stop: int | None = None
    ) -> None:
        self.weight = weight
        self.kept = kept
        self.beta = beta
        self.start = start
        self.stop = weight.numel if stop is None else stop
        self.dtype = np.dtype("u1")

    @property
    def count(self) -> int:
        return (self.stop - self.start) * self.weight.itemsize

    @property
    def occupies(self) -> int:
        return self.count

    def array(self) -> Array:
        return np.concatenate([*self.pieces(), np.empty(0, "u1")])

    def pieces(self) -> Iterator[Array]:
        """The bytes in order."""
        step = PIECE // 8
        for start in range(self.start, self.stop, step):
            stop = min(start + step, self.stop)
            ours, theirs = (_numbers(tensor, start, stop) for tensor in (self.weight, self.kept))
            yield _rounded(_between(ours, theirs, self.beta, self.weight.dtype), self.weight.dtype).view("u1")

    def select(self, runs: Sequence[tuple[int, int]]) -> Data:
        """Only some of the bytes."""
        size = self.weight.itemsize
        if len(runs) == 1 and all(edge % size == 0 for edge in runs[0]):
            (first, last) = runs[0]
            start = self.start
            return Between(self.weight, self.kept, self.beta, start + first // size, start + last // size)
        return Held(self.array()).select(runs)
