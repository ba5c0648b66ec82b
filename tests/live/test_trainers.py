"""Trainers and detectors of libraries, where those are installed: what a fit leaves goes once it is over."""

from __future__ import annotations

import copy
import logging
import re
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import Linear
from torch.utils.data import DataLoader, TensorDataset

import clearstate as cs
from clearstate.live.evidence.libraries import CACHES

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
    found = cs.inspect(model)
    assert not [e.path for e in found.entries if "_trainer" in e.path]
    assert found.size == model.last.nbytes + sum(p.nbytes + p.grad.nbytes for p in model.parameters())
    (note,) = [note for note in found.notes if note.startswith("_trainer")]
    assert re.fullmatch(r"_trainer is a trainer \(Trainer\), with \d+ B of tensors behind it: it goes", note)
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


class Loop:
    """A trainer of one's own."""

    def __init__(self, model: Any, data: Any) -> None:
        self.model, self.data, self.best = model, data, torch.zeros(3)
        self.optimizer = torch.optim.Adam(model.parameters())


DATA = TensorDataset(torch.ones(100, 4))
HUNG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a data set": (lambda _: DATA, "hung is a data set (TensorDataset), with 1.6 kB of tensors behind it"),
    "a loader": (lambda _: DataLoader(DATA), "hung is a data loader (DataLoader), with 1.6 kB of tensors behind it"),
    "an iterator": (lambda _: iter(DataLoader(DATA)), "hung is a data loader (_SingleProcessDataLoaderIter)"),
    "a sampler": (lambda _: DataLoader(DATA).sampler, "hung is a sampler of data (SequentialSampler)"),
    "loaders": (lambda _: [DataLoader(DATA)], "hung is a table that holds a data loader (DataLoader) ([0])"),
    "by name": (
        lambda _: {"train": DataLoader(DATA)},
        "hung is a table that holds a data loader (DataLoader) (['train'])",
    ),
    "a loop": (lambda m: Loop(m, DataLoader(DATA)), "hung is an object that holds a data loader (DataLoader) (.data)"),
    "a loop in a list": (lambda m: [Loop(m, DATA)], "hung is a table that holds a data set (TensorDataset) ([0].data)"),
}


@pytest.mark.parametrize("case", HUNG.values(), ids=HUNG)
def test_what_lies_behind_data_and_trainers_is_not_the_models_and_is_said_in_one_line(case: Any) -> None:
    make, said = case
    model: Any = torch.nn.Sequential(Linear(4, 1))
    before = cs.inspect(model).size
    model.hung = hung = make(model)
    found = cs.inspect(model)
    assert found.size == before
    assert not [e.path for e in found.entries if e.path.startswith("hung")]
    (note,) = found.notes
    assert note.startswith(said)
    with cs.cleared(model, drop="optimizer") as light:
        copy.deepcopy(light.state_dict())
    assert cs.clear_state(model, sample=torch.ones(1, 4)).hung is hung
    with cs.observe(model) as baseline:
        model.later = make(model)
    assert cs.clear_state(model, baseline=baseline).later is not None


def test_what_stands_beside_a_loader_in_a_table_is_counted() -> None:
    model: Any = Linear(4, 1)
    model.hung = {"mean": torch.ones(4), "train": DataLoader(DATA)}
    assert [(e.path, str(e.role)) for e in cs.inspect(model).entries if "hung" in e.path] == [
        ("hung['mean']", "unknown")
    ]


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
