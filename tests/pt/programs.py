"""Checkpoints as training programs write them, each with the program's own way to load the model from one.

The programs that install here write theirs themselves (`test_programs`); the others' are built after their sources,
which each names.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from omegaconf import OmegaConf
from torch.optim.swa_utils import AveragedModel

Loading = Callable[[Any], torch.nn.Module]


class Net(torch.nn.Module):
    """A net with a tie, running statistics, a buffer that is part of a larger storage, and one that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.tied = torch.nn.Linear(3, 4)
        self.tied.weight = self.first.weight
        self.register_buffer("anchors", torch.arange(60.0)[8:12])
        self.register_buffer("cached", torch.zeros(2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted: torch.Tensor = self.norm(self.first(x)) + self.tied(x) + self.anchors
        return shifted


class Training(NamedTuple):
    """A net after two steps, with what trained it."""

    net: Net
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    ema: AveragedModel


def training(wrapped: Callable[[Net], torch.nn.Module] | None = None) -> Training:
    """Trains a net for two steps; its averaged copy differs from it."""
    torch.manual_seed(1)
    net = Net()
    ema = AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))  # type: ignore[no-untyped-call]
    optimizer = torch.optim.AdamW(net.parameters())
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(2):
        net(torch.randn(5, 3)).sum().backward()
        optimizer.step()
        scheduler.step()
        ema.update_parameters(net)
    return Training(net, optimizer, scheduler, ema)


class Program(NamedTuple):
    """How one program saves and loads.

    Attributes:
        save: what it gives to ``torch.save``.
        load: the model as it makes it of what ``torch.load`` gives.
        gone: the keys of the checkpoint that clearing drops, or the paths to them.
    """

    save: Callable[[Training], Any]
    load: Loading
    gone: str = "optimizer"


def into(*keys: str) -> Loading:
    """Loads the state dict at these keys into a new net."""

    def load(checkpoint: Any) -> torch.nn.Module:
        for key in keys:
            checkpoint = checkpoint[key]
        net = Net()
        net.load_state_dict(checkpoint)
        return net

    return load


def _timm(t: Training) -> Any:
    """``CheckpointSaver._save`` of timm 1.0.31 (``timm/utils/checkpoint_saver.py``)."""
    return {
        "epoch": 3,
        "arch": "resnet50",
        "optimizer": t.optimizer.state_dict(),
        "version": 2,
        "args": argparse.Namespace(model="resnet50", lr=0.1),
        "amp_scaler": torch.amp.GradScaler("cpu").state_dict(),
        "state_dict": t.net.state_dict(),
        "state_dict_ema": t.ema.module.state_dict(),
        "metric": 71.5,
        "saver": {"checkpoint_files": [("x.pth", 71.5)], "best_epoch": 3, "best_metric": 71.5, "pending": (3, 71.5)},
    }


def _timm_load(checkpoint: Any) -> torch.nn.Module:
    """``load_state_dict`` of ``timm/models/_helpers.py``: the averaged copy where there is one."""
    keys = ("state_dict_ema", "model_ema", "state_dict", "model")
    key = next(key for key in keys if checkpoint.get(key) is not None)
    return into(key)(checkpoint)


def _ultralytics(t: Training) -> Any:
    """``BaseTrainer.save_model`` of ``ultralytics/engine/trainer.py``: the averaged copy, whole, is the model."""
    return {
        "epoch": 3,
        "best_fitness": 0.5,
        "model": None,
        "ema": copy.deepcopy(t.ema.module).half(),
        "updates": 2,
        "optimizer": t.optimizer.state_dict(),
        "scaler": {},
        "train_args": {"model": "yolo.yaml", "lr0": 0.01},
        "train_metrics": {"mAP": np.float64(0.5)},
        "train_results": {"epoch": [1, 2, 3]},
        "date": "2026-01-02T03:04:05",
        "version": "8.4.190",
    }


def _ultralytics_load(checkpoint: Any) -> torch.nn.Module:
    """``load_checkpoint`` of ``ultralytics/nn/tasks.py``."""
    args = {"task": "detect", **checkpoint.get("train_args", {})}
    model: torch.nn.Module = (checkpoint.get("ema") or checkpoint["model"]).float()
    assert args["lr0"] == 0.01
    return model


def _mmengine(t: Training) -> Any:
    """``Runner.save_checkpoint`` of ``mmengine/runner/runner.py``, and ``EMAHook``, which swaps the two."""
    average = OrderedDict((f"module.{name}", value) for name, value in t.net.state_dict().items())
    average["steps"] = torch.tensor(2)
    return {
        "meta": {
            "epoch": 3,
            "iter": 30,
            "cfg": "model = dict()",
            "seed": 1,
            "experiment_name": "net_20260101",
            "mmengine_version": "0.10.7",
            "dataset_meta": {"classes": ("a", "b")},
        },
        "state_dict": t.ema.module.state_dict(),
        "message_hub": {"log_scalars": {}, "runtime_info": OrderedDict(epoch=3), "resumed_keys": OrderedDict()},
        "optimizer": t.optimizer.state_dict(),
        "param_schedulers": [{"base_values": [0.1], "last_step": 2, "_global_step": 2}],
        "ema_state_dict": average,
    }


def _fairseq(t: Training) -> Any:
    """``Trainer.state_dict`` of ``fairseq/trainer.py``."""
    return {
        "args": None,
        "cfg": OmegaConf.create({"_name": None, "model": {"_name": "wav2vec2", "layers": 2}, "task": {"data": "/x"}}),
        "model": t.net.state_dict(),
        "criterion": None,
        "optimizer_history": [
            {
                "criterion_name": "Wav2vecCriterion",
                "optimizer_name": "FairseqAdam",
                "lr_scheduler_state": {"best": None},
                "num_updates": 2,
            }
        ],
        "task_state": {"target_dictionary": ["a", "b"]},
        "extra_state": {"metrics": [], "previous_training_time": 1.5, "train_iterator": {"epoch": 2}, "val_loss": 0.5},
        "last_optimizer_state": t.optimizer.state_dict(),
    }


def _fairseq_load(checkpoint: Any) -> torch.nn.Module:
    """``_upgrade_state_dict`` of ``fairseq/checkpoint_utils.py`` reads these whenever a checkpoint is loaded."""
    assert checkpoint["optimizer_history"][-1]["num_updates"] == 2
    assert checkpoint["extra_state"]["train_iterator"]["epoch"] == 2
    assert checkpoint["cfg"].model.layers == 2
    return into("model")(checkpoint)


def _detectron2(t: Training) -> Any:
    """``PeriodicCheckpointer`` of fvcore over ``DetectionCheckpointer``: all checkpointables, and the iteration."""
    return {
        "model": t.net.state_dict(),
        "optimizer": t.optimizer.state_dict(),
        "scheduler": t.scheduler.state_dict(),
        "trainer": {"iteration": 30, "hooks": {"EvalHook": {}}, "_trainer": {"iteration": 30, "optimizer": {}}},
        "iteration": 30,
    }


def _deepspeed(t: Training) -> Any:
    """``save_checkpoint`` of ``deepspeed/runtime/engine.py``: ``mp_rank_00_model_states.pt``."""
    return {
        "module": t.net.state_dict(),
        "buffer_names": ["norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "anchors"],
        "optimizer": t.optimizer.state_dict(),
        "param_shapes": [OrderedDict((n, p.shape) for n, p in t.net.named_parameters())],
        "frozen_param_shapes": None,
        "shared_params": {"tied.weight": "first.weight"},
        "lr_scheduler": t.scheduler.state_dict(),
        "data_sampler": None,
        "random_ltd": None,
        "sparse_tensor_module_names": set(),
        "skipped_steps": 0,
        "global_steps": 2,
        "global_samples": 10,
        "dp_world_size": 1,
        "mp_world_size": 1,
        "ds_config": {"train_batch_size": 5},
        "ds_version": "0.19.8",
    }


def _nanogpt(t: Training) -> Any:
    """``train.py`` of nanoGPT; the model was compiled."""
    compiled = OrderedDict((f"_orig_mod.{name}", value) for name, value in t.net.state_dict().items())
    return {
        "model": compiled,
        "optimizer": t.optimizer.state_dict(),
        "model_args": {"n_layer": 2},
        "iter_num": 2,
        "best_val_loss": torch.tensor(1.5),
        "config": {"out_dir": "out"},
    }


def _nanogpt_load(checkpoint: Any) -> torch.nn.Module:
    """``sample.py`` of nanoGPT."""
    state = checkpoint["model"]
    assert checkpoint["model_args"] == {"n_layer": 2}
    for name in list(state):
        if name.startswith("_orig_mod."):
            state[name[len("_orig_mod.") :]] = state.pop(name)
    return into()(state)


def _diffusion(t: Training) -> Any:
    """A checkpoint of Lightning 1 with the ``LitEma`` of latent diffusion (``ldm/modules/ema.py``)."""
    state = OrderedDict(t.net.state_dict())
    state["model_ema.decay"], state["model_ema.num_updates"] = torch.tensor(0.5), torch.tensor(2, dtype=torch.int)
    for name, value in t.ema.module.named_parameters():
        state[f"model_ema.{name.replace('.', '')}"] = value.detach()
    return {
        "epoch": 3,
        "global_step": 30,
        "pytorch-lightning_version": "1.4.2",
        "state_dict": state,
        "callbacks": {"ModelCheckpoint": {"best_model_score": torch.tensor(1.0)}},
        "optimizer_states": [t.optimizer.state_dict()],
        "lr_schedulers": [t.scheduler.state_dict()],
    }


def _diffusion_load(checkpoint: Any) -> torch.nn.Module:
    """``load_model_from_config`` of latent diffusion: what the net has no place for is left over."""
    net = Net()
    assert not net.load_state_dict(checkpoint["state_dict"], strict=False).missing_keys
    return net


def _averaged(t: Training) -> Any:
    return {"model": t.net.state_dict(), "model_ema": t.ema.state_dict(), "optimizer": t.optimizer.state_dict()}


def _home_made(t: Training) -> Any:
    return {
        "weights": t.net.state_dict(),
        "opt_d": t.optimizer.state_dict(),
        "sched": t.scheduler.state_dict(),
        "rng_state": torch.get_rng_state(),
        "numpy_rng_state": np.random.RandomState(0).get_state(),
        "python_rng_state": random.Random(0).getstate(),
        "history": deque([1.0, 2.0], 5),
        "opt": SimpleNamespace(lr=0.1),
        "step": 30,
    }


def _composer(t: Training) -> Any:
    """``State.state_dict`` and ``CheckpointSaver`` of Composer (``composer/core/state.py``), with its EMA algorithm."""
    average = t.ema.module
    named = {
        "named_parameters_dict": {name: p.detach() for name, p in average.named_parameters()},
        "named_buffers_dict": dict(average.named_buffers()),
    }
    return {
        "state": {
            "model": t.net.state_dict(),
            "optimizers": {"AdamW": t.optimizer.state_dict()},
            "schedulers": {"CosineAnnealingLR": t.scheduler.state_dict()},
            "algorithms": [("EMA", {"ema_started": True, "ema_model": named}), ("LabelSmoothing", {})],
            "callbacks": [("SpeedMonitor", {"total_eval_wct": 0.5})],
            "timestamp": {"Timestamp": {"epoch": 3, "batch": 30}},
            "rank_zero_seed": 17,
            "run_name": "net",
        },
        "rng": [{"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()}],
    }


PROGRAMS: dict[str, Program] = {
    "timm": Program(_timm, _timm_load, "optimizer amp_scaler"),
    "Ultralytics": Program(_ultralytics, _ultralytics_load, "optimizer updates scaler best_fitness"),
    "mmengine": Program(_mmengine, into("state_dict"), "optimizer message_hub param_schedulers"),
    "fairseq": Program(_fairseq, _fairseq_load, "last_optimizer_state"),
    "Detectron2": Program(_detectron2, into("model"), "optimizer scheduler trainer"),
    "DeepSpeed": Program(
        _deepspeed, into("module"), "optimizer lr_scheduler data_sampler random_ltd sparse_tensor_module_names"
    ),
    "Composer": Program(
        _composer, into("state", "model"), "rng state.optimizers state.schedulers state.callbacks state.timestamp"
    ),
    "nanoGPT": Program(_nanogpt, _nanogpt_load),
    "latent diffusion": Program(_diffusion, _diffusion_load, "optimizer_states lr_schedulers callbacks"),
    "AveragedModel": Program(_averaged, into("model")),
    "home-made": Program(_home_made, into("weights"), "opt_d sched rng_state numpy_rng_state python_rng_state"),
    "a state dict": Program(lambda t: t.net.state_dict(), into(), ""),
    "a module": Program(lambda t: t.net, lambda whole: whole, ""),
}
