"""What is recognised in the checkpoints of each program, as the table in the documentation.

``python -m tests.pt.recognised`` writes it there; `test_recognised` holds it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import schedulefree  # type: ignore[import-untyped]
import torch
import torch_ema  # type: ignore[import-untyped]
from ema_pytorch import EMA  # type: ignore[import-untyped]

import clearstate as cs
from clearstate import Role
from clearstate.formats.pt.copies.evaluating import evaluated
from clearstate.formats.pt.copies.finding import beside, copies, path_of
from clearstate.formats.pt.layout.models import main_model
from clearstate.verbs.inspect import open_path

from .programs import PROGRAMS, Net, training
from .test_averaging import fitted

PAGE = Path(__file__).parents[2] / "docs" / "checkpoints.md"
BEGIN, END = "<!-- what is recognised: made by tests/pt/recognised.py -->", "<!-- end -->"
HEAD = "| written by | model | average, or other copy | optimizer | training |\n| --- | --- | --- | --- | --- |"


def saved(folder: Path) -> Iterator[tuple[str, Path]]:
    """Checkpoints as each program writes them."""
    from pytorch_lightning import callbacks

    for kind, callback in (
        ("StochasticWeightAveraging", callbacks.StochasticWeightAveraging(1e-3, swa_epoch_start=1)),
        ("EMAWeightAveraging", callbacks.EMAWeightAveraging()),
    ):
        yield f"Lightning, `{kind}`", fitted(callback, folder / kind)[1]
    made: dict[str, Any] = {name: program.save(training()) for name, program in PROGRAMS.items()}
    net = Net()
    made["`torch_ema`"] = {
        "model": net.state_dict(),
        "ema": torch_ema.ExponentialMovingAverage(net.parameters(), decay=0.9).state_dict(),
    }
    made["`ema_pytorch`"] = {"model": net.state_dict(), "ema": EMA(net).state_dict()}
    made["`schedulefree`"] = _schedule_free(net)
    for number, (name, value) in enumerate(made.items()):
        torch.save(value, folder / f"{number}.pt")
        yield name, folder / f"{number}.pt"


def _schedule_free(net: torch.nn.Module) -> Any:
    optimizer = schedulefree.AdamWScheduleFree(net.parameters())
    optimizer.train()
    net(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return {"model": net.state_dict(), "optimizer": optimizer.state_dict()}


def row(name: str, path: Path) -> str:
    """A line of the table."""
    root: Any = open_path(str(path)).root
    held = [(f"`{copy.path}`", copy.holds) for copy in copies(root)]
    weights = [(f"`{one.path}`", f"`{one.field}`, to evaluate") for one in evaluated(root)]
    copied = ", ".join(f"{path} ({what})" for path, what in held + weights)
    gone = cs.clear_file(path, dry_run=True).dropped
    roles = {role: ", ".join(f"`{_short(one.path)}`" for one in gone if one.role is role) for role in Role}
    found = copies(root)
    keys = main_model(root)[0]
    where = f"`{path_of(keys)}`" if keys else "all of it" if not found or beside(root, found) else "none"
    where += " (average)" * any(copy.holds == "trained" for copy in found)
    return f"| {name} | {where} | {copied} | {roles[Role.OPTIMIZER]} | {roles[Role.TRAINING]} |"


def _short(path: str) -> str:
    """A path without the arguments that Lightning writes into the keys of callbacks."""
    return re.sub(r"\{.*\}", "", path)


def table() -> str:
    """The table, from files written now."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(name, path) for name, path in saved(Path(folder))]
    return "\n".join([HEAD, *rows])


def updated(page: str) -> str:
    """A page with the table in its place."""
    before, _, rest = page.partition(f"{BEGIN}\n")
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), "utf-8")
