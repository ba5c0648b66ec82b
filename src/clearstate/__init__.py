"""clearstate: what a trained model *is*, told from what work left behind on it.

>>> import clearstate as cs
>>> from clearstate.formats import t7
>>> net = t7.Object("nn.Identity", t7.Table(output=t7.Tensor.of([1.0, 2.0])))
>>> cs.inspect(net).by_role()
{<Role.TRANSIENT: 'transient'>: 16}
>>> cs.inspect(cs.clear_state(net)).by_role()
{}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazily import names

if TYPE_CHECKING:
    from .clearing import Cleared, clear_file, clear_state, cleared
    from .converting import Converted, convert, convert_file
    from .errors import ClearstateError, ConversionError, FormatError, NothingLeft, WrongFormat
    from .export import Coverage, coverage, to_onnx, to_stock, write_definition
    from .formats.t7.backends import CannotConvert
    from .inspecting import inspect
    from .inventory import Entry, Inventory
    from .live.baseline import Baseline, observe
    from .live.declared import register
    from .live.leaks import Leak, Leaks, find_leaks
    from .live.wrappers import unwrap
    from .nn.flat import load_parameters
    from .nn.t7 import UnknownClass, load
    from .roles import Role
    from .saving import save
    from .verifying import Verdict, verify

__version__ = "0.1.0"

_ROOMS = {
    "Cleared": "clearing",
    "clear_file": "clearing",
    "clear_state": "clearing",
    "CannotConvert": "formats.t7.backends",
    "Converted": "converting",
    "convert": "converting",
    "convert_file": "converting",
    "ClearstateError": "errors",
    "ConversionError": "errors",
    "FormatError": "errors",
    "NothingLeft": "errors",
    "WrongFormat": "errors",
    "Coverage": "export",
    "coverage": "export",
    "to_onnx": "export",
    "to_stock": "export",
    "write_definition": "export",
    "Baseline": "live.baseline",
    "UnknownClass": "nn.t7",
    "inspect": "inspecting",
    "Entry": "inventory",
    "Inventory": "inventory",
    "cleared": "clearing",
    "Leak": "live.leaks",
    "Leaks": "live.leaks",
    "find_leaks": "live.leaks",
    "load": "nn.t7",
    "load_parameters": "nn.flat",
    "observe": "live.baseline",
    "register": "live.declared",
    "save": "saving",
    "Role": "roles",
    "Verdict": "verifying",
    "unwrap": "live.wrappers",
    "verify": "verifying",
}

__all__ = [
    "Baseline",
    "CannotConvert",
    "Cleared",
    "ClearstateError",
    "ConversionError",
    "Converted",
    "Coverage",
    "Entry",
    "FormatError",
    "Inventory",
    "Leak",
    "Leaks",
    "NothingLeft",
    "Role",
    "UnknownClass",
    "Verdict",
    "WrongFormat",
    "clear_file",
    "clear_state",
    "cleared",
    "convert",
    "convert_file",
    "coverage",
    "find_leaks",
    "inspect",
    "load",
    "load_parameters",
    "observe",
    "register",
    "save",
    "to_onnx",
    "to_stock",
    "unwrap",
    "verify",
    "write_definition",
]


__getattr__ = names(__name__, _ROOMS)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
