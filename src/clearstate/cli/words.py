"""Commands that take their arguments as words, as given, so that no library of validators is loaded for them.

Typer turns every value, also one that is not there, into its declared type with pydantic, and importing that takes
longer than inspecting a file. Here all parameters are flags, words and lists of words; what a word means, each
command says itself, in a sentence of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:
    _Parsed = TyperCommand
else:
    _Parsed = object


class _AsGiven(_Parsed):
    def get_params(self, ctx: Any) -> list[Any]:
        parameters = super().get_params(ctx)
        for parameter in parameters:
            vars(parameter).setdefault("process_value", _as_given(parameter))
        return parameters


class Words(_AsGiven, TyperCommand):
    """A command."""


class Commands(_AsGiven, TyperGroup):
    """A command that has commands."""


def _as_given(parameter: Any) -> Callable[[Any, Any], Any]:
    """Stands for ``parameter.process_value``; a value that is missing goes the usual way, to the usual message."""
    usual = parameter.process_value

    def process_value(context: Any, given: Any) -> Any:
        if parameter.required and not given:
            return usual(context, given)
        value = list(given) if isinstance(given, tuple) else given
        return parameter.callback(context, parameter, value) if parameter.callback else value

    return process_value
