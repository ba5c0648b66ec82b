"""Whether a table of tensors is a copy of a model: its names and shapes, or as a list its shapes in order, say so.

A copy has the model's names under a wrapper's prefix, without the dots, or without the steps before a part of the
model; what trains alone may be in it. A list has the shapes of the model's tensors, in the model's order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ...errors import ClearstateError
from .layouts import tensor_in
from .models import Place
from .objects import Tensor
from .prefixes import unwrapped

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""Names that PyTorch's own layers give to buffers; a state dict does not say which entries are."""

PROBES = 3
"""How many of a table's names are looked up to find out by which prefix they differ from the model's."""

PARTS = 16
"""How many parts of a model are tried whose names end as those of a table."""


def is_floating(dtype: str) -> bool:
    """Whether numbers of a type can be weights.

    >>> is_floating("bfloat16"), is_floating("int64")
    (True, False)
    """
    return dtype.startswith(("float", "bfloat", "complex", "q"))


@dataclass(slots=True)
class Model:
    """The tensors of a model by the names of its state dict, made ready to be looked up.

    Attributes:
        path: where it is in the checkpoint.
        places: where each of its entries stands.
        tensors: its tensors by the names that they have without the steps of wrappers.
    """

    path: str
    places: Mapping[str, Place]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    _targets: dict[str, Place] = field(default_factory=dict)
    _bare: dict[str, str] = field(default_factory=dict)
    _tails: dict[str, list[str]] = field(default_factory=dict)
    _steps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, place in without_wrappers(self.places).items():
            if (tensor := tensor_in(place.value)) is not None:
                self._targets[name] = place
                self.tensors[name] = tensor
                self._tails.setdefault(_tail(name), []).append(name)
        for name in self.tensors:
            self._bare.setdefault(name.partition(".")[2].replace(".", ""), name)
        self._bare.update((name.replace(".", ""), name) for name in self.tensors)
        self._bare.pop("", None)
        self._steps = tuple(islice(dict.fromkeys(f"{name.partition('.')[0]}." for name in self.tensors), PARTS))

    @property
    def targets(self) -> Mapping[str, Place]:
        """Where the tensors stand, by the names that they have without the steps of wrappers."""
        return self._targets

    @property
    def storages(self) -> set[int]:
        """The storages that its tensors see."""
        return {id(tensor.storage) for tensor in self.tensors.values()}

    def weights(self) -> list[str]:
        """The names of what can be parameters, in order; of several names for one tensor the first."""
        seen: set[tuple[object, ...]] = set()
        names = []
        for name, tensor in self.tensors.items():
            view = (id(tensor.storage), tensor.offset, tensor.size, tensor.stride)
            if is_weight(name, tensor) and view not in seen:
                seen.add(view)
                names.append(name)
        return names

    def named(self, table: Mapping[str, Place]) -> dict[str, str]:
        """The names of the model's tensors that a table has, each with the table's name for it; shapes are equal.

        >>> Model("", {}).named({})
        {}
        """
        names = {name: raw for name, raw in _short_names(table).items() if tensor_in(table[raw].value) is not None}
        best: dict[str, str] = {}
        for source, target in self._shifts(names):
            found = {}
            for name, raw in names.items():
                if not name.startswith(source):
                    continue
                rest = target + name[len(source) :]
                known = rest if rest in self.tensors or "." in rest else self._bare.get(rest)
                if known in self.tensors and _alike(table[raw], self.tensors[known]):
                    found[known] = raw
            best = max(best, found, key=len)
        return best

    def _shifts(self, names: Collection[str]) -> Iterator[tuple[str, str]]:
        """What comes before a table's names, and what before the model's, where the rest is the same."""
        met: dict[tuple[str, str], None] = {}
        for probe in sorted(names, key=lambda name: -name.count("."))[:PROBES]:
            steps = probe.split(".")
            for i in range(len(steps)):
                rest = ".".join(steps[i:])
                if rest in self.tensors or rest in self._bare:
                    met[probe[: len(probe) - len(rest)], ""] = None
            longer = [step for step in self._steps if step + probe in self.tensors]
            if len(steps) > 1:
                within = (name for name in self._tails.get(_tail(probe), ()) if name.endswith(f".{probe}"))
                longer += (name[: len(name) - len(probe)] for name in islice(within, PARTS))
            met.update((("", step), None) for step in longer)
        yield from met

    def covers(self, names: Collection[str]) -> bool:
        """Whether these are all of the model's tensors, or all that can train, of it or of a part of it."""
        if not names:
            return False
        own = {name for name in self.weights() if name not in names}
        if not own:
            return True
        part = _shared_steps(names)
        return bool(part) and not any(name.startswith(part) for name in own)

    def listed(self, items: Sequence[Tensor]) -> list[str] | None:
        """The names of the model's tensors that a list has the values of, in order, where their shapes tell surely.

        >>> Model("", {}).listed([])
        []
        """
        sizes = [tensor.size for tensor in items]
        weights = self.weights()
        floats = [name for name, tensor in self.tensors.items() if is_floating(tensor.dtype)]
        for names in (weights, floats, list(self.tensors)):
            if [self.tensors[name].size for name in names] == sizes:
                return names
        return only_way(sizes, [(name, self.tensors[name].size) for name in weights])

    def is_listed(self, items: Sequence[Tensor]) -> bool:
        """Whether the shapes of a list are among those of the model's tensors, in their order."""
        rest = iter(self.tensors.values())
        return all(any(own.size == item.size for own in rest) for item in items)


def is_weight(name: str, tensor: Tensor) -> bool:
    """Whether a tensor of a state dict can be a parameter."""
    return is_floating(tensor.dtype) and name.rpartition(".")[2] not in BUFFERS


def without_wrappers(places: Mapping[str, Place]) -> dict[str, Place]:
    """The same by the names without the steps of wrappers: the model may have been wrapped and its copy not."""
    return {short: places[name] for short, name in _short_names(places).items()}


def _short_names(names: Mapping[str, Place]) -> dict[str, str]:
    try:
        return {short: name for name, short in unwrapped(names).items()}
    except ClearstateError:  # two names would become one
        return {name: name for name in names}


def _alike(place: Place, tensor: Tensor) -> bool:
    found = tensor_in(place.value)
    return found is not None and found.size == tensor.size


def _tail(name: str) -> str:
    """The last two steps of a name."""
    return ".".join(name.rsplit(".", 2)[-2:])


def _shared_steps(names: Collection[str]) -> str:
    """The steps that all of these names begin with."""
    first, last = min(names).split("."), max(names).split(".")
    count = 0
    while count < min(len(first), len(last)) - 1 and first[count] == last[count]:
        count += 1
    return "".join(f"{step}." for step in first[:count])


def only_way(sizes: Sequence[tuple[int, ...]], named: Sequence[tuple[str, tuple[int, ...]]]) -> list[str] | None:
    """The names whose sizes these are, in order, where there is just one way to choose them.

    >>> only_way([(2,)], [("a", (3,)), ("b", (2,))])
    ['b']
    >>> only_way([(2,)], [("a", (2,)), ("b", (2,))]) is None
    True
    """
    first, last = _leftmost(sizes, named), _leftmost(sizes[::-1], named[::-1])
    if first is None or last is None:
        return None
    return first if first == last[::-1] else None


def _leftmost(sizes: Sequence[tuple[int, ...]], named: Sequence[tuple[str, tuple[int, ...]]]) -> list[str] | None:
    rest = iter(named)
    found = []
    for size in sizes:
        name = next((name for name, own in rest if own == size), None)
        if name is None:
            return None
        found.append(name)
    return found
