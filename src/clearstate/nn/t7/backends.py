"""Live modules as layers of another backend: they stay what they are, and go to files under the backend's class.

A layer of cudnn.torch is, in Python, the layer of nn that means the same (`packages`). So what changes is
what each remembers to be written as. What that is, the object graph says, converted as that of a file is.
"""

from __future__ import annotations

import torch

from ...formats.t7.backends import pairs as pairs
from ...formats.t7.backends.pairs import CannotConvert, Refused
from ...formats.t7.codec.objects import Value
from ..declarations.fields import Form
from ..protocol.stateful import Stateful
from .packages import meant
from .reading import Reading
from .writing import Writing

REMEMBERED = ("typename", "file_fields", "version")
"""What a module that is written as another package's class remembers; one of nn has none of these of its own."""


def convert(module: torch.nn.Module, to: str, *, partial: bool = False) -> None:
    """Makes a module, and all inside it, be written as a backend's; see `clearstate.convert`.

    Raises:
        CannotConvert: layers cannot be expressed, and ``partial`` is not set; nothing was changed.
        TypeError: something in the module has no Torch7 class.
        ValueError: there is no such backend.

    >>> import clearstate.nn as nn
    >>> net = nn.Sequential().add(nn.ReLU())
    >>> convert(net, "cudnn")
    >>> net
    nn.Sequential {
      [input -> (1) -> output]
      (1): cudnn.ReLU
    }
    """
    writing = Writing()
    graph = writing.value(module)
    modules = {id(obj): live for live, obj in writing.known.values() if isinstance(live, Stateful)}
    plan = pairs.plan(graph, to)
    left = [*plan.left, *(_other_class(graph, modules, plan) if plan.changed else ())]
    if left and not partial:
        raise CannotConvert(left, f"made {to}'s")
    stay = {each.path for each in left}
    paths = {id(obj): str(path or "") for path, obj in pairs.objects(graph)}
    plan.carry_out()
    reading = Reading("keep")
    reading.value(graph)
    for number in plan.classes():
        live, made = modules.get(number), reading.known.get(number)
        if live is not None and isinstance(made, Stateful) and paths.get(number) not in stay:
            _take_over(live, made)


def _other_class(graph: Value, modules: dict[int, Stateful], plan: pairs.Plan) -> list[Refused]:
    """Modules that the backend's class is another one of nn's than they are: a live one cannot become that."""
    left = []
    classes = plan.classes()
    for path, obj in pairs.objects(graph):
        name, live = classes.get(id(obj)), modules.get(id(obj))
        if name is not None and live is not None and meant(name) != type(live).typename:
            reason = f"{name} is another class in Python, {meant(name)}; convert the file, and load that"
            left.append(Refused(str(path or ""), obj.typename, reason))
    return left


def _take_over(live: Stateful, made: Stateful) -> None:
    """Remembers what ``made``, read from what the module is to be written as, remembers; plain fields are as there."""
    own, other = live.__dict__, made.__dict__
    for name in REMEMBERED:
        own.pop(name, None)
        if name in other:
            own[name] = other[name]
    own["extra"] = other["extra"]
    for field in live.fields.values():
        value = getattr(made, field.attribute, None)
        if field.form is not Form.CONSTANT and isinstance(value, bool | int | float | str):
            setattr(live, field.attribute, value)
