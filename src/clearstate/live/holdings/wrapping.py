"""The classes of PyTorch that wrap a model, and the attributes that are their machinery."""

from __future__ import annotations

from ..bytecode.classes import fact, qualified
from ..bytecode.own_code import names

WRAPPERS = {
    "torch.nn.parallel.data_parallel.DataParallel": "module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "module",
    "torch.optim.swa_utils.AveragedModel": "module",
    "torch._dynamo.eval_frame.OptimizedModule": "_orig_mod",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": "_fsdp_wrapped_module",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.ActivationWrapper": "_checkpoint_wrapped_module",
}
"""Classes of PyTorch that hold another module and call it, and the child that it is.

They are named, not imported: what a program does not use need not be loaded to find that out.
"""


COMPOSED = "__composable_api_"
"""How names begin under which ``fully_shard``, ``replicate`` and ``checkpoint`` keep what they need on a module."""


def wrapping_step(cls: type) -> str | None:
    """The child in which a class of wrappers holds the wrapped module; ``None`` for all other classes.

    >>> import torch
    >>> wrapping_step(torch.nn.DataParallel), wrapping_step(torch.nn.Linear)
    ('module', None)
    """
    return next((WRAPPERS[name] for parent in cls.__mro__ if (name := qualified(parent)) in WRAPPERS), None)


def is_machinery(cls: type, name: str) -> bool:
    """Whether an attribute is what a wrapper, or ``fully_shard``, needs to work: it is no state of the model.

    Of a wrapper these are its private attributes and those that its own code mentions; what a user hangs on it is not.

    >>> import torch
    >>> is_machinery(torch.nn.DataParallel, "device_ids"), is_machinery(torch.nn.DataParallel, "last_loss")
    (True, False)
    """
    if name.startswith(COMPOSED):
        return True
    known = _mentioned(cls)
    return known is not None and (name.startswith("_") or name in known)


@fact
def _mentioned(cls: type) -> frozenset[str] | None:
    """The names that a class of wrappers mentions; ``None`` for all other classes."""
    for parent in cls.__mro__:
        if qualified(parent) in WRAPPERS:
            return names(parent)
    return None
