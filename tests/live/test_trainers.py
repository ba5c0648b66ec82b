"""Trainers and detectors of libraries, where those are installed: what a fit leaves goes once it is over."""

from __future__ import annotations

import copy
import logging
import types
from typing import Any

import pytest
import torch
from torch.nn import Linear
from torch.utils.data import DataLoader, TensorDataset

import clearstate as cs
from clearstate.live.libraries import CACHES

from .promises import is_in_the_installed_class, size

pytestmark = pytest.mark.filterwarnings("default")  # what libraries warn of is not ours to forbid


def lightning(clearing: bool) -> tuple[Any, Any]:
    """A module of Lightning after a fit, during which it may have been cleared after every batch; and its trainer."""
    pl: Any = pytest.importorskip("pytorch_lightning")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Learner(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = Linear(4, 1)
            self.last: Any = None

        def training_step(self, batch: Any, _: int) -> Any:
            self.last = self.layer(batch[0])
            loss = self.last.square().mean()
            self.log("loss", loss)
            return loss

        def on_train_batch_end(self, *_: Any) -> None:
            if clearing:
                cs.clear_state(self)
                assert self.last is None
                assert self.trainer is not None

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    torch.manual_seed(0)
    model, data = Learner(), DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = pl.Trainer(max_epochs=1, accelerator="cpu", **quiet)
    trainer.fit(model, data)
    return model, trainer


def test_a_trainer_stays_during_its_fit_and_goes_with_its_data_and_metrics_when_it_is_over() -> None:
    model, trainer = lightning(clearing=False)
    cleared, _ = lightning(clearing=True)
    assert all(map(torch.equal, model.parameters(), cleared.parameters())), "training goes on as if nothing was cleared"
    held = [e.path for e in cs.inspect(model).select("transient") if "_trainer" in e.path]
    assert any("metrics" in path for path in held)
    assert any("dataset" in path for path in held)
    assert cs.clear_state(model)._trainer is None
    assert not [e for e in cs.inspect(model).entries if e.role in ("transient", "unknown")]
    copy.deepcopy(model)
    assert trainer.callback_metrics["loss"] > 0, "what the trainer has is its own"


def test_an_object_that_holds_an_optimizer_is_no_cache_though_it_holds_a_loss() -> None:
    model: Any = Linear(4, 1)
    loss = model(torch.ones(4)).sum()
    model.learner = types.SimpleNamespace(optimizer=torch.optim.SGD(model.parameters(), 0.1), loss=loss)
    learner = model.learner
    cs.clear_state(model)
    assert model.learner is learner
    assert any("learner is an object that holds an optimizer" in note for note in cs.inspect(model).notes)


LIBRARIES = [name for name in CACHES if name.startswith(("ultralytics.", "pytorch_lightning."))]


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_is_declared_of_a_class_is_in_the_installed_class(name: str) -> None:
    pytest.importorskip(name.partition(".")[0])
    is_in_the_installed_class(name)


@pytest.mark.parametrize("config", ["yolov8n.yaml", "yolo11n-seg.yaml"])
def test_grids_of_a_detector_of_ultralytics_go_without_a_sample(config: str) -> None:
    tasks: Any = pytest.importorskip("ultralytics.nn.tasks")
    cls = tasks.SegmentationModel if "seg" in config else tasks.DetectionModel
    torch.manual_seed(0)
    model, x = cls(config, verbose=False).eval(), torch.rand(1, 3, 64, 64)
    before, stride = size(model), model.stride.clone()
    with torch.no_grad():
        expected = model(x)[0]
        assert size(model) > before
        assert size(cs.clear_state(model)) == before
        again = model(x)[0]
    first, second = (y[0] if isinstance(y, tuple) else y for y in (expected, again))
    assert torch.equal(first, second)
    assert torch.equal(model.stride, stride)
