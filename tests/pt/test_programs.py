"""Checkpoints of training programs: cleared, each loads with its program's own call, with the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs

from .programs import PROGRAMS, Program, training
from .samples import sharing

X = torch.linspace(-1, 1, 15).view(5, 3)


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    return PROGRAMS[request.param]


def read(path: Path) -> Any:
    return torch.load(path, weights_only=False)


def equal(a: Any, b: Any, path: str = "") -> None:
    """Fails where what is kept differs in a type or an element's bits; unseen bytes of storages may."""
    assert type(a) is type(b), path
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), path
        assert torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8)), path
    elif isinstance(a, dict):
        for key in b:
            equal(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list | tuple):
        for i, (one, other) in enumerate(zip(a, b, strict=True)):
            equal(one, other, f"{path}[{i}]")
    elif isinstance(a, torch.nn.Module):
        equal(a.state_dict(), b.state_dict(), path)


def test_the_program_loads_its_cleared_checkpoint_and_the_model_gives_the_same(
    program: Program, tmp_path: Path
) -> None:
    old, new = tmp_path / "old.pt", tmp_path / "new.pt"
    torch.save(program.save(training()), old)
    report = cs.clear_file(old, new)
    before, after = read(old), read(new)
    if isinstance(before, dict):
        for path in program.gone.split():
            *above, key = path.split(".")
            one, other = before, after
            for step in above:
                one, other = one[step], other[step]
            del one[key]
            assert key not in other, path
        assert before.keys() == after.keys()
    equal(before, after)
    assert sharing(before) == sharing(after), "what shared memory does so afterwards"
    assert report.freed > 0
    assert new.stat().st_size == report.after.size
    assert cs.verify(old, new)
    given = program.load(read(old)).eval()(X)
    assert torch.equal(program.load(after).eval()(X), given)
    assert cs.clear_file(new, dry_run=True).freed <= 64, "nothing is left to clear"


def zero_states(t: Any) -> Any:
    """``zero_pp_rank_0_mp_rank_00_optim_states.pt`` of ``stage_1_and_2.py`` in DeepSpeed: the weights, flat."""
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in t.net.parameters()])
    moments = {0: {"step": torch.tensor(2.0), "exp_avg": flat * 2, "exp_avg_sq": flat * 3}}
    return {
        "optimizer_state_dict": {
            "loss_scaler": None,
            "dynamic_loss_scale": False,
            "zero_stage": 2,
            "partition_count": [1],
            "single_partition_of_fp32_groups": [flat],
            "base_optimizer_state": {"state": moments, "param_groups": [{"lr": 0.1, "params": [0]}]},
            "ds_version": "0.19.8",
        },
        "ds_config": {},
        "ds_version": "0.19.8",
    }


def test_zeros_optimizer_files_keep_the_weights_and_lose_the_moments(tmp_path: Path) -> None:
    old, new = tmp_path / "old.pt", tmp_path / "new.pt"
    torch.save(zero_states(training()), old)
    cs.clear_file(old, new)
    before, after = read(old)["optimizer_state_dict"], read(new)["optimizer_state_dict"]
    assert before.keys() - after.keys() == {"base_optimizer_state"}
    assert torch.equal(before["single_partition_of_fp32_groups"][0], after["single_partition_of_fp32_groups"][0])
    assert new.stat().st_size < old.stat().st_size * 0.6 + 1000


def test_of_ultralytics_the_averaged_copy_becomes_the_model_and_never_goes(tmp_path: Path) -> None:
    old, new = tmp_path / "last.pt", tmp_path / "new.pt"
    torch.save(PROGRAMS["Ultralytics"].save(training()), old)
    with pytest.raises(cs.ClearstateError, match="ema"):
        cs.clear_file(old, new, use="model")
    report = cs.clear_file(old, new, use="ema")
    assert "ema took the place of the model" in report.done[0]
    made = read(new)
    assert "ema" not in made
    equal(read(old)["ema"], made["model"])
    for name in ("x.safetensors", "y.pt"):
        cs.clear_file(old, tmp_path / name, use="ema", plain=name == "y.pt")
    from safetensors.torch import load_file

    assert load_file(tmp_path / "x.safetensors").keys() >= {"first.weight", "anchors"}
