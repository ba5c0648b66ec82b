"""Which Python class stands for a Torch7 class: what `clearstate.load` makes of the objects of a file.

A class says so itself, by its class argument ``typename``; or one line says so for it: `register`. The packs of
`clearstate.nn.packs` are registered by the same line, by where they are: they are imported once a file names one.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ...formats.t7.meaning import classes
from ..protocol.stateful import CLASSES, Stateful
from .packages import meant

_places: dict[str, str] = {}
"""Where classes are that have been registered and not imported yet."""


def register(typename: str, cls: type[Stateful] | str) -> None:
    """Says which Python class stands for a Torch7 class.

    Args:
        typename: the Torch7 class name, ``"w2nn.LeakyReLU"``.
        cls: the Python class; or where it is, ``"package.module:Class"``, to be imported once a file names it. A class
            of nn under another name is given as it is: it is written back under that name.

    Raises:
        TypeError: it is no class of modules or criterions, nor a place of one.

    >>> import clearstate.nn as nn
    >>> nn.register("my.Rectifier", nn.ReLU)
    >>> find("my.Rectifier").__name__
    'ReLU'
    >>> nn.register("my.LSTM", "clearstate.nn.packs.rnn:LSTM")
    >>> find("my.LSTM").__name__
    'LSTM'
    """
    if isinstance(cls, str) and ":" in cls:
        CLASSES.pop(typename, None)
        _places[typename] = cls
        return
    if not (isinstance(cls, type) and issubclass(cls, Stateful)):
        raise TypeError(f'{typename}: expected a class of modules, or "package.module:Class", got {cls!r}')
    _places.pop(typename, None)
    CLASSES[typename] = cls
    if classes.lookup(typename) is None:
        classes.register(typename, cls.typename)


def find(typename: str) -> Any:
    """The Python class that stands for a Torch7 class; ``None`` where there is none.

    >>> find("nn.Linear").__name__, find("inn.SpatialMaxPooling").__name__, find("my.Unheard")
    ('Linear', 'SpatialMaxPooling', None)
    """
    name = meant(typename)
    if name not in CLASSES and name in _places:
        module, _, attribute = _places[name].partition(":")
        known = dict(CLASSES)
        cls = getattr(import_module(module), attribute)
        CLASSES.update(known)  # a class of a user's own stays before one that came along
        register(name, cls)
    return CLASSES.get(name)
