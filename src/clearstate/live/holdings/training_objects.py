"""The classes of optimizers, schedulers, scalers, trainers, data loaders and data sets: they are no part of a model.

An optimizer, a scheduler and a scaler are looked into: what they hold has roles of its own. A trainer, a data loader
and a data set are not, nor is whatever object holds one of them: what lies behind is theirs. Classes, and those derived
from them, are told by their qualified names: no library is imported.
"""

from __future__ import annotations

from typing import NamedTuple

from ...roles import Role
from ..bytecode.classes import fact, qualified


class Kind(NamedTuple):
    """What an object is.

    Attributes:
        word: in a word.
        role: of the tensors that it keeps for its work; ``None`` where nothing behind it is looked at.
    """

    word: str
    role: Role | None = None

    @property
    def outside(self) -> bool:
        """Whether what lies behind it is no business of the model's."""
        return self.role is None


OPTIMIZER = Kind("an optimizer", Role.OPTIMIZER)
SCHEDULER = Kind("a scheduler", Role.TRAINING)
SCALER = Kind("a gradient scaler", Role.TRAINING)
TRAINER = Kind("a trainer")
LOADER = Kind("a data loader")
DATA = Kind("a data set")
MODULE = Kind("a module that is not registered", Role.UNKNOWN)

KINDS = {
    "torch.optim.optimizer.Optimizer": OPTIMIZER,
    "torch.optim.lr_scheduler.LRScheduler": SCHEDULER,
    "torch.amp.grad_scaler.GradScaler": SCALER,
    "torch.utils.data.dataloader.DataLoader": LOADER,
    "torch.utils.data.dataloader._BaseDataLoaderIter": LOADER,
    "torch.utils.data.dataset.Dataset": DATA,
    "torch.utils.data.sampler.Sampler": Kind("a sampler of data"),
    "datasets.arrow_dataset.Dataset": DATA,
    "datasets.dataset_dict.DatasetDict": DATA,
    "datasets.iterable_dataset.IterableDataset": DATA,
    "transformers.trainer.Trainer": TRAINER,
    "accelerate.accelerator.Accelerator": TRAINER,
    "ignite.engine.engine.Engine": TRAINER,
    "composer.trainer.trainer.Trainer": TRAINER,
    "mmengine.runner.runner.Runner": TRAINER,
    "fastai.learner.Learner": TRAINER,
    "deepspeed.runtime.engine.DeepSpeedEngine": TRAINER,
    **{
        f"{package}.{name}": kind
        for package, name, kind in (
            ("pytorch_lightning", "trainer.trainer.Trainer", TRAINER),
            ("lightning.pytorch", "trainer.trainer.Trainer", TRAINER),
            ("pytorch_lightning", "core.datamodule.LightningDataModule", DATA),
            ("lightning.pytorch", "core.datamodule.LightningDataModule", DATA),
            ("pytorch_lightning", "core.module._TrainerFabricShim", TRAINER),
            ("lightning.pytorch", "core.module._TrainerFabricShim", TRAINER),
            ("lightning_fabric", "fabric.Fabric", TRAINER),
            ("lightning.fabric", "fabric.Fabric", TRAINER),
            ("pytorch_lightning", "strategies.strategy.Strategy", TRAINER),
            ("lightning.pytorch", "strategies.strategy.Strategy", TRAINER),
            ("lightning_fabric", "strategies.strategy.Strategy", TRAINER),
            ("lightning.fabric", "strategies.strategy.Strategy", TRAINER),
        )
    },
}
"""For each class, what it is."""


@fact
def training_kind(cls: type) -> Kind | None:
    """What objects of a class are; ``None`` of all that is nothing of these.

    >>> import torch
    >>> training_kind(torch.optim.Adam).word, training_kind(torch.utils.data.TensorDataset).outside, training_kind(dict)
    ('an optimizer', True, None)
    """
    return next((KINDS[name] for parent in cls.__mro__ if (name := qualified(parent)) in KINDS), None)
