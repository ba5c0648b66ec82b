"""Damaged files are answered or refused in a sentence, whatever is done with them: the worst so far, and some new ones.

``make fuzz`` runs many more. `corpus.jsonl` has a recipe a line, each of a mutant that once ended otherwise: in an
error of Python, NumPy or PyTorch, in memory or time without end, or in a model that verified and was another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import clearstate as cs

from .mutants import Mutant, mutant, of_recipe
from .run import fault_of
from .seeds import MAKERS, NAMES, WEIGHTS, seed_of

REPO = Path(__file__).parents[2]
CORPUS = Path(__file__).with_name("corpus.jsonl").read_text().splitlines()

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited by what Linux tells")


def test_the_worst_mutants_and_new_ones_are_answered_or_refused_in_a_sentence() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPO / "src"), str(REPO)))}
    command = [sys.executable, "-m", "tests.fuzz", "--corpus", "--mutants", "500", "--seed", "2026", "--workers", "1"]
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert f"{len(CORPUS)} recipes, 0 kinds of fault" in done.stdout
    assert "500 mutants of seed 2026 from 0 on: 0 kinds of fault" in done.stdout


def test_a_mutant_is_the_same_again_and_its_recipe_says_all() -> None:
    assert set(NAMES) == set(WEIGHTS)
    for number in range(40):
        made = mutant(5, number)
        assert made == mutant(5, number)
        assert of_recipe(made.recipe()).files() == made.files()


@pytest.mark.parametrize("form", WEIGHTS)
def test_a_seed_itself_shows_no_fault(form: str, tmp_path: Path) -> None:
    name = NAMES[form][0]
    assert name in MAKERS
    seed = seed_of(name)
    assert seed.joined(seed.parts) == seed.files
    for turn in range(2):
        assert fault_of(Mutant(name, ()), str(turn), tmp_path, memory=None) is None


def test_a_fault_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watchman is awake: an error of Python's in a verb, and one that reads as ours and is not, are told."""

    def broken(*_: object, **__: object) -> None:
        int("x")

    monkeypatch.setattr(cs, "inspect", broken)
    fault = fault_of(Mutant("pickle:names, protocol 2", ()), "1", tmp_path, memory=None)
    assert fault is not None
    assert "ValueError" in fault.kind
