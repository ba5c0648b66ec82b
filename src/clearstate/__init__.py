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
    from .errors import ClearstateError, ConversionError, FormatError, NothingLeft, WrongFormat
    from .export import Coverage, coverage, to_onnx, to_stock, write_definition
    from .formats.t7.backends.pairs import CannotConvert
    from .inventory import Entry, Inventory
    from .live.evidence.baseline import Baseline, observe
    from .live.evidence.declared import register
    from .live.leaks import Leak, Leaks, find_leaks
    from .live.wrappers import unwrap
    from .nn.t7.files import UnknownClass, load
    from .nn.t7.numbers import load_parameters
    from .roles import Role
    from .verbs.clear import Cleared, clear_file, clear_state, cleared
    from .verbs.convert import Converted, convert, convert_file
    from .verbs.inspect import inspect
    from .verbs.save import save
    from .verbs.verify import Verdict, verify

__version__ = "0.1.0"

_ROOMS = {
    "Cleared": "verbs.clear",
    "clear_file": "verbs.clear",
    "clear_state": "verbs.clear",
    "CannotConvert": "formats.t7.backends.pairs",
    "Converted": "verbs.convert",
    "convert": "verbs.convert",
    "convert_file": "verbs.convert",
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
    "Baseline": "live.evidence.baseline",
    "UnknownClass": "nn.t7.files",
    "inspect": "verbs.inspect",
    "Entry": "inventory",
    "Inventory": "inventory",
    "cleared": "verbs.clear",
    "Leak": "live.leaks",
    "Leaks": "live.leaks",
    "find_leaks": "live.leaks",
    "load": "nn.t7.files",
    "load_parameters": "nn.t7.numbers",
    "observe": "live.evidence.baseline",
    "register": "live.evidence.declared",
    "save": "verbs.save",
    "Role": "roles",
    "Verdict": "verbs.verify",
    "unwrap": "live.wrappers",
    "verify": "verbs.verify",
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
