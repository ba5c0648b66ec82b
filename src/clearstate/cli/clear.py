"""``clearstate clear``: drops what work left behind, from one file or from many at a time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

import clearstate as cs
from clearstate.transport import many
from clearstate.transport.remote import is_remote
from clearstate.verbs.clear import bring_along, bring_neighbours, clear_alone

from .drawing import Exit, complain, say, screen
from .files import bytes_of, long_size, readable, sentence
from .html import Html, may_write, write
from .jobs import Job, plan
from .meter import Meter
from .summary import Tally, row, summary


def clear(
    files: Annotated[list[str], typer.Argument(metavar="FILE", hidden=True)],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE|DIR",
            help="The file to write, or replace; a folder for more than one. A name that ends in .safetensors "
            "gets the state dict of a checkpoint.",
        ),
    ] = None,
    in_place: Annotated[bool, typer.Option("--in-place", help="Replace the files themselves.")] = False,
    drop: Annotated[
        list[str] | None,
        typer.Option(
            "--drop", metavar="ROLE|PATH", help="Drop this too: gradient, code, copy, or '*.head.*' by its path."
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            "--keep", metavar="ROLE|PATH", help="Keep this: transient, slack, optimizer, training, or a path."
        ),
    ] = None,
    use: Annotated[
        str | None,
        typer.Option(
            "--use",
            metavar="ema|model|eval|PATH",
            help="The weights to keep as the model: their average, as trained, as its optimizer evaluates, or a copy.",
        ),
    ] = None,
    unwrap: Annotated[
        bool, typer.Option("--unwrap", help="Take the prefixes of wrappers (module., _orig_mod.) off the names.")
    ] = False,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", metavar="TYPE", help="Cast floating parameters: float16, bfloat16, float32."),
    ] = None,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Plain values in place of objects, so that weights_only=True loads the file."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing, say what would be.")] = False,
    html: Html = None,
    transient: Annotated[
        list[str] | None,
        typer.Option(
            "--transient", metavar="CLASS:FIELD,...", help="Fields of a class of your own that work leaves behind."
        ),
    ] = None,
    longs: Annotated[
        str | None, typer.Option("--long-size", metavar="4|8", help="Bytes of a C long; found out unless given.")
    ] = None,
    jobs_: Annotated[
        str | None,
        typer.Option("--jobs", "-j", metavar="N", help="Files at a time; by their sizes unless given."),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option("--dask", metavar="ADDRESS", help="Work on a Dask cluster: the scheduler's tcp://host:port."),
    ] = None,
) -> None:
    """Write files again without what work left behind.

    Outputs, input gradients, work buffers, optimizer state and bytes that no tensor sees go; the model
    stays bit for bit what it was. What is written is read back and compared before it replaces anything.

    FILE: files of Torch7, PyTorch and safetensors, indexes of shards, folders (with all in them),
    quoted patterns, and addresses (s3://..., hf://...).
    """
    for text in transient or ():
        declare(text)
    asked: dict[str, Any] = {"use": use, "unwrap": unwrap, "dtype": dtype, "plain": plain}
    asked |= {"drop": drop or [], "keep": keep or [], "long_size": long_size(longs)}
    dropping = _roles(asked["drop"], asked["keep"])
    jobs = plan(files, output, in_place=in_place, dry_run=dry_run)
    may_write(html, [job.path for job in jobs])
    together = len(jobs) > 1 or dry_run or any(job.sought for job in jobs)
    calls = [_call(job, output, in_place, dry_run, together, asked) for job in jobs]
    processes = _count(jobs_) or many.processes_for([bytes_of(job.path) for job in jobs])
    tally = Tally()
    on = screen()
    done: cs.Cleared | None = None
    with Meter([job.path for job in jobs]) as meter:
        alone = processes == 1 and dask is None
        outcomes = many.each(
            partial(cleared, progress=meter.at) if alone else cleared,
            calls,
            processes=processes,
            dask=dask,
            before=[(declare, (text,)) for text in transient or ()],
            begin=(lambda number: meter.begin(jobs[number].path)) if alone else None,
        )
        for outcome in outcomes:
            job, error = jobs[outcome.number], outcome.error
            if not alone:
                meter.done(job.path)
            if isinstance(error, cs.NothingLeft) and job.sought:
                tally.left_out.append((job.path, error))
            elif error is not None:
                tally.failed += 1
                with meter.aside():
                    complain(sentence(error, writing=_writing(error, job, in_place)))
            else:
                tally.add(job, outcome.value, several=len(jobs) > 1)
                done = outcome.value
                if len(jobs) > 1:
                    with meter.aside():
                        say([row(job, outcome.value, on)])
    if tally.files and output is not None:
        along = _along(files, output, jobs, dry_run=dry_run)
        tally.done[:0] = [*along, *(_neighbours(files, output, tally.files, jobs, dry_run) if together else ())]
    if tally.files or tally.left_out:
        say(summary(tally, on, dropping, dry_run=dry_run))
    if html is not None and done is not None:
        write(html, done.before, replace(done.after, source=jobs[0].target or jobs[0].path))
    if tally.failed:
        raise typer.Exit(Exit.REFUSED)


def cleared(path: str, folder: str | None, together: bool, progress: Any = None, **how: Any) -> cs.Cleared:
    """Clears one file; makes the folder that it goes into. What lies beside several is looked at when all are done."""
    if folder:
        os.makedirs(folder, exist_ok=True)
    return (clear_alone if together else cs.clear_file)(readable(path), progress=progress, **how)


def _call(
    job: Job, output: str | None, in_place: bool, dry_run: bool, together: bool, asked: dict[str, Any]
) -> dict[str, Any]:
    inside = job.target is not None and output is not None and job.target != output and not is_remote(job.target)
    folder = os.path.dirname(str(job.target)) if inside else None
    target = None if in_place else job.target
    how = {"output": target, "in_place": in_place, "dry_run": dry_run, **asked}
    return {"path": job.path, "folder": folder, "together": together, **how}


def _along(files: Iterable[str], output: str, jobs: Iterable[Job], *, dry_run: bool) -> list[str]:
    """What went along, or stayed behind, of the folders among the arguments."""
    paths = [job.path for job in jobs]
    folders = [] if is_remote(output) else [name for name in files if not is_remote(name) and os.path.isdir(name)]
    said = (text for name in folders for text in bring_along(name, output, paths, dry_run=dry_run))
    return [f"{text[:1].upper()}{text[1:]}" for text in said]


def _neighbours(
    files: Iterable[str], output: str, done: Iterable[Job], jobs: Sequence[Job], dry_run: bool
) -> list[str]:
    """What was copied, or stayed behind, beside files that were named one by one or by a pattern."""
    folders = [
        os.path.join(os.path.realpath(name), "") for name in files if not is_remote(name) and os.path.isdir(name)
    ]
    paths = [job.path for job in jobs]
    said: dict[str, None] = {}
    for job in done:
        if not is_remote(job.path) and os.path.join(os.path.realpath(os.path.dirname(job.path)), "").startswith(
            tuple(folders)
        ):
            continue
        target = job.target or os.path.join(output, os.path.basename(job.path))  # none on a dry run into a folder
        texts = bring_neighbours(job.path, target, paths, dry_run=dry_run)
        where = f"{os.path.dirname(job.path) or os.curdir}: " if len(jobs) > 1 else ""
        said |= dict.fromkeys(where + text if where else text[:1].upper() + text[1:] for text in texts)
    return list(said)


def _writing(error: Exception, job: Job, in_place: bool) -> str | None:
    """The file that could not be written, where that is what went wrong."""
    if not isinstance(error, OSError) or job.target is None:
        return None
    read = error.filename == job.path and not (in_place and os.access(job.path, os.R_OK))
    return None if read else job.target


def _count(given: str | None) -> int | None:
    if given is None:
        return None
    if not given.isdecimal() or not int(given):
        raise cs.ClearstateError(f"--jobs is a number of files at a time, not {given}")
    return int(given)


def _roles(drop: Iterable[str], keep: Iterable[str]) -> frozenset[cs.Role]:
    """The roles among the words after ``--drop``; the others are paths.

    Raises:
        ClearstateError: a role that never goes, or that is to go and to stay.
    """
    for word in set(drop) & set(keep):
        raise cs.ClearstateError(f"{word} is in --drop and in --keep: say one of them")
    known = {str(role): role for role in cs.Role}
    dropping = frozenset(known[word] for word in drop if word in known)
    for role in dropping:
        if not role.droppable:
            raise cs.ClearstateError(f"--drop {role}: this is part of the model and never goes")
    return dropping


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
