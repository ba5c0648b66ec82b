"""Runs the fuzzer: ``python -m tests.fuzz --mutants 100000 --seed 1``."""

from __future__ import annotations

import argparse
import sys

from .run import LONGEST, Plan, again, fuzz, shown


def main() -> int:
    """Reads the arguments; the exit code is 1 where there was a fault."""
    words = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    words.add_argument("--mutants", type=int, default=1000, help="how many")
    words.add_argument("--seed", type=int, default=1, help="which: mutant N of a seed is always the same")
    words.add_argument("--first", type=int, default=0, help="the number to begin at: goes on where a run stopped")
    words.add_argument("--workers", type=int, default=2, help="processes")
    words.add_argument("--form", help="only this form: t7, zip, stream, pickle, tar, safetensors or index")
    words.add_argument("--recipe", help="try only the mutant of this line")
    words.add_argument("--corpus", action="store_true", help="first the mutants of corpus.jsonl")
    given = words.parse_args()
    if given.recipe is not None:
        return shown(given.recipe)
    wrong = again() if given.corpus else 0
    return wrong or fuzz(Plan(given.seed, given.first, given.mutants, given.workers, LONGEST, given.form))


if __name__ == "__main__":
    sys.exit(main())
