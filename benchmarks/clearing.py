"""How long clearing a large file takes, from reading to the renamed and read back result, against copying it."""

from __future__ import annotations

import shutil
from pathlib import Path

from disk import Made, made_in_turn
from measure import Rows, ratio

import clearstate as cs


def clearing(large: Path, rounds: int) -> Rows:
    cleared, copied, kept = (large.with_name(f"{name}.t7") for name in ("cleared", "copied", "kept"))
    everything: list[cs.Role] = [role for role in cs.Role if role is not cs.Role.SLACK]

    def clear(keep: list[cs.Role]) -> None:
        cs.clear_file(large, cleared, keep=keep)

    clear(everything)
    assert cleared.stat().st_size == large.stat().st_size
    ours, other = made_in_turn(rounds, Made(cleared, lambda: clear(everything)), Made.copy(copied, large))
    yield ratio(f"clearing {_size(large)}, all kept", ours, other, "cp and sync of it", 2)

    clear([])
    shutil.copyfile(cleared, kept)
    share = kept.stat().st_size / large.stat().st_size
    few, other = made_in_turn(2 * rounds + 1, Made(cleared, lambda: clear([])), Made.copy(copied, kept))
    what = f"clearing {_size(large)}, {1 - share:.0%} dropped"
    yield ratio(what, few, other, "cp and sync of the rest", None)
    yield ratio("  in proportion to what is kept", few, ours * share, f"{share:.0%} of all kept", 2)
    kept.unlink()


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.0f} MB"
