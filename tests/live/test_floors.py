"""Inside `clearstate.live`, imports point down: from what the verbs call to the bytecode of classes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_imports import MODULES, imports, module_name

ROOM = "clearstate.live."
FLOORS = {"bytecode": 0, "tensors": 0, "holdings": 1, "stand_in": 2, "evidence": 3}
TOP = 4
"""Of `clearing`, `inventory` and the other modules of the room itself."""


def room(module: str) -> str:
    return module.removeprefix(ROOM).split(".")[0]


@pytest.mark.parametrize("path", [p for p in MODULES if module_name(p).startswith(ROOM)], ids=module_name)
def test_no_room_of_live_imports_one_above_it_or_beside_it(path: Path) -> None:
    own = room(module_name(path))
    others = {room(name) for _, name in imports(path) if name.startswith(ROOM)} - {own}
    floor = FLOORS.get(own, TOP)
    assert not [other for other in others if FLOORS.get(other, TOP) >= floor and floor < TOP]
