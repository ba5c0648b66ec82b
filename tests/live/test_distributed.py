"""Sharded and replicated models clear where they are, on every rank, and their checkpoints load on others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from . import ranks

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks and then four have done all that `ranks` says, and left there what they found."""
    folder = tmp_path_factory.mktemp("ranks")
    for world in (2, 4):
        command = [sys.executable, "-m", "tests.live.ranks", str(world), str(folder)]
        done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=120)
        (folder / f"said-by-{world}.txt").write_text(done.stdout + done.stderr)
    return folder


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize("check", ranks.CHECKS)
def test_modules_clear_on_every_rank_without_the_others_and_work_goes_on(folder: Path, check: str, world: int) -> None:
    wrong = []
    for rank in range(world):
        path = folder / f"rank-{rank}-of-{world}.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        if found.get(check, "not reached"):
            wrong.append(f"rank {rank}: {found.get(check, 'not reached')}")
    assert not wrong, "\n".join([*wrong, (folder / f"said-by-{world}.txt").read_text()[-2000:]])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_what_four_ranks_saved_loads_without_ranks_and_has_nothing_of_the_work(folder: Path) -> None:
    model: Any = ranks.net()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    state = {"model": model.state_dict()}
    ranks.dcp.load(state, checkpoint_id=folder / "model-of-4", no_dist=True)
    model.load_state_dict(state["model"])
    assert torch.equal(model(torch.ones(1, 6)), torch.load(folder / "answer-of-4.pt"))
    stored = ranks.dcp.FileSystemReader(folder / "model-of-4").read_metadata().state_dict_metadata
    assert sorted(stored) == sorted(f"model.{name}" for name in ranks.net().state_dict())
