"""What is what in a checkpoint: by structure first, then by the layouts that training programs write.

An optimizer is a dict with ``state`` and ``param_groups``, whatever its key. What structure cannot say (a loop's
counters, random generators, averaged copies) is named by a layout: the keys that tell whose file it is, and what its
keys are for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ....roles import Role
from ..pickle.stubs import Global, Stub, Tensor, Value, walk

OPTIMIZER, TRAINING = Role.OPTIMIZER, Role.TRAINING


def role_by_structure(value: Value) -> Role | None:
    """The role of a dict that is what its keys say: an optimizer's state, a scheduler's, a gradient scaler's.

    A list or a tuple of them is what all in it are, and a pickled optimizer is one.

    >>> role_by_structure({"state": {}, "param_groups": []})
    <Role.OPTIMIZER: 'optimizer'>
    >>> role_by_structure([{"state": {}, "param_groups": []}, {"epoch": 3}]) is None
    True
    """
    if isinstance(value, list | tuple) and not isinstance(value, Global):
        roles = {_role_of_keys(item) for item in value if item is not None}
        return roles.pop() if len(roles) == 1 else None
    if is_optimizer(value):
        return OPTIMIZER
    return _role_of_keys(value)


def is_optimizer(value: Value) -> bool:
    """Whether a stub is a pickled ``torch.optim.Optimizer``, by what its state holds."""
    if not isinstance(value, Stub) or not isinstance(value.attribute("param_groups"), list):
        return False
    return value.attribute("state") is not None and isinstance(value.attribute("defaults"), dict)


def _role_of_keys(value: Value) -> Role | None:
    if not isinstance(value, dict) or any(_is_model(value[key]) for key in MODELS if key in value):
        return None  # a whole checkpoint, whatever else is in it
    if isinstance(value.get("param_groups"), list) and any(_is_state(*item) for item in value.items()):
        return OPTIMIZER
    if "last_epoch" in value and not value.keys().isdisjoint(("_step_count", "base_lrs", "_last_lr", "T_max")):
        return TRAINING
    if {"scale", "growth_factor", "backoff_factor", "growth_interval"} <= value.keys():
        return TRAINING
    return None


def _is_model(value: Value) -> bool:
    return is_state_dict(value) or is_module(value)


def _is_state(key: Value, value: Value) -> bool:
    """Whether an entry beside ``param_groups`` is what an optimizer, or two of which one is around the other, keeps."""
    return isinstance(value, dict) and isinstance(key, str) and (key == "state" or key.endswith("_state"))


class Layout(NamedTuple):
    """A training program's checkpoint: keys that tell it, and the roles of keys that structure does not tell.

    What lies deeper is named by the keys to it: ``state.optimizers``.
    """

    name: str
    marks: tuple[str, ...]
    roles: Mapping[str, Role]
    copies: tuple[str, ...] = ()
    """Keys of averaged copies of the model."""
    version: tuple[str, str] = ("", "")
    """A key, and how the text there begins, where only some versions write this."""
    trained: tuple[str, ...] = ()
    """Keys of the weights as training left them, and of what belongs to them: where the first is there, what stands in
    the model's own place is their average."""
    model: str = ""
    """Where the model is, if not under one of `MODELS`."""


def _training(names: str, optimizer: str = "") -> dict[str, Role]:
    return {**dict.fromkeys(names.split(), TRAINING), **dict.fromkeys(optimizer.split(), OPTIMIZER)}


LIGHTNINGS_AVERAGE = ("current_model_state", "averaging_state")
"""Keys of ``WeightAveraging``, whose checkpoints have the average as their state dict."""

LAYOUTS = (
    Layout(
        "Lightning 1.6",
        ("pytorch-lightning_version", "state_dict"),
        _training("lr_schedulers callbacks native_amp_scaling_state", "optimizer_states"),  # its loader reads the loops
        version=("pytorch-lightning_version", "1.6."),
    ),
    Layout(
        "Lightning",
        ("pytorch-lightning_version", "state_dict"),
        _training("lr_schedulers loops callbacks MixedPrecision native_amp_scaling_state", "optimizer_states"),
        trained=LIGHTNINGS_AVERAGE,
    ),
    Layout(
        "Composer",
        ("state.model", "rng"),
        _training(
            "rng state.schedulers state.algorithms state.callbacks state.timestamp state.scaler state.train_metrics "
            "state.eval_metrics state.dataset_state state.dataset_resumption",
            "state.optimizers",
        ),
        model="state.model",
    ),
    Layout(
        "mmengine",
        ("message_hub", "state_dict"),
        _training("message_hub param_schedulers", "optimizer"),
        trained=("ema_state_dict",),
    ),
    Layout(  # what is left of one that was cleared
        "mmengine",
        ("meta.experiment_name", "state_dict"),
        {},
        trained=("ema_state_dict",),
    ),
    Layout(
        "fairseq",
        ("optimizer_history", "model"),
        _training("", "last_optimizer_state"),  # its loader reads optimizer_history and extra_state of every file
    ),
    Layout(
        "Ultralytics",
        ("train_args", "model"),
        _training("updates scaler best_fitness", "optimizer"),
        ("ema",),
    ),
    Layout(
        "DeepSpeed",
        ("ds_version", "module"),
        _training(
            "lr_scheduler random_rng_state np_rng_state torch_rng_state cuda_rng_state data_sampler "
            "random_ltd sparse_tensor_module_names",
            "optimizer optimizer_state_dict",
        ),
    ),
    Layout(
        "DeepSpeed (a rank's optimizer)",
        ("ds_version", "optimizer_state_dict"),
        _training("", "optimizer_state_dict"),
    ),
    Layout(
        "Accelerate (random generators)",
        ("random_state", "numpy_random_seed", "torch_manual_seed"),
        _training("random_state numpy_random_seed torch_manual_seed torch_cuda_manual_seed torch_xpu_manual_seed step"),
    ),
    Layout("timm", ("arch", "state_dict", "version"), _training("amp_scaler", "optimizer"), ("state_dict_ema",)),
    Layout("Detectron2", ("model", "iteration"), _training("scheduler trainer", "optimizer")),
    Layout("nanoGPT", ("model", "model_args", "iter_num"), {}),
    Layout(
        "Hugging Face Trainer (random generators)",
        ("python", "numpy", "cpu"),
        _training("python numpy cpu cuda npu xpu"),
    ),
)
"""Checked in this order; the first whose marks are all there tells."""

WEIGHTS = frozenset("fp32_flat_groups single_partition_of_fp32_groups fp32_groups_flat fp32_groups".split())
"""Keys under which DeepSpeed's optimizers keep the weights."""

RANDOM = frozenset(
    "rng_state rng_states torch_rng_state cuda_rng_state cuda_rng_state_all random_rng_state np_rng_state "
    "cpu_rng_state numpy_rng_state python_rng_state xla_seed".split()
)
"""Keys of random generators, in any layout."""

GENERATORS = frozenset("rng rngs cuda_rng torch_rng cpu_rng numpy_rng np_rng python_rng random".split())
"""Keys that are those of random generators where nothing but the states of some is under them."""

COPIES = frozenset("ema model_ema ema_model state_dict_ema ema_state_dict model_ema_state_dict shadow_params".split())
"""Keys of averaged copies of the model, in any layout."""

MODELS = ("state_dict", "model", "model_state_dict", "module", "net", "network", "params", "model_state", "generator")
"""Keys of the model, in the order they are looked for."""


def layout_of(root: Value) -> Layout | None:
    """Whose checkpoint this is.

    >>> layout_of({"pytorch-lightning_version": "2.4", "state_dict": {}}).name
    'Lightning'
    """
    if not isinstance(root, dict):
        return None
    return next((layout for layout in LAYOUTS if _wrote(layout, root)), None)


def _wrote(layout: Layout, root: dict[Any, Any]) -> bool:
    key, start = layout.version
    return all(has(root, mark) for mark in layout.marks) and str(root.get(key, "")).startswith(start)


def has(root: Value, path: str) -> bool:
    """Whether these keys lead to something.

    >>> has({"state": {"model": None}}, "state.model")
    True
    """
    for key in path.split("."):
        if not isinstance(root, dict) or key not in root:
            return False
        root = root[key]
    return True


def role_by_layout(layout: Layout | None, key: Value, value: Value = None, path: str = "") -> Role | None:
    """The role of an entry of a checkpoint, by its key, or by its path where it is below the root.

    An optimizer that has the weights themselves in it is none: of ZeRO's third stage they are nowhere else.

    >>> role_by_layout(None, "rng_state")
    <Role.TRAINING: 'training'>
    """
    key = path or key
    if layout is not None and key in layout.roles:
        role = layout.roles[key]
        return None if role is OPTIMIZER and isinstance(value, dict) and not WEIGHTS.isdisjoint(value) else role
    if not path and isinstance(key, str) and (key in RANDOM or (key in GENERATORS and _is_random(value))):
        return TRAINING
    return None


def _is_random(value: Value) -> bool:
    """Whether a value is the state of random generators: bytes in a tensor, or what Python and NumPy have."""
    met = list(walk(value))
    stubs = (part for part in met if isinstance(part, Stub))
    tensors = [part.dtype == "uint8" for part in met if isinstance(part, Tensor)]
    return bool(met) and all(tensors) and all(map(_is_numpys, stubs)) and (bool(tensors) or isinstance(value, tuple))


def _is_numpys(stub: Stub) -> bool:
    return stub.typename.partition(".")[0] in ("numpy", "_codecs")


def is_copy(layout: Layout | None, key: Value) -> bool:
    """Whether a key of the root is that of an averaged copy of the model."""
    return isinstance(key, str) and (key in COPIES or (layout is not None and key in layout.copies))


AVERAGED = frozenset("ema emas ewa swa lawa averaged average averages averaging shadow polyak".split())
"""Words in the names of what holds averages."""

AVERAGE = re.compile(
    r"(?:avg|mean)_?(?:model|param|weight|net|state)|(?:model|params?|weights?|net)_?(?:avg|mean)", re.I
)
"""Names of averages that are made of words which alone say nothing: Adam's ``exp_avg`` is none."""

LONG_NAME = 200
"""Letters from which on a key is no name."""

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_averaged(key: Value) -> bool:
    """Whether a name says that an average is under it.

    >>> [is_averaged(key) for key in ("average_model_state", "ModelEMA", "avg_model", "exp_avg")]
    [True, True, True, False]
    """
    if not isinstance(key, str) or len(key) >= LONG_NAME:
        return False
    return not _words(key).isdisjoint(AVERAGED) or bool(AVERAGE.search(key))


ASIDE = frozenset("backup original collected stored temp online raw current trained".split())
"""Words in the names of weights that are set aside while their average stands in their place."""


def is_set_aside(key: Value) -> bool:
    """Whether a name says that weights under it are those that train, beside their average.

    >>> is_set_aside("collected_params"), is_set_aside("shadow_params")
    (True, False)
    """
    return isinstance(key, str) and not ASIDE.isdisjoint(_words(key))


MOMENTS = frozenset(
    "acc_delta m v m0 sum prev step_size velocity moments mu nu d old_dirs old_stps mom mu_product step_average".split()
)
"""Names under which optimizers keep what they have of gradients: it has the shapes of the weights, and is none."""

OF_GRADIENTS = frozenset("grad grads gradient gradients momentum momentums exp sq square mom".split())
"""Words in such names: ``exp_avg``, ``momentum_buffer``, ``square_avg``."""


def is_moment(key: Value) -> bool:
    """Whether a name is one of an optimizer's for what it has of gradients.

    >>> [is_moment(key) for key in ("exp_avg_slow", "momentum_buffer", "slow_buffer")]
    [True, True, False]
    """
    return isinstance(key, str) and (key in MOMENTS or not OF_GRADIENTS.isdisjoint(_words(key)))


def is_gradient(key: Value) -> bool:
    """Whether a name is that of gradients.

    >>> is_gradient("accumulated_grads")
    True
    """
    return isinstance(key, str) and not _words(key).isdisjoint(("grad", "grads", "gradient", "gradients"))


def _words(key: str) -> set[str]:
    return {word.lower() for word in WORD.findall(key)} if len(key) < LONG_NAME else set()


SUBCLASS = Global("torch._tensor", "_rebuild_from_type_v2")
"""What makes a tensor of a class that is not PyTorch's own, or one with attributes."""


def is_subclass(value: Value) -> bool:
    """Whether a stub is a tensor of a class that is not PyTorch's own: a quantized one, a distributed one."""
    made = isinstance(value, Stub) and value.function == SUBCLASS and isinstance(value.args, tuple)
    return made and len(value.args) > 2


def class_of(value: Stub) -> str:
    """The name of an object's class, or of the function that makes it; of a subclass of tensors, its own."""
    return str(value.args[1]) if is_subclass(value) else value.typename


def is_state_dict(value: Value) -> bool:
    """Whether a dict is a module's: all its keys are names, and tensors are among its values.

    >>> is_state_dict({"epoch": 3})
    False
    """
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(key, str) for key in value)
        and any(tensor_in(item) is not None or is_subclass(item) for item in value.values())
    )


def is_module(value: Value) -> bool:
    """Whether a stub is a pickled ``torch.nn.Module``, by what its state holds."""
    return isinstance(value, Stub) and isinstance(value.attribute("_parameters"), dict)


def is_program(value: Value) -> bool:
    """Whether a stub is an object of a TorchScript program, a module most often, by the name of its class.

    >>> is_program(Stub("newobj", ("__torch__.torch.nn.modules.linear", "Linear"), ()))
    False
    """
    if not isinstance(value, Stub) or not isinstance(value.function, Global) or not isinstance(value.state, dict):
        return False
    return value.function.module.partition(".")[0] == "__torch__"


def tensor_in(value: Value) -> Tensor | None:
    """The tensor itself, or the one in a parameter or a tensor subclass around it.

    >>> tensor_in(3) is None
    True
    """
    for _ in range(8):
        if isinstance(value, Tensor):
            return value
        if not isinstance(value, Stub) or not isinstance(value.args, tuple) or not value.args:
            return None
        if not str(value.function).startswith("torch._utils._rebuild"):
            return None
        value = next((part for part in value.args if isinstance(part, Tensor | Stub)), None)
    return None
