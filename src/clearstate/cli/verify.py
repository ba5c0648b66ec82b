"""``clearstate verify``: are these two files the same model? Names each difference by its path."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

import clearstate as cs

from .drawing import Exit, Line, Part, counted, say, screen, wrapped
from .files import readable


def verify(
    first: Annotated[
        str, typer.Argument(metavar="A", help="A Torch7 file, a checkpoint, an index of shards or its folder.")
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="Another, of any variant of the format.")],
) -> None:
    """Tell whether two files are the same model, whatever work left behind in either.

    Structure, parameters, buffers and their sharing are compared bit for bit. Exit code 0: the same
    model. 1: not the same; each difference is named by its path. Both may be addresses (s3://..., hf://...).
    """
    verdict = cs.verify(readable(first), readable(second))
    say([*_answer(verdict, first, second), *_left_behind(verdict)])
    if not verdict:
        raise typer.Exit(Exit.DIFFERENT)


def _answer(verdict: cs.Verdict, first: str, second: str) -> list[Line]:
    if verdict:
        return [[Part("Same model", "stays"), Part(f": {first} and {second}")]]
    count = counted(len(verdict.differences), "difference")
    title = [Part("Not the same model", "wrong"), Part(f": {first} and {second}, {count}")]
    return [
        title,
        *([Part(f"  {d.path or 'the file itself'}", "strong"), Part(f": {d.what}")] for d in verdict.differences),
    ]


def _left_behind(verdict: cs.Verdict) -> list[Line]:
    """One sentence on what differs and is not the model."""
    roles = Counter(difference.role for difference in verdict.left_behind)
    if not roles:
        return []
    parts = ", ".join(f"{count:,} of role {role}" for role, count in roles.most_common())
    where = verdict.left_behind[0].path or "the whole file"
    text = f"Not part of the model, and different: {parts} (the first is {where})."
    return wrapped(text, screen().width, "", "  ")
