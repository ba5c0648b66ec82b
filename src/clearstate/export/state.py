"""The weights and running statistics of a module, as a file: safetensors, or a PyTorch state dict."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch

from ..errors import ClearstateError
from ..formats.atomic import replacing
from ..formats.data import Held
from ..formats.pt.pickle.stubs import Global, Ordered, Storage, Tensor
from ..formats.safetensors import KINDS, open_safetensors, safetensors_size, write_safetensors

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin")
"""Files that a state dict is written to, by suffix; all but the first by ``torch.save``."""


def write_state(model: Any, path: str | os.PathLike[str]) -> None:
    """Writes a module's state dict, or a dict of tensors: parameters and persistent buffers, by name.

    A ``.safetensors`` file has each tensor once; the other names of one that is shared are in the file's metadata,
    where ``safetensors.torch.load_model`` finds them. A ``.pt`` file keeps sharing as ``torch.save`` does.

    Args:
        model: a module, or a dict of tensors.
        path: the file, which ends in ``.safetensors``, ``.pt``, ``.pth`` or ``.bin``; it is replaced as a whole.

    Raises:
        ClearstateError: there is something that the format has no place for.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "x.safetensors")
    >>> write_state(torch.nn.Linear(2, 1), path)
    >>> sorted(open_safetensors(str(path)).root)
    ['bias', 'weight']
    """
    state = model.state_dict() if isinstance(model, torch.nn.Module) else model
    wrong = [name for name, value in state.items() if not isinstance(value, torch.Tensor)]
    if os.path.splitext(path)[1].lower() != ".safetensors":
        with replacing(path) as handle:
            torch.save(_alone(state), handle)
        return
    if wrong:
        raise ClearstateError(f"{wrong[0]} is no tensor: safetensors has a place for tensors only")
    with replacing(path, _readable) as handle:
        write_safetensors(as_tensors(state), handle, {"format": "pt"})


def _alone(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state without the rest of the storages it lies on: a part of a net with flat parameters goes alone."""
    views: dict[int, dict[Any, torch.Tensor]] = {}
    for tensor in filter(_lies_on_storage, state.values()):
        views.setdefault(tensor.untyped_storage().data_ptr(), {}).setdefault(_view(tensor), tensor)
    made = dict(state)
    for storage, found in views.items():
        whole = next(iter(found.values())).untyped_storage().nbytes()
        if sum(tensor.nbytes for tensor in found.values()) >= whole:
            continue
        copies = {view: tensor.detach().clone() for view, tensor in found.items()}
        for name, tensor in state.items():
            if _lies_on_storage(tensor) and tensor.untyped_storage().data_ptr() == storage:
                made[name] = copies[_view(tensor)]
    return made


def _lies_on_storage(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and not value.is_meta


def _view(tensor: torch.Tensor) -> Any:
    """What is the same for tensors that see the same memory in the same order."""
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _readable(path: str) -> None:
    """Raises what is wrong with a file that was just written."""
    open_safetensors(path)


def state_size(state: Mapping[str, torch.Tensor]) -> int:
    """Bytes of the safetensors file that these make.

    >>> state_size({"x": torch.zeros(2)}) - state_size({"x": torch.zeros(1)})
    4
    """
    return safetensors_size(as_tensors(state), {"format": "pt"})


def as_tensors(state: Mapping[str, torch.Tensor]) -> dict[str, Tensor]:
    """Tensors of PyTorch as those of files, on storages that are shared where theirs are; nothing is copied.

    >>> as_tensors({"x": torch.tensor([1.0, 2.0])})["x"].numpy()
    array([1., 2.], dtype=float32)
    """
    storages: dict[tuple[int, torch.dtype], Storage] = {}
    return {name: _as_tensor(name, tensor.detach(), storages) for name, tensor in state.items()}


def _as_tensor(name: str, tensor: torch.Tensor, storages: dict[tuple[int, torch.dtype], Storage]) -> Tensor:
    if tensor.layout is not torch.strided or tensor.is_meta:
        raise ClearstateError(f"{name} is {'on the meta device' if tensor.is_meta else 'sparse'}: it cannot be written")
    tensor = tensor.resolve_conj().resolve_neg()
    dtype = str(tensor.dtype).removeprefix("torch.")
    kind = KINDS.get(dtype)
    untyped = tensor.untyped_storage()
    key = (untyped.data_ptr(), tensor.dtype)
    storage = storages.get(key) if untyped.nbytes() else None
    if storage is None:
        raw = torch.empty(0, dtype=torch.uint8)
        if untyped.nbytes():
            raw.set_(untyped.cpu())  # type: ignore[no-untyped-call]
        data = Held(raw.numpy())
        whole = kind or Global("torch.storage", "UntypedStorage")
        storage = storages[key] = Storage(dtype if kind else "uint8", name, "cpu", data, whole)
    rest: tuple[Any, ...] = (False, Ordered())
    maker = "_rebuild_tensor_v2" if kind else "_rebuild_tensor_v3"
    if kind is None:
        rest = (*rest, Global("torch", dtype))
    size, stride = tuple(tensor.shape), tuple(tensor.stride())
    return Tensor(storage, int(tensor.storage_offset()), size, stride, Global("torch._utils", maker), rest)
