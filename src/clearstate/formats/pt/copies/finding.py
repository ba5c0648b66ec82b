"""Copies of the model's weights in a checkpoint, wherever they lie: averages (EMA, SWA), the best so far, masters.

A table of tensors whose names and shapes are the model's is one, be it among what callbacks, algorithms or an
optimizer leave; so is what a name says is an average, though nothing there can be compared with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ....roles import Role
from ..layout.models import Place, is_model, main_model, places
from ..layout.programs import (
    Layout,
    is_averaged,
    is_copy,
    is_gradient,
    is_module,
    is_moment,
    is_set_aside,
    layout_of,
    role_by_layout,
    role_by_structure,
    tensor_in,
)
from ..pickle.stubs import LEAVES, Global, Stub, Tensor, Value, children
from .matching import Model, own_names
from .tables import Numbers, entries_of, listed, named, nested, numbers_of

PREFIXES = ("model_ema.", "ema_model.", "averaged_model.")
"""How names begin, among those of the model, of what an averaged copy holds."""

FEW = 2
"""Tensors from which on a table is a copy by its names and shapes alone, where it is no training state."""

Holds = Literal["average", "trained", "copy", "weights"]


class Copy(NamedTuple):
    """A copy of the model's weights.

    Attributes:
        path: where it is.
        entries: the entries of the checkpoint that are its own, each with its path.
        tables: the tables of tensors in it, by their paths: by name, or a list in the model's order.
        holds: an ``average``; the weights as ``trained``, where the model's own place holds their average; another
            ``copy``; or ``weights`` that nothing here can be compared with.
        whole: the pickled module that it is, if it is one.
        holders: the identities of what holds it, down from what is training state.
    """

    path: str
    entries: dict[str, Place]
    tables: Mapping[str, Value]
    holds: Holds = "average"
    whole: Value = None
    holders: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Node:
    """A container met on the way down.

    Attributes:
        place: where it stands; ``None`` for the root.
        role: what all in it is for, where it is training state.
        names: the last keys to it that are words.
        holder: the outermost object of a class that it is a part of, or is: what is in one stays with it.
        copy: whether it is a copy of the model.
        within: whether it, or something in it, is one.
    """

    value: Value
    place: Place | None
    path: str
    above: _Node | None
    depth: int
    role: Role | None
    names: tuple[str, ...] = ()
    holder: _Node | None = None
    copy: bool = False
    within: bool = False

    def up(self) -> Iterator[_Node]:
        node: _Node | None = self
        while node is not None:
            yield node
            node = node.above


DEEPEST = 200
"""Levels below which no copies are looked for."""

DEEP = 8
"""Levels below a name that says average in which its tensors are looked for."""

LONGEST = 2000
"""Letters of a path beyond which it is not told further."""


def models_of(root: Value) -> list[Model]:
    """What copies are copies of: the model, or where no key tells it from others, each state dict and module.

    >>> [model.path for model in models_of({"model": {}, "epoch": 3})]
    ['model']
    """
    keys, model = main_model(root)
    if keys:
        return [Model(path_of(keys), places(model))]
    if is_module(root):
        return [Model("", places(root))]
    if not isinstance(root, dict | list | tuple):
        return []
    pairs = list(children(root))
    if isinstance(root, dict) and any(tensor_in(value) is not None for value in root.values()):
        own = {str(key): Place(root, key) for key, value in pairs if tensor_in(value) is not None}
        return [Model("", own)]
    found = [(key, value) for key, value in pairs if is_model(key, value) and not is_averaged(key)]
    if not found:
        deeper = (pair for pair in _inner(pairs) if is_model(pair[0][-1], pair[1]))
        return [Model(path_of(keys), places(value)) for keys, value in deeper]
    return [Model(path_of((key,)), places(value)) for key, value in found]


def _inner(pairs: Collection[tuple[Value, Value]]) -> Iterator[tuple[tuple[Value, Value], Value]]:
    """What is one level deeper, save in optimizers and the like, each with the keys to it."""
    for key, value in pairs:
        if isinstance(value, dict) and role_by_structure(value) is None:
            yield from (((key, inner), item) for inner, item in value.items())


def path_of(keys: Collection[Value]) -> str:
    """The path that these keys lead along.

    >>> path_of(("state", "algorithms", 0))
    'state.algorithms[0]'
    """
    path = ""
    for key in keys:
        path = (f"{path}.{key}" if path else key) if isinstance(key, str) else f"{path}[{key!r}]"
    return path


def copies(root: Value, layout: Layout | None = None) -> list[Copy]:
    """All copies of the model in a checkpoint, each of which stays whole unless it is asked for.

    >>> [copy.path for copy in copies({"model": {}, "model_ema": {"decay": 0.9}})]
    ['model_ema']
    """
    layout = layout or layout_of(root)
    found = list(_by_key(root, layout)) if isinstance(root, dict) else []
    known = {(id(place.table), place.key) for copy in found for place in copy.entries.values()}
    return found + _Search(root, layout, known).run()


def _by_key(root: dict[Any, Any], layout: Layout | None) -> Iterator[Copy]:
    """What the keys of the root, or of the model's own entries, say is a copy."""
    if layout is not None and layout.trained and root.get(layout.trained[0]):
        entries = {key: Place(root, key) for key in layout.trained if key in root}
        value = root[layout.trained[0]]
        yield Copy(layout.trained[0], entries, {layout.trained[0]: value}, "trained")
    for key, value in root.items():
        trained = layout is not None and key in layout.trained
        if is_copy(layout, key) and not trained and _holds(value) and value and role_by_structure(value) is None:
            whole = value if is_module(value) else None
            yield Copy(str(key), {str(key): Place(root, key)}, dict(_tables(str(key), value)), "average", whole)
    keys, model = main_model(root)
    start = "".join(f"{key}." for key in keys)
    for prefix in PREFIXES if isinstance(model, dict) else ():
        inside = {name: Place(model, name) for name in model if isinstance(name, str) and name.startswith(prefix)}
        if inside and len(inside) < len(model):
            named = {name.removeprefix(prefix): place.value for name, place in inside.items()}
            entries = {start + name: place for name, place in inside.items()}
            yield Copy(f"{start}{prefix}*", entries, {f"{start}{prefix}*": named})


def _tables(path: str, value: Value) -> Iterator[tuple[str, Value]]:
    """The tables in a copy, itself first: what has tensors by name, or in a list."""
    stack = [(path, value, 0)]
    while stack:
        path, value, depth = stack.pop()
        if is_module(value) or entries_of(value) is not None or listed(value):
            yield path, value
        if depth < DEEPEST and not is_module(value) and not isinstance(value, Tensor):
            inner = ((path_of((path, key)), item, depth + 1) for key, item in children(value) if _holds(item))
            stack.extend(reversed(list(inner)))


def _holds(value: Value) -> bool:
    return type(value) not in LEAVES and not isinstance(value, Tensor | Global) and tensor_in(value) is None


class _Search:
    """Goes through all of a checkpoint once, save the model itself, and finds what is a copy of it."""

    def __init__(self, root: Value, layout: Layout | None, known: Collection[tuple[int, Value]]) -> None:
        self.root = root
        self.layout = layout
        self.known = known
        self.models = models_of(root)
        keys, model = main_model(root)
        self.own = {id(model)} if keys else {id(value) for value in _values(root)}
        self.views = {view for model in self.models for view in model.views}
        self.found: list[tuple[_Node, Holds]] = []

    def run(self) -> list[Copy]:
        top = _Node(self.root, None, "", None, 0, role_by_structure(self.root))
        stack = [top]
        met: set[int] = set()
        said: list[_Node] = []
        while stack:
            node = stack.pop()
            if id(node.value) in met:
                continue
            met.add(id(node.value))
            if node is not top:
                if holds := self.judge(node):
                    self.note(node, holds)
                    continue
                if node.role is not None and node.names and is_averaged(node.names[-1]):
                    said.append(node)
            if node.depth < DEEPEST:
                stack.extend(reversed(list(self.below(node))))
        least = min((sum(t.numel for t in model.tensors.values()) for model in self.models), default=2) // 2
        for node in said:  # a name says that it is an average, and nothing in it could be compared
            if not node.within and not any(above.copy for above in node.up()) and _has_weights(node.value, least):
                self.note(node, "average")
        return self.merged()

    def below(self, node: _Node) -> Iterator[_Node]:
        value = node.value
        of_parameters = _is_of_parameters(node)
        called = value[0] if isinstance(value, tuple) and len(value) > 1 and isinstance(value[0], str) else None
        for key, item in children(value):
            if id(item) in self.own or (isinstance(key, str | int) and (id(value), key) in self.known):
                continue
            if of_parameters and self.is_parameter(key):
                continue
            path = path_of((node.path, key)) if node.path else path_of((key,))
            role = node.role
            if role is None and isinstance(value, dict | list | tuple):
                role = role_by_structure(item)
                if role is None and isinstance(key, str):
                    role = role_by_layout(self.layout, key, item, path if node.depth else "")
            if is_gradient(key) or (role is Role.OPTIMIZER and is_moment(key)):
                continue
            name = key if isinstance(key, str) else called if key == 1 else None
            names = (*node.names[-1:], name) if isinstance(name, str) else node.names
            inner = _Node(item, Place(value, key), path[:LONGEST], node, node.depth + 1, role, names, node.holder)
            if not _holds(item):
                if role is not None and is_averaged(key) and is_array(item):
                    self.note(inner, "average")
                continue
            if inner.holder is None and isinstance(item, Stub):
                inner.holder = inner
            yield inner

    def is_parameter(self, key: Value) -> bool:
        """Whether a key of an optimizer's state is that of a parameter: its number, its name, or itself."""
        return not isinstance(key, str) or any(key in model.tensors for model in self.models)

    def judge(self, node: _Node) -> Holds | None:
        """What a container is, where it is a copy."""
        value, trains = node.value, node.role is not None
        if (node.holder is not None and node.holder is not node and not trains) or _is_of_parameters(node):
            return None
        if items := listed(value):
            return self.judge_list([numbers for place in items if (numbers := numbers_of(place.value))], node)
        table = named(value)
        found = {name: numbers for name, place in table.items() if (numbers := numbers_of(place.value)) is not None}
        sized = [name for name, numbers in found.items() if numbers.size]
        if not sized or self.is_the_model(found.values()):
            return None
        for model in self.models:
            own = own_names(model, table)
            whole = len(own) >= FEW and model.covers(own)
            if whole or (trains and len(own) * 2 >= len(sized)):
                return _averaged(node) or "copy"
        matrices = sum(len(found[name].size) > 1 and found[name].is_floating for name in sized)
        if node.role is Role.TRAINING and (is_module(value) or matrices >= FEW or _names_weights(sized)):
            return _averaged(node) or "weights"
        return None

    def judge_list(self, items: list[Numbers], node: _Node) -> Holds | None:
        if not any(item.size for item in items) or self.is_the_model(items):
            return None
        for model in self.models:
            count, trains = len(model.weights()), node.role is not None
            fits = len(items) == count or (len(items) >= FEW and (trains or len(items) > count))
            if fits and (trains or count >= FEW) and model.is_listed(items, in_order=not trains):
                return _averaged(node) or "copy"
        return None

    def is_the_model(self, items: Iterable[Numbers]) -> bool:
        """Whether tensors are the model's own, seen from another place."""
        return all(item.view in self.views for item in items)

    def note(self, node: _Node, holds: Holds) -> None:
        node = node.holder or node
        if node.copy:
            return
        node.copy = True
        for above in node.up():
            above.within = True
        self.found.append((node, holds))

    def merged(self) -> list[Copy]:
        """The copies; those in one container that are parts of one, as their names or sizes together tell, as one."""
        parts = self.found
        while True:
            beside: dict[int, list[tuple[_Node, Holds]]] = {}
            for node, holds in parts:
                beside.setdefault(id(node.above), []).append((node, holds))
            joined = [self.joined(group) for group in beside.values()]
            if all(len(new) == len(group) for new, group in zip(joined, beside.values(), strict=True)):
                break
            parts = [part for group in joined for part in group]
        made = []
        for node, holds in parts:
            if node.place is not None:
                whole = node.value if is_module(node.value) else None
                tables = dict(_tables(node.path, node.value))
                made.append(Copy(node.path, {node.path: node.place}, tables, holds, whole, _holders(node)))
        return made

    def joined(self, group: list[tuple[_Node, Holds]]) -> list[tuple[_Node, Holds]]:
        """What is found in one container: the container itself, where it is parts of one copy."""
        above = group[0][0].above
        if above is None or above.place is None or len(group) < FEW or above.holder is not None:
            return group
        whole = nested(above.value)
        each = [own_names(model, nested(node.value)) for node, _ in group for model in self.models]
        most = max((len(own_names(model, whole)) for model in self.models), default=0)
        lists = [listed(node.value) for node, _ in group]
        if isinstance(above.value, list | tuple) and all(lists) and len(above.value) == len(group):
            items = [numbers for places in lists for place in places if (numbers := numbers_of(place.value))]
            fits = any(model.is_listed(items, in_order=False) for model in self.models)
        else:
            fits = bool(most) and most >= sum(map(len, each)) > max(map(len, each))
            fits = fits or (len(above.value) == len(group) and _are_apart(each))
        return [(above, _averaged(above) or group[0][1])] if fits else group


def _are_apart(tables: list[Mapping[str, str]]) -> bool:
    """Whether tables have tensors of a model each, and none has one that another has."""
    names = [name for table in tables for name in table]
    return all(tables) and len(set(names)) == len(names)


def _is_of_parameters(node: _Node) -> bool:
    """Whether a dict is what an optimizer keeps for each parameter."""
    above = node.above.value if node.above is not None else None
    named = bool(node.names) and node.names[-1].endswith("state")
    return named and isinstance(node.value, dict) and isinstance(above, dict) and "param_groups" in above


def _averaged(node: _Node) -> Holds | None:
    """An average, where a name says so, and the last does not say that it is what was set aside for one."""
    aside = bool(node.names) and is_set_aside(node.names[-1]) and not is_averaged(node.names[-1])
    return "average" if any(map(is_averaged, node.names)) and not aside else None


def _holders(node: _Node) -> frozenset[int]:
    return frozenset(id(above.value) for above in node.up() if above is not node and above.role is not None)


def _values(root: Value) -> Iterator[Value]:
    """The values that `models_of` takes for models where no key tells which is the one."""
    if isinstance(root, dict | list | tuple):
        for key, value in children(root):
            if is_model(key, value) and not is_averaged(key):
                yield value


def _has_weights(value: Value, least: int) -> bool:
    """Whether floating tensors are in a value that can be weights: a matrix, or so many numbers in vectors."""
    stack = [(value, 0)]
    while stack:
        value, depth = stack.pop()
        if (numbers := numbers_of(value, 0)) is not None:
            if numbers.size and numbers.is_floating:
                least -= numbers.numel
                if len(numbers.size) > 1 or least <= 0:
                    return True
        elif depth < DEEP and type(value) not in LEAVES:
            stack.extend((item, depth + 1) for _, item in children(value))
    return False


def _names_weights(names: Collection[str]) -> bool:
    """Whether names are those of layers' weights and biases."""
    layers = sum(name.rpartition(".")[2] in ("weight", "bias") and "." in name for name in names)
    return layers >= FEW and layers * 2 >= len(names)


def beside(root: Value, found: Collection[Copy]) -> bool:
    """Whether there is a model beside its copies: Ultralytics writes the copy alone.

    >>> root = {"model": None, "model_ema": {"decay": 0.9}}
    >>> beside(root, copies(root))
    False
    """
    keys, model = main_model(root)
    copied = () if keys else tuple(f"{copy.path}." for copy in found)
    return any(is_array(place.value) for name, place in places(model).items() if not name.startswith(copied))


def is_array(value: Value) -> bool:
    """Whether it is a tensor, and no number beside the copy (its decay, how often it was updated).

    >>> is_array(0.9)
    False
    """
    tensor = tensor_in(value)
    return tensor is not None and bool(tensor.size)
