"""Checkpoints that PyTorch wrote are inspected, cleared and verified, and load as before what was dropped."""

from __future__ import annotations

import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from clearstate.errors import ClearstateError
from clearstate.formats import pt
from clearstate.roles import DROPPED_BY_DEFAULT, Role

pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.tied = torch.nn.Linear(3, 4)
        self.tied.weight = self.first.weight

    def forward(self, x: Any) -> Any:
        return self.norm(self.first(x)) + self.tied(x)


def trained() -> tuple[Net, torch.optim.Optimizer]:
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    return net, optimizer


def checkpoint(layout: str) -> dict[str, Any]:
    net, optimizer = trained()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    model, state = net.state_dict(), optimizer.state_dict()
    return {
        "plain": {"model": model, "optimizer": state, "scheduler": scheduler.state_dict(), "epoch": 3},
        "any keys": {"weights": model, "opt_g": state, "rng_state": torch.get_rng_state(), "step": 7},
        "Lightning": {
            "pytorch-lightning_version": "2.4.0",
            "state_dict": model,
            "optimizer_states": [state],
            "lr_schedulers": [scheduler.state_dict()],
            "loops": {"fit_loop": {"state_dict": {}}},
            "callbacks": {"best": torch.tensor(1.0)},
            "hyper_parameters": {"lr": 0.1},
            "epoch": 3,
        },
        "timm": {
            "arch": "x",
            "version": 2,
            "state_dict": model,
            "optimizer": state,
            "state_dict_ema": model,
            "epoch": 3,
        },
        "nanoGPT": {"model": model, "optimizer": state, "model_args": {"n": 1}, "iter_num": 3, "config": {}},
    }[layout]


GONE = {
    "plain": {"optimizer", "scheduler"},
    "any keys": {"opt_g", "rng_state"},
    "Lightning": {"optimizer_states", "lr_schedulers", "loops", "callbacks"},
    "timm": {"optimizer"},
    "nanoGPT": {"optimizer"},
}


def cleared(file: pt.File) -> pt.File:
    pt.clear(file)
    return file


def written(file: pt.File, path: Path) -> Path:
    with open(path, "wb") as handle:
        pt.write_zip(file, handle)
    return path


@pytest.mark.parametrize("layout", GONE)
def test_optimizer_and_training_state_go_and_every_key_of_the_model_stays(layout: str, tmp_path: Path) -> None:
    old = checkpoint(layout)
    torch.save(old, tmp_path / "old.pt")
    file = cleared(pt.open_zip(str(tmp_path / "old.pt")))
    assert pt.not_cleared(file) == []
    new = torch.load(written(file, tmp_path / "new.pt"), weights_only=False)
    assert set(old) - set(new) == GONE[layout]
    model = next(key for key in ("model", "weights", "state_dict") if key in old)
    assert list(new[model]) == list(old[model])
    assert all(torch.equal(new[model][name], old[model][name]) for name in old[model])
    assert new[model]._metadata == old[model]._metadata
    assert new[model]["first.weight"].data_ptr() == new[model]["tied.weight"].data_ptr(), "tied tensors stay tied"
    Net().load_state_dict(new[model])
    before, after = pt.open_zip(str(tmp_path / "old.pt")), pt.open_zip(str(tmp_path / "new.pt"))
    assert pt.compare(before, after, ignoring=DROPPED_BY_DEFAULT) == []
    assert {d.role for d in pt.compare(before, after)} <= {Role.OPTIMIZER, Role.TRAINING}


def test_views_of_a_big_storage_keep_what_they_see(tmp_path: Path) -> None:
    whole = torch.arange(100_000.0)
    old = {"a": whole[10:20], "b": whole[15:25], "t": whole[1000:1006].view(2, 3).t(), "n": whole[5]}
    torch.save(old, tmp_path / "old.pt")
    file = pt.open_zip(str(tmp_path / "old.pt"))
    assert pt.inspect_file(file).by_role()[Role.SLACK] > 399_000
    new = torch.load(written(cleared(file), tmp_path / "new.pt"))
    assert all(torch.equal(new[name], old[name]) for name in old)
    assert new["b"].data_ptr() - new["a"].data_ptr() == 20, "overlapping views overlap as before"
    assert os.path.getsize(tmp_path / "new.pt") < 5_000
    assert pt.compare(pt.open_zip(str(tmp_path / "old.pt")), pt.open_zip(str(tmp_path / "new.pt"))) == []


def test_a_pickled_module_gives_its_state_dict_and_is_written_back_as_it_was(tmp_path: Path) -> None:
    net, _ = trained()
    torch.save(net, tmp_path / "net.pt")
    file = pt.open_zip(str(tmp_path / "net.pt"))
    found = pt.state_dict(file.root)
    assert list(found) == list(net.state_dict())
    assert all((found[name].numpy() == tensor.numpy()).all() for name, tensor in net.state_dict().items())
    roles = pt.inspect_file(file)
    assert {entry.path for entry in roles.select(Role.BUFFER)} >= {"norm.running_mean", "norm.running_var"}
    assert any("would import and call tests.pt.test_clear.Net" in note for note in roles.notes)
    again = torch.load(written(cleared(file), tmp_path / "new.pt"), weights_only=False)
    x = torch.randn(5, 3)
    assert torch.equal(again.eval()(x), net.eval()(x))


def test_a_changed_weight_is_named_by_its_path(tmp_path: Path) -> None:
    old = {"model": OrderedDict(w=torch.ones(3)), "epoch": 3}
    torch.save(old, tmp_path / "a.pt")
    torch.save({"model": OrderedDict(w=torch.tensor([1, 1, 1.5])), "epoch": 4}, tmp_path / "b.pt")
    a, b = (pt.open_zip(str(tmp_path / name)) for name in ("a.pt", "b.pt"))
    assert [str(d) for d in pt.compare(a, b)] == [
        "epoch: 3 in one, 4 in the other",
        "model.w: 1 of 3 elements differ, by at most 0.5",
    ]


def test_nothing_is_left_silently_of_a_file_that_is_an_optimizer(tmp_path: Path) -> None:
    torch.save(trained()[1].state_dict(), tmp_path / "optimizer.pt")
    with pytest.raises(ClearstateError, match="optimizer state and nothing else"):
        pt.clear(pt.open_zip(str(tmp_path / "optimizer.pt")))


def test_averaged_copies_are_always_named(tmp_path: Path) -> None:
    torch.save(checkpoint("timm"), tmp_path / "old.pt")
    notes = pt.inspect_file(pt.open_zip(str(tmp_path / "old.pt"))).notes
    assert (
        "state_dict_ema is an averaged copy of the model (EMA): both stay; --use ema or --use model keeps one" in notes
    )


def test_what_a_hostile_pickle_would_call_is_told_and_never_called(tmp_path: Path) -> None:
    marker = tmp_path / "marker"

    class Attack:
        def __reduce__(self) -> Any:
            return (os.system, (f"touch {marker}",))

    torch.save({"w": torch.ones(2), "x": Attack()}, tmp_path / "attack.pt")
    file = pt.open_zip(str(tmp_path / "attack.pt"))
    assert any(note.startswith("DANGEROUS: torch.load would call posix.system") for note in pt.inspect_file(file).notes)
    written(cleared(file), tmp_path / "new.pt")
    assert not marker.exists()
