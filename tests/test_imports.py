"""Imports point downward only, and a name costs no more than it has to."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recordings import REPO

SRC = REPO / "src"
PACKAGE = "clearstate"

FLOORS = (
    "roles errors lazily wording",
    "report",
    "inventory",
    "transport",
    "formats",  # what all formats share
    "formats.t7.codec",
    "formats.sniff formats.readers",
    "formats.t7.meaning formats.t7.catalog",
    "formats.t7.backends",
    "formats.t7",
    "formats.pt.pickle",
    "formats.pt.container formats.safetensors",
    "formats.pt.layout",
    "formats.pt.copies",
    "formats.pt.meaning",
    "formats.pt",
    "nn live",
    "export",
    "verbs",
    "",  # the public names: the package itself, and every module of it that is named nowhere here
    "cli __main__",
)
"""The floors of the house, from the ground up: the rooms on each. A room within another is named by itself."""

FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms.split(" ")}


def floor(module: str) -> int:
    """The floor that a module of clearstate is on: that of the innermost room around it.

    >>> floor("clearstate.formats.t7.codec.reader") < floor("clearstate.formats.t7.door") < floor("clearstate")
    True
    """
    room = module.partition(".")[2]
    while room and room not in FLOOR_OF:
        room = room.rpartition(".")[0]
    return FLOOR_OF[room]


FORMATS, LIVE, PUBLIC, COMMANDS = (FLOOR_OF[room] for room in ("formats", "nn", "", "cli"))


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    path = SRC.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of every module that a file imports, lazily or not, by statement or by function.

    ``from a import b`` is an import of ``a.b`` where that is a module of ours, else of ``a``.
    """
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                below = f"{source}.{alias.name}"
                yield node.lineno, below if is_module(below) else source
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__", "find_spec") and isinstance(node.args[0].value, str):
                yield node.lineno, node.args[0].value


MODULES = sorted(SRC.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_downward_only(path: Path) -> None:
    own = floor(module_name(path))
    upward = [
        f"{path.relative_to(REPO)}:{line} imports {name}"
        for line, name in imports(path)
        if name.split(".")[0] == PACKAGE and floor(name) > own
    ]
    assert not upward


def test_no_module_imports_itself_by_way_of_others() -> None:
    """No circle, not even of imports inside functions or for types alone."""
    names = {module_name(path) for path in MODULES}
    arrows = {module_name(path): {name for _, name in imports(path) if name in names} for path in MODULES}
    arrows = {name: below - {name} for name, below in arrows.items()}
    while ends := {name for name, below in arrows.items() if not below}:
        arrows = {name: below - ends for name, below in arrows.items() if name not in ends}
    above = {name for name in arrows if any(name in below for below in arrows.values())}
    assert not above, "these are on a circle, or between two"


@pytest.mark.parametrize("path", [path for path in MODULES if floor(module_name(path)) < LIVE], ids=module_name)
def test_files_are_read_and_cleared_without_torch_not_even_lazily(path: Path) -> None:
    assert not [(line, name) for line, name in imports(path) if name.split(".")[0] in ("torch", "torchvision")]


@pytest.mark.parametrize(
    "path", [path for path in MODULES if floor(module_name(path)) < FLOOR_OF["transport"]], ids=module_name
)
def test_roles_errors_inventories_and_reports_need_nothing_but_python(path: Path) -> None:
    outside = {name.split(".")[0] for _, name in imports(path)} - set(sys.stdlib_module_names) - {PACKAGE}
    assert not outside


@pytest.mark.parametrize("path", [path for path in MODULES if floor(module_name(path)) == COMMANDS], ids=module_name)
def test_the_command_line_only_talks_to_the_public_names(path: Path) -> None:
    rooms = {"formats", "live", "nn", "export"}
    inside = [(line, name) for line, name in imports(path) if name.startswith(f"{PACKAGE}.")]
    assert not [(line, name) for line, name in inside if name.split(".")[1] in rooms]


@pytest.mark.parametrize("path", [path for path in MODULES if floor(module_name(path)) < COMMANDS], ids=module_name)
def test_only_the_command_line_knows_the_terminal(path: Path) -> None:
    assert not [(line, name) for line, name in imports(path) if name.split(".")[0] in ("typer", "click", "rich")]


def loaded_by(code: str) -> set[str]:
    """Modules that a fresh interpreter has loaded after running ``code``."""
    show = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", show], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_importing_clearstate_loads_neither_torch_nor_numpy_nor_a_format() -> None:
    loaded = loaded_by("import clearstate")
    assert f"{PACKAGE}" in loaded
    assert not {"torch", "numpy", "typer", "rich"} & loaded
    assert not [name for name in loaded if name.startswith(f"{PACKAGE}.") and FORMATS <= floor(name) != PUBLIC]


def test_reading_files_loads_no_torch_and_no_terminal_library() -> None:
    assert not {"torch", "typer", "rich"} & loaded_by("from clearstate.formats import t7, sniff")


def test_starting_the_command_loads_neither_torch_nor_numpy() -> None:
    loaded = loaded_by("import clearstate.cli")
    assert not {"torch", "numpy"} & loaded
