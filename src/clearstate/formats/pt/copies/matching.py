"""Whether a table of tensors is a copy of a model: its names and shapes, or as a list its shapes in order, say so.

A copy has the model's names under a wrapper's prefix, without the dots, or without the steps before a part of the
model; what trains alone may be in it. A list has the shapes of the model's tensors, in the model's order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ....errors import ClearstateError
from ..layout.models import Place
from ..layout.prefixes import unwrapped
from ..layout.programs import tensor_in
from ..pickle.stubs import Tensor
from .tables import Numbers, is_floating, numbers_of

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""Names that PyTorch's own layers give to buffers; a state dict does not say which entries are."""

PROBES = 3
"""How many of a table's names are looked up to find out by which prefix they differ from the model's."""


class Ambiguous(Exception):
    """Names fit several parts of a model as well; the first fit is the argument.

    >>> raise Ambiguous({})
    Traceback (most recent call last):
    clearstate.formats.pt.copies.matching.Ambiguous: {}
    """


PARTS = 16
"""How many parts of a model are tried whose names end as those of a table."""


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
    _weights: list[str] | None = None
    _sizes: frozenset[tuple[int, ...]] = frozenset()
    _counts: Counter[int] = field(default_factory=Counter)

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
        self._sizes = frozenset(tensor.size for tensor in self.tensors.values())
        self._counts = Counter(tensor.numel for tensor in self.tensors.values())
        self._steps = tuple(islice(dict.fromkeys(f"{name.partition('.')[0]}." for name in self.tensors), PARTS))

    @property
    def targets(self) -> Mapping[str, Place]:
        """Where the tensors stand, by the names that they have without the steps of wrappers."""
        return self._targets

    @property
    def views(self) -> set[tuple[object, ...]]:
        """Which memory its tensors see."""
        return {(id(t.storage), t.offset, t.size, t.stride) for t in self.tensors.values()}

    def weights(self) -> list[str]:
        """The names of what can be parameters, in order; of several names for one tensor the first."""
        if self._weights is not None:
            return self._weights
        seen: set[tuple[object, ...]] = set()
        names = self._weights = []
        for name, tensor in self.tensors.items():
            view = (id(tensor.storage), tensor.offset, tensor.size, tensor.stride)
            if is_weight(name, tensor) and view not in seen:
                seen.add(view)
                names.append(name)
        return names

    def named(self, table: Mapping[str, Place], part: str = "") -> dict[str, str]:
        """The names of the model's tensors that a table has, each with the table's name for it; sizes are equal.

        Args:
            table: tensors by name.
            part: the name of the part of the model that is taken where several fit.

        Raises:
            Ambiguous: several parts of the model fit, and none has this name.

        >>> Model("", {}).named({})
        {}
        """
        names = {name: raw for name, raw in _short_names(table).items() if numbers_of(table[raw].value) is not None}
        fits: list[dict[str, str]] = []
        for source, target in self._shifts(names):
            found = {}
            for name, raw in names.items():
                if not name.startswith(source):
                    continue
                rest = target + name[len(source) :]
                known = rest if rest in self.tensors or "." in rest else self._bare.get(rest)
                if known in self.tensors and _alike(table[raw], self.tensors[known]):
                    found[known] = raw
            fits.append(found)
        most = max(map(len, fits), default=0)
        best = [found for found in fits if len(found) == most > 0]
        rivals = [found for found in best if found.keys() != best[0].keys()]
        if not rivals:
            return best[0] if best else {}
        own = [found for found in best if part and all(part in name.split(".")[:-1] for name in found)]
        if len(own) == 1:
            return own[0]
        raise Ambiguous(best[0])

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

    def listed(self, items: Sequence[Numbers]) -> list[str] | None:
        """The names of the model's tensors that a list has the values of, in order, where their sizes tell surely.

        >>> Model("", {}).listed([])
        []
        """
        sizes = [item.size for item in items]
        weights = self.weights()
        floats = [name for name, tensor in self.tensors.items() if is_floating(tensor.dtype)]
        for names in (weights, floats, list(self.tensors)):
            if [self.tensors[name].size for name in names] == sizes:
                return names
        return only_way(sizes, [(name, self.tensors[name].size) for name in weights])

    def is_listed(self, items: Sequence[Numbers], *, in_order: bool = True) -> bool:
        """Whether the sizes of a list are among those of the model's: in their order, or in any, flat or not."""
        if not in_order:
            return not Counter(item.numel for item in items) - self._counts
        if not all(item.size in self._sizes for item in items):
            return False
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
    found = numbers_of(place.value)
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


def own_names(model: Model, table: Mapping[str, Place]) -> Mapping[str, str]:
    """The names of the model's tensors that a table has, of whichever part of the model.

    >>> own_names(Model("", {}), {})
    {}
    """
    try:
        return model.named(table)
    except Ambiguous as several:
        found: Mapping[str, str] = several.args[0]
        return found
