"""``--html``: a page of what the command shows, for a browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

import clearstate as cs

from .files import sentence

Html = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write a page, too, that shows where the bytes are; it works offline."),
]
"""The option, as every command that has it declares it."""


def may_write(page: str | None, files: Sequence[str]) -> None:
    """Checks before any work that there can be a page.

    Raises:
        ClearstateError: it is to show more than one file, or would replace something that is no report.
    """
    if page is None:
        return
    from clearstate.report import check

    if len(files) != 1:
        raise cs.ClearstateError(f"--html shows one file, and these are {len(files):,}: call it for each")
    try:
        check(page)
    except OSError as error:
        raise cs.ClearstateError(sentence(error, writing=page)) from None


def write(page: str, before: cs.Inventory, after: cs.Inventory | None = None) -> None:
    """Writes the page.

    Raises:
        ClearstateError: it cannot be written.
    """
    from clearstate.report import write

    try:
        write(page, before, after)
    except OSError as error:
        raise cs.ClearstateError(sentence(error, writing=page)) from None
