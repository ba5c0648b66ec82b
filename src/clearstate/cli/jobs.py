"""Which files a command writes, and where: from its arguments, before anything is written."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import clearstate as cs
from clearstate.transport.remote import is_remote

from .files import Found, find, is_many


class Job(NamedTuple):
    """A file to clear, and where the cleared one goes; ``None`` on a dry run."""

    path: str
    target: str | None
    sought: bool = False
    """Whether a folder or a pattern brought it, and no name."""


def plan(arguments: Sequence[str], output: str | None, *, in_place: bool, dry_run: bool) -> list[Job]:
    """What to clear, and where to.

    Raises:
        ClearstateError: the arguments do not say where to, or two files would take one place, or one that of an input.
    """
    if in_place and output is not None:
        raise cs.ClearstateError("give -o or --in-place, not both")
    if output is None and not in_place and not dry_run:
        raise cs.ClearstateError(
            "say where the cleared file goes: -o FILE, or --in-place to replace the old one; --dry-run writes nothing"
        )
    if output == "":
        raise cs.ClearstateError("the name after -o is empty: no file is called that")
    folder = output is not None and (output.endswith(("/", os.sep)) or os.path.isdir(output))
    found = find(arguments, outside=output if folder else None)
    many = len(found) > 1 or any(map(is_many, arguments))
    if dry_run and output is not None and not folder and not many:
        return [Job(found[0].path, output)]  # its name says what layout it would have
    if output is None or dry_run:
        return [Job(file.path, file.path if in_place and not dry_run else None, many) for file in found]
    if folder or many:
        if not is_remote(output) and os.path.lexists(output) and not os.path.isdir(output):
            raise cs.ClearstateError(f"more than one file can come, so -o {output} must be a folder, and it is a file")
        return _into(output, found, sought=many)
    above = os.path.dirname(output)
    if above and not is_remote(output) and not os.path.isdir(above):
        raise cs.ClearstateError(f"cannot write {output}: there is no folder {above}")
    return _apart([Job(found[0].path, output)])


def _into(folder: str, found: Iterable[Found], *, sought: bool) -> list[Job]:
    return _apart([Job(file.path, os.path.join(folder, file.relative), sought) for file in found])


def _apart(jobs: list[Job]) -> list[Job]:
    inputs = {_place(job.path) for job in jobs}
    taken: dict[str, str] = {}
    for job in jobs:
        assert job.target is not None
        place = _place(job.target)
        if place in inputs:
            raise cs.ClearstateError(f"{job.target} is itself to be cleared; write elsewhere, or say --in-place")
        if (other := taken.setdefault(place, job.path)) != job.path:
            both = f"{other} and {job.path} would both become {job.target}"
            raise cs.ClearstateError(f"{both}; clear the folder that holds them instead")
    return jobs


def _place(path: str) -> str:
    return path if is_remote(path) else os.path.realpath(path)
