"""The files that the examples of all documents work on, by the names that they have there."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import torch
from torch import nn

from tests.recordings import EXAMPLES


def write(folder: Path) -> None:
    """Writes the files into a folder.

    ``model.t7`` and ``old.t7`` are a small net as Torch7 saved it after training; ``last.ckpt`` is a checkpoint as
    Lightning writes it, ``train.pt`` one of a script of one's own, wrapped and with an averaged copy.
    """
    (folder / "examples").mkdir()
    for name in "model.t7", "old.t7", "examples/digits.t7":
        shutil.copy(EXAMPLES / "digits.t7", folder / name)
    net, optimizer, scheduler = _trained()
    weights = net.state_dict()
    torch.save(
        {
            "pytorch-lightning_version": "2.4.0",
            "epoch": 3,
            "global_step": 120,
            "state_dict": weights,
            "optimizer_states": [optimizer.state_dict()],
            "lr_schedulers": [scheduler.state_dict()],
            "hyper_parameters": {"lr": 0.001},
        },
        folder / "last.ckpt",
    )
    torch.save(
        {
            "epoch": 3,
            "model": {f"module.{name}": value for name, value in weights.items()},
            "ema": {f"module.{name}": value / 2 for name, value in weights.items()},
            "optimizer": optimizer.state_dict(),
        },
        folder / "train.pt",
    )


@cache
def _trained() -> tuple[nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(net.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(2):
        net(torch.ones(4, 64)).sum().backward()
        optimizer.step()
        scheduler.step()
    return net, optimizer, scheduler
