"""``clearstate clear``: drops what work left behind, and says what went, byte for byte."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import typer

import clearstate as cs

from .drawing import Exit, Line, Part, Screen, clean, complain, counted, fit, percent, say, screen, wrapped
from .files import Found, find, is_many, long_size, readable, sentence
from .meter import Meter

REBUILD = """\
local p, g = net:parameters(); local z = {}
for i, w in ipairs(p) do
  local s = w:storage(); local k = torch.pointer(s)
  z[k] = z[k] or w.new(s:size()):zero()
  g[i]:set(z[k]:storage(), w:storageOffset(), w:size(), w:stride())
end"""
"""Lua that gives every parameter its gradient again, laid out and shared as the parameters are."""

NAMED = (cs.Role.OPTIMIZER, cs.Role.TRAINING, cs.Role.COPY)
"""Roles that a person may miss: what went is named."""


class Job(NamedTuple):
    """A file to clear, and where the cleared one goes; ``None`` on a dry run."""

    path: str
    target: str | None


def clear(
    files: Annotated[list[str], typer.Argument(metavar="FILE", hidden=True)],
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE|DIR", help="The file to write, or replace; a folder for more than one."
        ),
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Replace the files themselves.")] = False,
    drop: Annotated[
        list[str] | None,
        typer.Option("--drop", metavar="ROLE", help="Drop this too: gradient, code."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="ROLE", help="Keep this: transient, slack, optimizer, training, copy."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing, say what would be.")] = False,
    transient: Annotated[
        list[str] | None,
        typer.Option(
            "--transient", metavar="CLASS:FIELD,...", help="Fields of a class of your own that work leaves behind."
        ),
    ] = None,
    longs: Annotated[
        str | None, typer.Option("--long-size", metavar="4|8", help="Bytes of a C long; found out unless given.")
    ] = None,
) -> None:
    """Write files again without what work left behind.

    Outputs, input gradients, work buffers, optimizer state and bytes that no tensor sees go; the model
    stays bit for bit what it was. What is written is read back and compared before it replaces anything.

    FILE: Torch7 files, PyTorch checkpoints, folders (with all in them) and quoted patterns.
    """
    size = long_size(longs)
    dropping, keeping = _roles(drop or (), "--drop"), _roles(keep or (), "--keep")
    for role in dropping & keeping:
        raise cs.ClearstateError(f"{role} is in --drop and in --keep: say one of them")
    for declaration in transient or ():
        declare(declaration)
    jobs = plan(files, output, in_place=in_place, dry_run=dry_run)
    tally = Tally()
    on = screen()
    with Meter([job.path for job in jobs]) as meter:
        for job in jobs:
            meter.begin(job.path)
            try:
                if job.target is not None and output is not None and job.target != output:
                    os.makedirs(os.path.dirname(job.target), exist_ok=True)
                done = cs.clear_file(
                    readable(job.path),
                    None if in_place else job.target,
                    in_place=in_place,
                    drop=dropping,
                    keep=keeping,
                    dry_run=dry_run,
                    long_size=size,
                    progress=meter.at,
                )
            except Exception as error:
                tally.failed += 1
                with meter.aside():
                    complain(sentence(error, writing=_writing(error, job, in_place)))
                continue
            tally.add(job, done, several=len(jobs) > 1)
            if len(jobs) > 1:
                with meter.aside():
                    say([_row(job, done, on)])
    if tally.files:
        say(summary(tally, on, dropping, dry_run=dry_run))
    if tally.failed:
        raise typer.Exit(Exit.REFUSED)


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
    folder = output is not None and (os.path.isdir(output) or output.endswith(("/", os.sep)))
    found = find(arguments, outside=output if folder else None)
    if output is None or dry_run:
        return [Job(file.path, file.path if in_place and not dry_run else None) for file in found]
    if folder or len(found) > 1 or any(map(is_many, arguments)):
        if os.path.lexists(output) and not os.path.isdir(output):
            raise cs.ClearstateError(f"more than one file can come, so -o {output} must be a folder, and it is a file")
        return _into(output, found)
    above = os.path.dirname(output)
    if above and not os.path.isdir(above):
        raise cs.ClearstateError(f"cannot write {output}: there is no folder {above}")
    return _apart([Job(found[0].path, output)])


def _into(folder: str, found: Iterable[Found]) -> list[Job]:
    return _apart([Job(file.path, os.path.join(folder, file.relative)) for file in found])


def _apart(jobs: list[Job]) -> list[Job]:
    inputs = {os.path.realpath(job.path) for job in jobs}
    taken: dict[str, str] = {}
    for job in jobs:
        assert job.target is not None
        place = os.path.realpath(job.target)
        if place in inputs:
            raise cs.ClearstateError(f"{job.target} is itself to be cleared; write elsewhere, or say --in-place")
        if (other := taken.setdefault(place, job.path)) != job.path:
            both = f"{other} and {job.path} would both become {job.target}"
            raise cs.ClearstateError(f"{both}; clear the folder that holds them instead")
    return jobs


def _writing(error: Exception, job: Job, in_place: bool) -> str | None:
    """The file that could not be written, where that is what went wrong."""
    if not isinstance(error, OSError) or job.target is None:
        return None
    read = error.filename == job.path and not (in_place and os.access(job.path, os.R_OK))
    return None if read else job.target


def _roles(words: Iterable[str], option: str) -> frozenset[cs.Role]:
    roles = set()
    for word in words:
        if word not in {str(role) for role in cs.Role}:
            usable = (str(role) for role in cs.Role if role.droppable)
            raise cs.ClearstateError(f"{option} {word}: there is no such role; there are {', '.join(usable)}")
        role = cs.Role(word)
        if option == "--drop" and not role.droppable:
            raise cs.ClearstateError(f"--drop {word}: this is part of the model and never goes")
        roles.add(role)
    return frozenset(roles)


def declare(text: str) -> None:
    """Adds transient fields to what the catalog has, or guesses, of a class: ``my.Class:field,field``.

    Raises:
        ClearstateError: the text is of another form, or a field is known to be part of the model.

    >>> declare("my.Gate:seen,steps")
    >>> from clearstate import catalog
    >>> str(catalog.lookup("my.Gate").roles["seen"]), str(catalog.lookup("my.Gate").roles["weight"])
    ('transient', 'parameter')
    """
    from clearstate import catalog

    name, _, listed = text.rpartition(":")
    fields = listed.replace(",", " ").split()
    if not name or not fields:
        raise cs.ClearstateError(f"--transient wants 'my.Class:field,field', not {text!r}")
    entry = catalog.lookup(name)
    for known in fields if entry else ():
        role = entry.roles.get(known) if entry else None
        if role is not None and not role.droppable:
            raise cs.ClearstateError(f"--transient {text}: {known} is a {role} of {name}, and never goes")
    left = catalog.emptied(" ".join(fields))
    if entry is not None:
        catalog.extend(name, transient=left)
        return
    roles: dict[str, str] = {}
    for known, role in catalog.UNDECLARED.roles.items():
        if role is not cs.Role.TRANSIENT and known not in fields:
            roles[str(role)] = f"{roles.get(str(role), '')} {known}"
    catalog.register(name, transient={**catalog.UNDECLARED.transient, **left}, **roles)


@dataclass(slots=True)
class Tally:
    """What came of all files together."""

    files: list[Job] = field(default_factory=list)
    failed: int = 0
    size_before: int = 0
    size_after: int = 0
    before: Counter[cs.Role] = field(default_factory=Counter)
    after: Counter[cs.Role] = field(default_factory=Counter)
    named: dict[cs.Role, list[str]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)

    def add(self, job: Job, done: cs.Cleared, *, several: bool) -> None:
        """Counts one file."""
        self.files.append(job)
        self.size_before += done.before.size
        self.size_after += done.after.size
        after = done.after.by_role()
        self.before.update(done.before.by_role())
        self.after.update(after)
        self.notes.update(dict.fromkeys(done.before.notes))
        for role in NAMED:
            if not after.get(role):
                self.named.setdefault(role, []).extend(_names(job, done.before, role, several))
        self.unknown.extend(_names(job, done.after, cs.Role.UNKNOWN, several))


def _names(job: Job, inventory: cs.Inventory, role: cs.Role, several: bool) -> list[str]:
    """The pieces of a role by name, the largest first."""
    pieces = sorted((entry for entry in inventory.select(role) if entry.bytes), key=lambda entry: -entry.bytes)
    names = [entry.path or entry.type for entry in pieces]
    return [f"{job.path}: {name}" for name in names] if several else names


def _row(job: Job, done: cs.Cleared, on: Screen) -> Line:
    from clearstate.inventory import size_text

    sizes = f"  {size_text(done.before.size):>8} → {size_text(done.after.size):>8}  "
    name = clean(job.path)
    return [Part(sizes), Part(name if len(name) <= on.width - len(sizes) else fit(name, on.width - len(sizes)))]


def summary(tally: Tally, on: Screen, dropping: Iterable[cs.Role], *, dry_run: bool) -> list[Line]:
    """What `clear` prints at its end: bytes before and after, by role, and what to know besides."""
    from clearstate.inventory import size_text

    lines = _title(tally, dry_run)
    lines.append([Part(f"  {'':<10} {'before':>10} {'after':>10}", "faint")])
    for role, count in tally.before.most_common():
        left = tally.after[role]
        style = "goes" if left < count and role is not cs.Role.METADATA else ""
        lines.append([Part(f"  {role!s:<10} {size_text(count):>10} {size_text(left) if left else '-':>10}", style)])
    freed = tally.size_before - tally.size_after
    saved = f"{size_text(freed)} less ({percent(freed, tally.size_before)})" if freed > 0 else "nothing to clear"
    sizes = f"{size_text(tally.size_before):>10} {size_text(tally.size_after):>10}"
    lines.append([Part(f"  {counted(len(tally.files), 'file'):<10} {sizes}", "strong"), Part(f"   {saved}", "stays")])
    return [*lines, *_besides(tally, on, frozenset(dropping))]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def _title(tally: Tally, dry_run: bool) -> list[Line]:
    job = tally.files[0]
    if len(tally.files) + tally.failed == 1:
        where = f" → {job.target}" if job.target is not None and job.target != job.path else ""
        dry = " (dry run: nothing was written)" if dry_run else ""
        return [[Part(job.path, "strong"), Part(where), Part(dry, "faint")]]
    failed = f", {tally.failed} could not be" if tally.failed else ""
    verb = "would be cleared (dry run: nothing was written)" if dry_run else "cleared"
    return [[], [Part(f"{counted(len(tally.files), 'file')} {verb}{failed}", "strong")]]


def _besides(tally: Tally, on: Screen, dropping: frozenset[cs.Role]) -> list[Line]:
    from clearstate.inventory import size_text

    from .inspect import GLOSS

    lines: list[Line] = []
    for role, names in tally.named.items():
        if names:
            text = f"Dropped {GLOSS[str(role)]}: {_some(names)}; --keep {role} leaves it."
            lines += wrapped(text, on.width, "", "  ")
    if tally.unknown:
        lines += wrapped(f"Kept, since nobody declared what they are: {_some(tally.unknown)}.", on.width, "", "  ")
    if cs.Role.GRADIENT in dropping and tally.before[cs.Role.GRADIENT]:
        text = "The gradients went. The model runs without; to train it, Torch7 needs gradWeight and gradBias rebuilt:"
        lines += wrapped(text, on.width)
        lines += ([Part(f"  {lua}", "command")] for lua in REBUILD.splitlines())
    elif left := tally.after[cs.Role.GRADIENT]:
        lines.append([Part(f"Gradients of weights stay, {size_text(left)}: --drop gradient drops them too.")])
    for note in list(tally.notes)[:8]:
        lines += wrapped(note, on.width, "note: ", "      ")
    if len(tally.notes) > 8:
        more = counted(len(tally.notes) - 8, "more note")
        lines.append([Part(f"      … {more}: clearstate inspect --all", "faint")])
    return [[], *lines] if lines else []
