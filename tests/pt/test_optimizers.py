"""An optimizer is one wherever it stands: in a list, in a tuple, pickled whole; so are schedulers and generators."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearstate as cs
from clearstate import Role
from tests.cli.conftest import Command

pytestmark = pytest.mark.filterwarnings("ignore")


def trained() -> tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    return net, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 1)


def roles(value: Any, folder: Path) -> dict[str, Role]:
    torch.save(value, folder / "old.pt")
    entries = [entry for entry in cs.inspect(folder / "old.pt").entries if entry.shape is not None]
    found = {entry.path: entry.role for entry in entries}
    assert len(found) == len(entries), "each piece by a path of its own"
    return found


def cleared(value: Any, folder: Path, **how: Any) -> Any:
    torch.save(value, folder / "old.pt")
    cs.clear_file(folder / "old.pt", folder / "new.pt", **how)
    assert cs.verify(folder / "old.pt", folder / "new.pt")
    return torch.load(folder / "new.pt", weights_only=False)


def test_lists_and_tuples_of_optimizers_and_schedulers_go(tmp_path: Path) -> None:
    net, optimizer, scheduler = trained()
    state = optimizer.state_dict()
    value = {
        "G": net.state_dict(),
        "D": trained()[0].state_dict(),
        "optimizers": [state, trained()[1].state_dict()],
        "pair": (state, None),
        "schedulers": [scheduler.state_dict()],
        "epoch": 3,
    }
    found = roles(value, tmp_path)
    assert {role for path, role in found.items() if path.startswith(("optimizers", "pair"))} == {Role.OPTIMIZER}
    assert {role for path, role in found.items() if path.startswith(("G", "D"))} == {Role.PARAMETER}
    assert list(cleared(value, tmp_path)) == ["G", "D", "epoch"]
    assert list(cleared(value, tmp_path, keep=["optimizer"])) == ["G", "D", "optimizers", "pair", "epoch"]
    with pytest.raises(cs.NothingLeft, match="it is optimizer state and nothing else"):
        cleared([state, state], tmp_path)


def test_an_optimizer_in_a_list_leaves_an_empty_place_so_that_the_list_keeps_its_length(tmp_path: Path) -> None:
    net, optimizer, scheduler = trained()
    state = optimizer.state_dict()
    made = cleared({"all": [net.state_dict(), state], "none": [], "numbers": [1, 2]}, tmp_path)
    assert made["all"][1] is None
    assert made["all"][0].keys() == net.state_dict().keys()
    assert [made["none"], made["numbers"]] == [[], [1, 2]]
    for whole in (list, tuple):
        made = cleared(whole([net.state_dict(), state]), tmp_path)
        assert type(made) is whole
        assert made[1] is None
        model, _ = made
        net.load_state_dict(model)
    made = cleared((3, [(net.state_dict(), (state, scheduler.state_dict(), "adam"))]), tmp_path)
    assert made[1][0][1] == (None, None, "adam")


def test_the_model_of_a_list_can_become_safetensors(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    net, optimizer, _ = trained()
    torch.save([net.state_dict(), optimizer.state_dict(), 7], tmp_path / "old.pt")
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.safetensors")
    net.load_state_dict(load_file(tmp_path / "new.safetensors"))


def test_a_pickled_optimizer_is_optimizer_state_each_piece_by_a_path_of_its_own(command: Command, here: Path) -> None:
    _, optimizer, _ = trained()
    found = roles(optimizer, here)
    assert set(found.values()) == {Role.OPTIMIZER}
    assert {f"<state>.state[#{i}].exp_avg" for i in range(2)} <= found.keys()
    assert "No model is in this file" in command("inspect", "old.pt").out
    assert "optimizer state and nothing else" in command("clear", "old.pt", "-o", "new.pt").refused()


def test_a_pickled_optimizer_goes_where_its_weights_are_those_of_the_model(tmp_path: Path) -> None:
    net, optimizer, _ = trained()
    assert list(cleared({"net": net, "optimizer": optimizer}, tmp_path)) == ["net"]
    assert list(cleared({"net": net.state_dict(), "optimizer": optimizer}, tmp_path)) == ["net"]


def test_a_pickled_optimizer_that_alone_has_the_weights_stays(tmp_path: Path) -> None:
    net, optimizer, _ = trained()
    made = cleared({"epoch": 3, "optimizer": optimizer}, tmp_path)
    weight = made["optimizer"].param_groups[0]["params"][0]
    assert torch.equal(weight, next(net.parameters()))
    assert len(made["optimizer"].state) == 2


def test_a_pickled_scheduler_keeps_the_optimizer_that_it_works_on(tmp_path: Path) -> None:
    net, _, scheduler = trained()
    made = cleared({"net": net, "scheduler": scheduler}, tmp_path)
    assert made["scheduler"].optimizer.param_groups[0]["params"][0] is next(made["net"].parameters())


def test_random_generators_are_training_state_under_short_names_too(tmp_path: Path) -> None:
    net = trained()[0]
    rng = torch.get_rng_state()
    generators = {
        "rng": {"torch": rng, "numpy": np.random.get_state(), "python": random.getstate()},
        "cuda_rng": [rng, rng],
        "python_rng": random.getstate(),
        "np_rng": np.random.get_state(),
    }
    assert list(cleared({"model": net.state_dict(), **generators}, tmp_path)) == ["model"]
    others = {"rng": {"weight": torch.ones(3)}, "random": 7, "cuda_rng": "off", "rngs": []}
    assert list(cleared({"model": net.state_dict(), **others}, tmp_path)) == ["model", *others]
