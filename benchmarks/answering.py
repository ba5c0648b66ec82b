"""How soon the command answers, against a Python that only imports NumPy."""

from __future__ import annotations

from pathlib import Path

from measure import CLEARSTATE, PYTHON, Rows, in_turn, process, ratio

EXAMPLE = Path(__file__).parent.parent / "examples" / "digits.t7"


def answering(rounds: int) -> Rows:
    commands = [
        process(PYTHON, "-c", "import numpy"),
        process(CLEARSTATE, "--help"),
        process(CLEARSTATE, "inspect", str(EXAMPLE)),
    ]
    in_turn(1, *commands)
    numpy, help_, inspect = in_turn(rounds, *commands)
    yield ratio("clearstate --help", help_, numpy, "import numpy", 2.5)
    yield ratio(f"clearstate inspect, {EXAMPLE.stat().st_size / 1e6:.1f} MB", inspect, numpy, "import numpy", 2.5)
