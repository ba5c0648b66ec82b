"""Clearing a large checkpoint of its optimizer, against copying what is kept, and against what people write themselves.

That is ``torch.load``, keeping the model's part, and ``torch.save``; and ``safetensors.torch.save_file`` of it. Both
have the whole checkpoint, or the whole model, in memory; what clearing takes is measured beside it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from disk import Made, made_in_turn
from measure import CLEARSTATE, PYTHON, Row, Rows, in_turn, printed, process, ratio

_WRITE = """
import sys, torch
count = int(sys.argv[2]) // 12 // 100
model = {f"layers.{i}.weight": torch.randn(count) for i in range(100)}
parameters = {i: {"step": torch.tensor(1.0), "exp_avg": torch.randn(count), "exp_avg_sq": torch.rand(count)}
              for i in range(100)}
optimizer = {"state": parameters, "param_groups": [{"lr": 0.1, "params": list(range(100))}]}
torch.save({"model": model, "optimizer": optimizer, "epoch": 3}, sys.argv[1])
"""
_STRIP = """
import sys, torch
from safetensors.torch import save_file
file = torch.load(sys.argv[1], weights_only=True)
file.pop("optimizer")
torch.save(file, sys.argv[2]) if sys.argv[2].endswith(".pt") else save_file(file["model"], sys.argv[2])
"""
_WRITE_AVERAGED = """
import sys, torch
count = int(sys.argv[2]) // 16 // 100
model, ema = ({f"layers.{i}.weight": torch.randn(count) for i in range(100)} for _ in range(2))
parameters = {i: {"exp_avg": torch.randn(count), "exp_avg_sq": torch.rand(count)} for i in range(100)}
optimizer = {"state": parameters, "param_groups": [{"lr": 0.1, "params": list(range(100))}]}
file = {"epoch": 3, "model": model, "ema": ema, "updates": 7, "optimizer": optimizer, "train_args": {}}
torch.save(file, sys.argv[1])
"""
_STRIP_OPTIMIZER = """
import sys, torch
file = torch.load(sys.argv[1], map_location="cpu", weights_only=True)
file["model"] = {name: value.half() for name, value in file["ema"].items()}
for key in "optimizer", "ema", "updates":
    file[key] = None
file["epoch"] = -1
torch.save(file, sys.argv[2])
"""
_MEMORY = """
import sys, numpy, clearstate
{work}
status = dict(line.split(":") for line in open("/proc/self/status"))
print(*(int(status[name].split()[0]) * 1024 for name in ("VmHWM", "RssFile")))
"""
_CLEAR = "clearstate.clear_file(sys.argv[1], sys.argv[2])"


def checkpoints(folder: Path, size: int, rounds: int) -> Rows:
    """The rows for a checkpoint of ``size`` bytes, two thirds of them the optimizer's."""
    large, kept = folder / "large.pt", folder / "kept.pt"
    subprocess.run([PYTHON, "-c", _WRITE, str(large), str(size)], check=True)
    text = f"{large.stat().st_size / 1e6:.0f} MB"

    numpy, inspect = in_turn(
        3 * rounds, process(PYTHON, "-c", "import numpy"), process(CLEARSTATE, "inspect", str(large))
    )
    yield ratio(f"clearstate inspect, checkpoint of {text}", inspect, numpy, "import numpy", 2.5)

    subprocess.run([CLEARSTATE, "clear", str(large), "-o", str(kept)], check=True, stdout=subprocess.DEVNULL)
    part = f"{kept.stat().st_size / 1e6:.0f} MB"
    (bare, pages), (peak, more) = (
        printed(_MEMORY.format(work=work), str(large), str(folder / "again.pt")) for work in ("", _CLEAR)
    )
    yield Row(
        f"peak memory, {text} cleared to {part}",
        f"{peak / 1e6:.0f} MB",
        f"{bare / 1e6:.0f} MB imports alone",
        (peak - bare) / 1e6,
        "MB above",
        150,
    )
    yield Row("  of it pages of the file", "", "", (more - pages) / 1e6, "MB", None)

    for ending, what in ((".pt", "torch.load and torch.save"), (".safetensors", "torch.load and save_file")):
        ours, theirs, copied = (folder / f"{name}{ending}" for name in ("ours", "theirs", "copied"))
        cleared = Made.by(ours, CLEARSTATE, "clear", str(large), "-o", str(ours))
        mine, copy = made_in_turn(3 * rounds, cleared, Made.copy(copied, kept))
        (strip,) = made_in_turn(rounds, Made.by(theirs, PYTHON, "-c", _STRIP, str(large), str(theirs)))
        yield ratio(f"clearing {text} to {part}, {ending}", mine, copy, f"cp and sync of {part}", 2)
        yield ratio("  the same", mine, strip, what, None)
    for path in (large, kept, folder / "again.pt"):
        path.unlink()
    yield from averaged(folder, size, rounds)


def averaged(folder: Path, size: int, rounds: int) -> Rows:
    """The rows for a checkpoint of ``size`` bytes with an averaged copy, which is published alone in halves.

    The peer is what Ultralytics' ``strip_optimizer`` does: load all, put the average in the model's place, halve, save.
    """
    whole, ours, theirs = folder / "averaged.pt", folder / "ours.pt", folder / "theirs.pt"
    subprocess.run([PYTHON, "-c", _WRITE_AVERAGED, str(whole), str(size)], check=True)
    mine, strip = made_in_turn(
        rounds,
        Made.by(ours, CLEARSTATE, "clear", str(whole), "-o", str(ours), "--use", "ema", "--dtype", "float16"),
        Made.by(theirs, PYTHON, "-c", _STRIP_OPTIMIZER, str(whole), str(theirs)),
    )
    what = f"the average alone, in halves, of {whole.stat().st_size / 1e6:.0f} MB"
    yield ratio(what, mine, strip, "strip as Ultralytics does it", None)
    whole.unlink()
