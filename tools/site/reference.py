"""The pages of the reference: a heading for each public name, which mkdocstrings fills from its docstring.

    python tools/site/reference.py    # writes docs/api anew

Names come from the modules themselves, so that a new layer needs no word here; groups and their order are said below.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from clearstate.nn.packs import PACKS

FOLDER = Path(__file__).parents[2] / "docs" / "api"

PUBLIC = {
    "Clear, look, compare": "clear_state cleared clear_file inspect verify",
    "Live Torch7 models": "load save load_parameters",
    "Any PyTorch module": "observe register find_leaks unwrap",
    "Convert": "convert convert_file coverage to_stock write_definition to_onnx",
    "What they return": "Inventory Entry Role Cleared Verdict Baseline Leaks Leak Converted Coverage",
    "What they raise": "ClearstateError FormatError WrongFormat ConversionError CannotConvert NothingLeft UnknownClass",
}
"""The names of the package itself; those that are in no group stand at the end."""

FAMILIES = {
    "Modules": "protocol.module protocol.stateful",
    "Containers": "containers.sequential containers.tables layers.identity",
    "Linear layers": "layers.linear layers.sparse layers.lookup layers.distance",
    "Convolution": "layers.windows.convolution layers.windows.full_convolution layers.windows.map_convolution",
    "Pooling": (
        "layers.windows.pooling layers.windows.average_pooling layers.windows.adaptive_pooling "
        "layers.windows.fractional_pooling layers.windows.unpooling"
    ),
    "Resampling and padding": "layers.windows.resampling layers.windows.padding",
    "Normalization": "layers.normalization",
    "Activations": "layers.activation layers.noise",
    "Elements and reductions": "layers.pointwise layers.reduction",
    "Shape": "layers.shape",
    "Tables": "layers.tables layers.table_arithmetic",
    "Composed layers and decorators": "layers.composed containers.decorators layers.conversion layers.observing",
    "Criterions": "criterions.elements criterions.classification criterions.margin criterions.modules",
    "Graphs": "containers.graph protocol.nodes layers.nngraph",
    "Files and training": "t7.files t7.registry t7.opaque trainer",
}
"""The rooms of the layers in `clearstate.nn`."""

WHOLE = frozenset("Module Criterion Container Sequential Node gModule Kmeans StochasticGradient".split())
"""Layers whose methods are told, too; those of others are the same."""

INTRODUCTIONS = {
    "testing": "Checks for people who write layers: [how they are used](../layers.md#check-it).",
    "catalog": "The catalog of Torch7 classes, and how "
    "[a class of your own](../layers.md#a-class-of-torch7-that-clearstate-does-not-know) is added.",
    "backends": "Which classes of nn, cudnn.torch and inn mean the same, and how a pair of your own is declared: "
    "[backends](../backends.md).",
    "export": "The way out of Torch7: [how it is used](../export.md).",
}

FORMATS = {
    "clearstate.formats.t7": "Torch7 files",
    "clearstate.formats.pt": "PyTorch checkpoints",
    "clearstate.formats.sniff": "What is this file?",
}
SNIFF = "sniff sniff_bytes refuse Kind"


def public(module: ModuleType) -> list[str]:
    """The public names of a module: those it lists or, where it lists none, the functions it defines."""
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        return [name for name in listed if not inspect.ismodule(getattr(module, name))]
    return [
        n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__ and n[0] != "_"
    ]


def pages() -> dict[str, str]:
    """The text of each page by its name."""
    made = {"index": _index(), "nn": _nn(), "packs": _packs(), "formats": _formats()}
    for name, text in INTRODUCTIONS.items():
        module = f"clearstate.{name}"
        made[name] = _page(module, text, _entries(module, public(importlib.import_module(module))))
    return made


def _index() -> str:
    module = importlib.import_module("clearstate")
    text = (
        "The public names: `import clearstate as cs`. Importing it imports neither torch nor a format; each name "
        "brings what it needs."
    )
    grouped = {title: names.split() for title, names in PUBLIC.items()}
    rest = [name for name in public(module) if not any(name in names for names in grouped.values())]
    return _page("clearstate", text, _groups("clearstate", {**grouped, "Besides": rest}))


def _nn() -> str:
    module = importlib.import_module("clearstate.nn")
    title_of = {room: title for title, rooms in FAMILIES.items() for room in rooms.split()}
    grouped: dict[str, list[str]] = {title: [] for title in FAMILIES}
    for name in public(module):
        room = getattr(module, name).__module__.removeprefix("clearstate.nn.")
        grouped.setdefault(title_of.get(room, room), []).append(name)
    text = (
        "Torch7's `nn` and nngraph, each class under its Torch7 name: [how they are used](../nn.md). Arguments come in "
        "Torch7's order; indices and dimensions count from 0."
    )
    utils = public(importlib.import_module("clearstate.nn.utils"))
    lines = [*_groups("clearstate.nn", grouped, brief=True), "## nn.utils", *_entries("clearstate.nn.utils", utils)]
    return _page("clearstate.nn", text, lines)


def _packs() -> str:
    text = "Classes of other Torch7 packages that published models use. A file that names one loads without an import."
    lines = []
    for pack, classes in PACKS.items():
        module = f"clearstate.nn.packs.{pack}"
        summary = (importlib.import_module(module).__doc__ or "").strip().splitlines()[0]
        lines += [f"## {pack}", f"`import {module}`. {summary}"]
        lines += _entries(module, sorted(name.rpartition(".")[2] for name in classes.split()), brief=True)
    return _page("Packs of other packages", text, lines)


def _formats() -> str:
    lines = []
    for module, title in FORMATS.items():
        names = SNIFF.split() if module.endswith("sniff") else public(importlib.import_module(module))
        lines += [f"## {title}: {module}", *_entries(module, names)]
    return _page("clearstate.formats", "Files as graphs of plain objects. NumPy only.", lines)


def _groups(module: str, grouped: dict[str, list[str]], *, brief: bool = False) -> Iterator[str]:
    for title, names in grouped.items():
        if names:
            yield f"## {title}"
            yield from _entries(module, names, brief=brief)


def _entries(module: str, names: Iterable[str], *, brief: bool = False) -> Iterator[str]:
    for name in names:
        shown = "" if not brief or name in WHOLE else "\n    options:\n      members: false"
        yield f"::: {module}.{name}{shown}"


def _page(title: str, text: str, lines: Iterable[str]) -> str:
    return "\n\n".join([f"# {title}", text, *lines]) + "\n"


def main() -> None:
    for name, text in pages().items():
        (FOLDER / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
