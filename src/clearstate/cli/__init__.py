"""The command ``clearstate``: what a model file holds, made small, and proved to be the same model.

Here is what all commands share: the program's name, and one sentence and exit code 2 for whatever goes wrong.
Each command has a file of its own, imported when it is called, so that answers come at once.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

import clearstate as cs

from .drawing import Exit, complain, say
from .words import Commands, Words

COMMANDS = {
    "inspect": ("What a file holds, and what makes it big.", "model.t7"),
    "clear": ("Write it again without what work left behind.", "model.t7 -o small.t7"),
    "verify": ("Are two files the same model?", "model.t7 small.t7"),
    "convert": ("Write it for another backend, or for PyTorch and ONNX.", "model.t7 --to nn --device cpu -o cpu.t7"),
}
"""What each command is for, and an example. It is the function of its name in the file of its name."""

ALLOCATIONS = 50_000
"""Objects made before the garbage among them is looked for: Python's own 700 suit programs that run longer."""


def program(names: Iterable[str]) -> typer.Typer:
    """The program with some of its commands: only these are imported."""
    app = typer.Typer(
        name="clearstate",
        cls=Commands,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True, epilog="Example: clearstate inspect model.t7")(start)
    for name in names:
        summary, example = COMMANDS[name]
        command = getattr(importlib.import_module(f"{__name__}.{name}"), name)
        app.command(cls=Words, short_help=summary, epilog=f"Example: clearstate {name} {example}")(command)
    return app


def _version(asked: bool) -> None:
    if asked:
        say(f"clearstate {cs.__version__}")
        raise typer.Exit()


def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """What a trained model is, told from what work left behind on it.

    Torch7 saves a model together with its outputs, input gradients and work buffers. See what a
    file holds, drop what is not the model, and prove that the rest is untouched.
    """
    if context.invoked_subcommand is None:
        say(context.get_help())


def run(arguments: Sequence[str]) -> int:
    """Runs the command with these arguments; returns its exit code.

    0: done, or the same model; 1: `verify` found differences; 2: bad input or usage, said in one sentence on stderr;
    130: stopped by Ctrl-C; 141: whoever read the output has gone.
    """
    named = [name for name in arguments[:1] if name in COMMANDS]
    try:
        app = program(named or COMMANDS)
        return app(list(arguments), prog_name="clearstate", standalone_mode=False) or Exit.DONE
    except (KeyboardInterrupt, typer.Abort):
        return Exit.STOPPED
    except SystemExit:  # Typer's own answer to a broken pipe, as it prints help
        return Exit.UNREAD
    except Exception as error:
        from .files import sentence

        complain(sentence(error))
        return Exit.REFUSED


def main() -> None:
    """The console script."""
    gc.set_threshold(ALLOCATIONS)
    code = run(sys.argv[1:])
    gc.freeze()  # what is left goes with the process, and is not searched for cycles first
    sys.exit(code)
