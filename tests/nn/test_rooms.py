"""The rooms of `clearstate.nn` stand one above the other."""

from __future__ import annotations

from tests.test_imports import SRC, imports, module_name

ROOMS = ("declarations", "protocol", "containers", "layers", "criterions", "t7", "packs")
"""From the bottom; files of no room (``utils``, ``trainer``, the package itself) stand above."""


def floor(module: str) -> int:
    """The floor of a module of nn.

    >>> floor("clearstate.nn.protocol.tape"), floor("clearstate.nn.utils")
    (1, 7)
    """
    room = module.removeprefix("clearstate.nn.").partition(".")[0]
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def test_no_room_imports_one_above_it() -> None:
    up = [
        f"{module_name(path)}:{line} -> {name}"
        for path in sorted((SRC / "clearstate" / "nn").rglob("*.py"))
        for line, name in imports(path)
        if name.startswith("clearstate.nn.") and floor(name) > floor(module_name(path))
    ]
    assert not up


def test_the_files_of_modules_know_no_layer() -> None:
    known = {
        name
        for path in (SRC / "clearstate" / "nn" / "t7").glob("*.py")
        for _, name in imports(path)
        if name.startswith("clearstate.nn.") and 1 < floor(name) < ROOMS.index("t7")
    }
    assert not known
