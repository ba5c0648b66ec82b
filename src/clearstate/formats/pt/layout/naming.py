"""What an entry that clearing drops was, in words: by what it is, by its key, or by the nearest key above it."""

from __future__ import annotations

import re

from ....roles import GLOSS, Role
from ..pickle.stubs import Value
from .programs import GENERATORS, RANDOM

SCHEDULERS, GENERATORS_OF = "schedulers", "random generators"

WORDS: dict[str, str] = {
    **dict.fromkeys((*RANDOM, *GENERATORS), GENERATORS_OF),
    **dict.fromkeys("random_state numpy_random_seed torch_manual_seed torch_cuda_manual_seed".split(), GENERATORS_OF),
    **dict.fromkeys("torch_xpu_manual_seed python numpy cpu cuda npu xpu random_ltd".split(), GENERATORS_OF),
    **dict.fromkeys("lr_schedulers lr_scheduler param_schedulers scheduler schedulers".split(), SCHEDULERS),
    **dict.fromkeys("MixedPrecision native_amp_scaling_state scaler amp_scaler".split(), "gradient scalers"),
    **dict.fromkeys("loops step updates timestamp trainer".split(), "loop counters"),
    **dict.fromkeys("message_hub train_metrics eval_metrics best_fitness".split(), "metrics"),
    **dict.fromkeys("data_sampler dataset_state dataset_resumption".split(), "positions in the data"),
    "callbacks": "callbacks",
    "algorithms": "algorithms",
    "sparse_tensor_module_names": "names of modules",
}
"""What is under a key, of those that are for training."""

_KEYS = re.compile(r"[^.\[\]]+")


def what_was(path: str, role: Role, value: Value) -> str:
    """What an entry was.

    >>> what_was("lr_schedulers[0]", Role.TRAINING, {"last_epoch": 3, "_step_count": 4})
    'schedulers'
    >>> what_was("callbacks.EarlyStopping", Role.TRAINING, {})
    'callbacks'
    """
    if role is Role.TRAINING:
        first = value[0] if isinstance(value, list | tuple) and value else value
        if isinstance(first, dict):
            if "last_epoch" in first:
                return SCHEDULERS
            if "growth_factor" in first:
                return "gradient scalers"
        for key in reversed(_KEYS.findall(path)):
            if key in WORDS:
                return WORDS[key]
        return "training state"
    return GLOSS[role]
