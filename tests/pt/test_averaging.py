"""Averages and weights to evaluate as the libraries that make them save them: kept, told apart, and chosen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import schedulefree  # type: ignore[import-untyped]
import torch
import torch_ema  # type: ignore[import-untyped]
from ema_pytorch import EMA  # type: ignore[import-untyped]
from safetensors.torch import load_file
from torch.utils.data import DataLoader

import clearstate as cs
from clearstate import Role

from .programs import Net
from .test_programs import equal, read
from .test_trainers import Numbers

pytestmark = pytest.mark.filterwarnings("ignore")

State = dict[str, torch.Tensor]


def fitted(callback: Any, folder: Path) -> tuple[Any, Path]:
    """A Lightning module after a fit with a callback, and the checkpoint that its trainer saved."""
    import pytorch_lightning as pl

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.net(batch).sum()  # type: ignore[no-any-return]

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.1)

    torch.manual_seed(1)
    trainer = pl.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback, pl.callbacks.ModelCheckpoint(folder, save_last=True)],
    )
    trainer.fit(Model(), DataLoader(Numbers(), batch_size=5))
    return Model, folder / "last.ckpt"


def test_lightnings_swa_stays_and_can_be_chosen(tmp_path: Path) -> None:
    from pytorch_lightning.callbacks import StochasticWeightAveraging

    model, old = fitted(StochasticWeightAveraging(1e-3, swa_epoch_start=1), tmp_path)
    before = read(old)
    average = before["callbacks"]["StochasticWeightAveraging"]["average_model_state"]
    report = cs.clear_file(old, tmp_path / "new.ckpt")
    made = read(tmp_path / "new.ckpt")
    held = made["callbacks"].pop("StochasticWeightAveraging")
    equal(dict(average), dict(held.pop("average_model_state")))
    assert made["callbacks"] == {}
    assert held.keys() == {"n_averaged", "latest_update_epoch"}
    assert report.after.by_role()[Role.COPY] > 0
    path = "callbacks.StochasticWeightAveraging.average_model_state"
    assert f"{path} is an averaged copy of the model (EMA): both stay" in "\n".join(report.after.notes)
    gone = {str(dropped) for dropped in report.dropped}
    assert "callbacks.StochasticWeightAveraging.scheduler_state (schedulers)" in gone
    assert "loops (loop counters)" in gone
    with pytest.raises(cs.ClearstateError, match=f"averaged copy of the model .* {path}, .*--use ema or --use model"):
        cs.clear_file(old, tmp_path / "new.safetensors")
    for use, wanted in (("ema", average), (path, average), ("model", before["state_dict"])):
        cs.clear_file(old, tmp_path / "one.ckpt", use=use)
        one = read(tmp_path / "one.ckpt")
        assert "callbacks" not in one
        equal(dict(wanted), dict(one["state_dict"]))
        loaded = model.load_from_checkpoint(tmp_path / "one.ckpt", weights_only=False)
        equal(dict(wanted), dict(loaded.state_dict()))


@pytest.mark.parametrize("kind", ["WeightAveraging", "EMAWeightAveraging"])
def test_lightnings_weight_averaging_has_the_average_in_the_models_place(kind: str, tmp_path: Path) -> None:
    from pytorch_lightning import callbacks

    model, old = fitted(getattr(callbacks, kind)(), tmp_path)
    before = read(old)
    assert {"state_dict", "current_model_state", "averaging_state"} <= before.keys()
    report = cs.clear_file(old, tmp_path / "new.ckpt")
    made = read(tmp_path / "new.ckpt")
    for key in ("state_dict", "current_model_state", "averaging_state"):
        equal(dict(before[key]), dict(made[key]))
    assert any(note.startswith("current_model_state has the weights as training left") for note in report.after.notes)
    with pytest.raises(cs.ClearstateError, match=r"current_model_state, .*--use ema or --use model"):
        cs.clear_file(old, tmp_path / "new.safetensors")
    for use, key in (("ema", "state_dict"), ("model", "current_model_state"), ("current_model_state",) * 2):
        cs.clear_file(old, tmp_path / "one.ckpt", use=use)
        assert read(tmp_path / "one.ckpt").keys().isdisjoint(("current_model_state", "averaging_state"))
        loaded = model.load_from_checkpoint(tmp_path / "one.ckpt", weights_only=False)
        equal(dict(before[key]), dict(loaded.state_dict()))
        cs.clear_file(old, tmp_path / "one.safetensors", use=use)
        equal(dict(before[key]), load_file(tmp_path / "one.safetensors"))


def trained(
    optimizer: Callable[[Any], torch.optim.Optimizer], *, groups: bool = False, each: Callable[[], None] = lambda: None
) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 8))
    given: Any = list(net.parameters())
    if groups:
        given = [{"params": [p for p in given if p.ndim > 1]}, {"params": [p for p in given if p.ndim == 1]}]
    made = optimizer(given)
    getattr(made, "train", lambda: None)()
    for _ in range(4):
        made.zero_grad()
        net(torch.randn(16, 8)).pow(2).sum().backward()
        made.step()
        each()
    return net, made


SCHEDULE_FREE: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW": lambda given: schedulefree.AdamWScheduleFree(given, lr=0.01),
    "SGD": lambda given: schedulefree.SGDScheduleFree(given, lr=0.01),
    "RAdam": lambda given: schedulefree.RAdamScheduleFree(given, lr=0.01),
}


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("name", SCHEDULE_FREE)
def test_use_eval_gives_what_a_schedule_free_optimizers_eval_does(name: str, groups: bool, tmp_path: Path) -> None:
    net, optimizer = trained(SCHEDULE_FREE[name], groups=groups)
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "old.pt")
    report = cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt")
    assert any("saved in train mode and are not those to evaluate" in said for said in report.done)
    equal(dict(net.state_dict()), dict(read(tmp_path / "new.pt")["model"]))
    for target in ("eval.pt", "eval.safetensors"):
        cs.clear_file(tmp_path / "old.pt", tmp_path / target, use="eval")
    optimizer.eval()  # type: ignore[attr-defined]
    wanted = net.state_dict()
    torch.testing.assert_close(dict(read(tmp_path / "eval.pt")["model"]), dict(wanted), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(load_file(tmp_path / "eval.safetensors"), dict(wanted), rtol=1e-6, atol=1e-7)
    torch.save({"model": wanted, "optimizer": optimizer.state_dict()}, tmp_path / "old.pt")
    with pytest.raises(cs.ClearstateError, match="saved in eval mode: they are those to evaluate already"):
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", use="eval")
    assert any("saved in eval mode" in note for note in cs.inspect(tmp_path / "old.pt").notes)


def test_polyak_averages_of_asgd_are_told_before_they_go_and_can_be_taken(tmp_path: Path) -> None:
    net, optimizer = trained(lambda given: torch.optim.ASGD(given, lr=0.01, t0=1))
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "old.pt")
    report = cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt")
    assert any("Polyak averages of the weights are in optimizer (ax" in said for said in report.done)
    cs.clear_file(tmp_path / "old.pt", tmp_path / "eval.pt", use="eval")
    made = read(tmp_path / "eval.pt")["model"]
    for name, parameter in net.named_parameters():
        assert torch.equal(made[name], optimizer.state[parameter]["ax"])
        assert not torch.equal(made[name], parameter)
    assert torch.equal(made["1.running_mean"], net.state_dict()["1.running_mean"])


@pytest.mark.parametrize("form", ["timm", "torch_optimizer"])
def test_slow_weights_of_lookahead_are_told_before_they_go_and_can_be_taken(form: str, tmp_path: Path) -> None:
    """timm's ``Lookahead`` puts them beside Adam's moments; torch_optimizer's has two states."""
    net, optimizer = trained(torch.optim.Adam)
    state = optimizer.state_dict()
    slow = {i: p.detach() + 0.01 * (i + 1) for i, p in enumerate(net.parameters())}
    if form == "timm":
        for i, tensor in slow.items():
            state["state"][i]["lookahead_slow_buff"] = tensor
    else:
        inner = {i: {"slow_param": tensor} for i, tensor in slow.items()}
        state = {"fast_state": state["state"], "slow_state": inner, "param_groups": state["param_groups"]}
    torch.save({"model": net.state_dict(), "opt": state}, tmp_path / "old.pt")
    report = cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt")
    assert any("the slow weights of Lookahead are in opt" in said for said in report.done)
    assert set(read(tmp_path / "new.pt")) == {"model"}
    cs.clear_file(tmp_path / "old.pt", tmp_path / "eval.pt", use="eval")
    made = read(tmp_path / "eval.pt")["model"]
    assert all(torch.equal(made[name], slow[i]) for i, (name, _) in enumerate(net.named_parameters()))


def test_eval_without_such_an_optimizer_is_refused(tmp_path: Path) -> None:
    net, optimizer = trained(torch.optim.AdamW)
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "old.pt")
    with pytest.raises(cs.ClearstateError, match="no optimizer in this file holds other weights to evaluate"):
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", use="eval")


def test_groups_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    optimizer = torch.optim.ASGD([{"params": net[1].parameters()}, {"params": net[0].parameters()}])
    net(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    torch.save({"model": net.state_dict(), "optimizer": state}, tmp_path / "old.pt")
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", use="eval")
    assert torch.equal(read(tmp_path / "new.pt")["model"]["1.weight"], state["state"][0]["ax"]), "its numbers tell"
    for i in range(4):
        state["state"][i]["ax"] = torch.zeros_like(state["state"][i]["ax"])
    torch.save({"model": net.state_dict(), "optimizer": state}, tmp_path / "old.pt")
    with pytest.raises(cs.ClearstateError, match=r"is not certain: it has 2 groups without names"):
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", use="eval")


def test_torch_emas_shadow_parameters_are_the_average(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4))
    net[2].weight.requires_grad_(False)
    ema = torch_ema.ExponentialMovingAverage(net.parameters(), decay=0.5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)
    ema.update()
    for stored in (False, True):
        if stored:
            ema.store()
        value = {
            "model": net.state_dict(),
            "averager": ema.state_dict(),
            "scheduler": {"last_epoch": 1, "base_lrs": []},
        }
        torch.save(value, tmp_path / "old.pt")
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt")
        made = read(tmp_path / "new.pt")
        assert set(made) == {"model", "averager"}
        assert all(map(torch.equal, made["averager"]["shadow_params"], ema.shadow_params))
        cs.clear_file(tmp_path / "old.pt", tmp_path / "ema.pt", use="averager.shadow_params")
        averaged = copy.deepcopy(net)
        ema.copy_to(averaged.parameters())
        equal(dict(averaged.state_dict()), dict(read(tmp_path / "ema.pt")["model"]))


def test_ema_pytorch_in_a_callback_is_kept_and_taken_under_its_own_names(tmp_path: Path) -> None:
    net = Net()
    ema = EMA(net, beta=0.5, update_every=1, update_after_step=0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)
    ema.update()
    value = {
        "pytorch-lightning_version": "2.6",
        "state_dict": net.state_dict(),
        "callbacks": {"EMACallback": {"state": ema.state_dict(), "n": 3}},
    }
    torch.save(value, tmp_path / "old.pt")
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt")
    equal(dict(ema.state_dict()), dict(read(tmp_path / "new.pt")["callbacks"]["EMACallback"]["state"]))
    cs.clear_file(tmp_path / "old.pt", tmp_path / "ema.pt", use="ema")
    equal(dict(ema.ema_model.state_dict()), dict(read(tmp_path / "ema.pt")["state_dict"]))


def test_diffusers_ema_model_is_the_average(tmp_path: Path) -> None:
    training_utils = pytest.importorskip("diffusers.training_utils")
    net = Net()
    ema = training_utils.EMAModel(net.parameters(), decay=0.5)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)
    for _ in range(3):
        ema.step(net.parameters())
    torch.save({"unet": net.state_dict(), "ema_unet": ema.state_dict(), "epoch": 3}, tmp_path / "old.pt")
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt")
    assert all(map(torch.equal, read(tmp_path / "new.pt")["ema_unet"]["shadow_params"], ema.shadow_params))
