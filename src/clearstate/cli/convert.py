"""``clearstate convert``: a model for another backend, device or number type, and what became of its layers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

import clearstate as cs

from .drawing import Line, Part, counted, say, screen, wrapped
from .files import long_size, readable, sentence
from .meter import Meter

if TYPE_CHECKING:
    from clearstate.backends import Refused


def convert(
    model: Annotated[str, typer.Argument(metavar="IN", help="A Torch7 file.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="OUT", help="The file to write, or replace; its suffix says its kind."),
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="BACKEND", help="Whose layers: nn, cudnn or inn.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", metavar="cpu|cuda", help="Where tensors are: Cuda's, or the CPU's.")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", metavar="TYPE", help="Of what numbers are: float, double or half.")
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Leave layers that cannot be expressed, and convert the others.")
    ] = False,
    sample: Annotated[
        str | None,
        typer.Option("--sample", metavar="SHAPE|FILE", help="For .py and .onnx: an input to compare on, or its shape."),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Only say what would become of each layer; write nothing.")
    ] = False,
    longs: Annotated[
        str | None, typer.Option("--long-size", metavar="4|8", help="Bytes of a C long; found out unless given.")
    ] = None,
) -> None:
    """Write a model for another backend, device or number type, or as what PyTorch and others run.

    OUT ends in .t7; in .safetensors or .pt for the state dict; in .py for Python source that
    needs torch only, with the weights beside it; in .onnx for an ONNX file. Source and ONNX are
    compared with the model, layer by layer, on a sample.

    Layers of cudnn.torch, inn and nn become each other, and tensors those of a GPU or the CPU,
    in nngraph's nodes and in tables too. What work left behind goes. A layer that cannot be
    expressed is refused, by its path, before anything is written. What is written is read back,
    and every parameter compared.
    """
    if output is None and not report:
        raise cs.ClearstateError("say where the converted model goes: -o FILE; --report only says what would be")
    if output is not None and os.path.dirname(output) and not os.path.isdir(os.path.dirname(output)):
        raise cs.ClearstateError(f"cannot write {output}: there is no folder {os.path.dirname(output)}")
    if (output is None or output.lower().endswith(".t7")) and to is device is dtype is None:
        raise cs.ClearstateError("say what it is to become: --to, --device or --dtype; -o for another kind of file")
    asked: dict[str, Any] = {"backend": to, "device": device, "dtype": dtype, "long_size": long_size(longs)}
    try:
        with Meter([] if report else [readable(model)]) as meter:
            meter.begin(model)
            asked["progress"] = meter.at
            asked |= {"sample": sample, "dry_run": report}
            done = cs.convert_file(readable(model), output, partial=partial or report, **asked)
    except cs.CannotConvert as error:
        raise cs.ClearstateError(
            f"{model}: {error}; --partial leaves it and converts the rest, --report lists all"
        ) from error
    except OSError as error:
        if error.filename == model:
            raise
        raise cs.ClearstateError(sentence(error, writing=output)) from error
    say(summary(model, done, left="Cannot be converted" if report and not partial else "Left as they are"))


def summary(model: str, done: cs.Converted, *, left: str) -> list[Line]:
    """What `convert` prints at its end: which classes became of which, the bytes, and what to know besides."""
    from clearstate.wording import size_text

    where = f" → {done.path}" if done.path is not None else ""
    lines: list[Line] = [[Part(model, "strong"), Part(where), Part("" if where else " (nothing was written)", "faint")]]
    for (before, after), count in done.classes().items():
        lines.append(_row(count, before, after))
    lines += _layers(done.layers)
    for before, after, count in done.tensors:
        lines.append(_row(count, before, after))
    if not done.changed and not done.tensors and not done.layers:
        lines.append([Part("  nothing to convert")])
    sizes = " → ".join(size_text(size) for size in done.size if size)
    lines.append([Part(f"  {counted(1, 'file')}, {sizes}", "strong")])
    if done.left:
        lines += [[], [Part(f"{left}: {counted(len(done.left), 'module')}", "wrong")]]
        for each in done.left:
            lines += _left(each)
    for note in done.notes:
        lines += [[], *wrapped(note, screen().width, "note: ", "      ")]
    return lines


def _layers(rows: Sequence[Any]) -> list[Line]:
    """A line a layer: where it is, what it becomes, and how far its output is from Torch7's."""
    apart = ["" if row.difference is None else f"{row.difference:.2g}" for row in rows]
    lines: list[tuple[str, str, Any]] = list(zip((row.path or "-" for row in rows), apart, rows, strict=True))
    if any(apart):
        lines.insert(0, ("layer", "apart", None))
    wide, far = (max((len(line[i]) for line in lines), default=0) for i in (0, 1))
    made: list[Line] = []
    for path, difference, row in lines:
        place = Part(f"  {path:<{wide}}  {difference:>{far}}  ", "faint")
        made.append([place] if row is None else [place, Part(f"{row.typename} → "), Part(row.becomes or "", "stays")])
    return made


def _row(count: int, before: str, after: str) -> Line:
    return [Part(f"  {count:>6,}  {before} → "), Part(after, "stays")]


def _left(each: Refused) -> list[Line]:
    return [
        [Part(f"  {each.path or 'the model itself'}", "strong"), Part(f" ({each.typename})")],
        *wrapped(each.reason, screen().width, "    ", "    "),
    ]
