"""What Python values hold: which types hold no tensors, and the entries and fields of those that may.

Nothing of a model is known here.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

OPAQUE = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    torch.device,
    torch.dtype,
    torch.Size,
    torch.Generator,
    DeviceMesh,
    io.IOBase,
)
"""Types that hold no tensors of a model's work, or nothing that could be looked into."""


PLAIN = frozenset((*OPAQUE, type(None))) - {io.IOBase}
"""Exactly these types are told from others by one look into a set: most attributes are of them."""


NARROW = 16
"""Up to so many entries, a list or a tuple is told at one look, too."""


TABLES = (list, dict, set, OrderedDict, defaultdict, deque)
"""Exactly these are emptied in place, and copied for a stand-in."""


def is_plain(value: Any) -> bool:
    """Whether a value can be told at once to hold no tensor; where not, it has to be looked into.

    >>> is_plain((3, 3)), is_plain("zeros"), is_plain([torch.ones(1)]), is_plain({})
    (True, True, False, False)
    """
    kind = type(value)
    if kind is tuple or kind is list:
        return len(value) <= NARROW and PLAIN.issuperset(map(type, value))
    return kind in PLAIN


def parts(value: Any) -> list[tuple[str, Any]]:
    """What a container or an object holds, with the step to it; nothing, where it refuses to be looked into."""
    try:
        if isinstance(value, Mapping):
            return [(f"[{_shown(key, i)}]", item) for i, (key, item) in enumerate(list(value.items()))]
        if isinstance(value, list | tuple | set | frozenset | deque):
            return [(f"[{i}]", item) for i, item in enumerate(list(value))]
        if isinstance(value, functools.partial):
            return [(".func", value.func), (".args", value.args), (".keywords", value.keywords)]
        return [(f".{name}", item) for name, item in fields_of(value)]
    except Exception:  # code of another's class, which may raise whatever it likes
        return []


def _shown(key: Any, number: int) -> str:
    """A key as it is written in a path; one that is no plain value by its type and its number.

    >>> _shown("a", 0), _shown((1, 2), 1), _shown(torch.ones(2), 2)
    ("'a'", '(1, 2)', 'Tensor 2')
    """
    return repr(key) if is_plain(key) else f"{type(key).__name__} {number}"


def fields_of(value: Any) -> list[tuple[str, Any]]:
    """The fields of an object, which can be set.

    >>> fields_of(types.SimpleNamespace(x=1)), fields_of(functools.partial(print, 1))
    ([('x', 1)], [])
    """
    if dataclasses.is_dataclass(value):
        return [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value) if hasattr(value, f.name)]
    if isinstance(value, functools.partial):  # to ask it for its table would make one, and its pickle larger
        return []
    try:
        return list(vars(value).items())
    except Exception:  # it has no table, or one that cannot be had
        return []
