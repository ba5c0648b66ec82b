"""How long clearing a large file takes, from reading to the renamed and read back result, against copying it."""

from __future__ import annotations

import shutil
from pathlib import Path

from measure import Rows, in_turn, process, ratio

import clearstate as cs


def clearing(large: Path, rounds: int) -> Rows:
    cleared, copied = large.with_name("cleared.t7"), large.with_name("copied.t7")
    everything: list[cs.Role] = [role for role in cs.Role if role is not cs.Role.SLACK]

    def fresh() -> None:
        for path in (cleared, copied):
            path.unlink(missing_ok=True)

    def copy(path: Path) -> None:
        copied.unlink(missing_ok=True)
        process("cp", str(path), str(copied))()
        process("sync", str(copied))()

    def clear(keep: list[cs.Role]) -> None:
        cleared.unlink(missing_ok=True)
        cs.clear_file(large, cleared, keep=keep)

    ours, other = in_turn(rounds, lambda: clear(everything), lambda: copy(large))
    assert cleared.stat().st_size == large.stat().st_size
    yield ratio(f"clearing {_size(large)}, all kept", ours, other, "cp and sync of it", 2)

    kept = large.with_name("kept.t7")
    clear([])
    shutil.copyfile(cleared, kept)
    share = kept.stat().st_size / large.stat().st_size
    few, other = in_turn(2 * rounds + 1, lambda: clear([]), lambda: copy(kept))
    what = f"clearing {_size(large)}, {1 - share:.0%} dropped"
    yield ratio(what, few, other, "cp and sync of the rest", None)
    yield ratio("  in proportion to what is kept", few, ours * share, f"{share:.0%} of all kept", 2)
    fresh()
    kept.unlink()


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.0f} MB"
