"""What a command does with an opened checkpoint, in the words that all formats share."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import BinaryIO

from ...errors import ClearstateError
from ...inventory import Inventory
from ...roles import Role
from ...wording import some
from ..changes import FOREIGN, Changes, Dropped, asked_by
from ..differences import Difference
from .container.file import File
from .container.kinds import CONTAINERS, layout_for
from .copies.finding import copies, path_of
from .layout.models import main_model, places
from .layout.naming import what_was
from .layout.programs import class_of, is_module, is_program, is_subclass, tensor_in
from .meaning.inventory import inspect_file
from .meaning.survey import survey, topmost
from .pickle.stubs import Tensor

Check = Callable[[str, File], None]
Watch = Callable[[BinaryIO], BinaryIO]


def open_as(path: str, kind: str) -> File:
    """Opens a file that `formats.readers` takes for one of this kind."""
    if kind != "sharded":
        return CONTAINERS[kind].open(path)
    from .container.shards import open_sharded

    return open_sharded(path)


def reopen(path: str, file: File) -> File:
    """Opens another file of the layout that ``file`` has."""
    return open_as(path, file.layout)


def inventory(file: File, size: int | None = None) -> Inventory:
    """What the file holds; of one that was changed, with the bytes it will have."""
    return inspect_file(file if size is None else replace(file, size=size))


def going(file: File, changes: Changes, before: Inventory) -> list[Dropped]:
    """What `change` takes away, by entries of the checkpoint: what is inside one is not told again."""
    entries = topmost(survey(file.root, changes).going)
    return [Dropped(entry.path, entry.role, what_was(entry.path, entry.role, entry.value)) for entry in entries]


def change(file: File, changes: Changes) -> list[str]:
    """Makes changes to what the file holds, in memory; says what was done besides dropping roles."""
    from .meaning.clearing import clear

    return clear(file, changes)


def left(file: File, changes: Changes) -> list[str]:
    """Paths of what `change` would still take away."""
    from .meaning.clearing import not_cleared

    return not_cleared(file, changes)


def aimed(file: File, target: str) -> tuple[File, list[str]]:
    """The same, to be written in the layout that the target's name asks for; and what has no place there.

    Raises:
        ClearstateError: the layout has no place for what the file holds.
    """
    from .container.shards import Sharded

    flat = file.flat
    layout = layout_for(target, file.layout)
    if isinstance(file, Sharded):
        if os.path.isdir(target) or target.endswith((os.sep, ".json")):
            from .container.companions import told

            return file, told(file, _folder(target))
        file = file.merged()
    if asked := asked_by(target, file.path, {**FOREIGN, ".t7": "a Torch7 file"}):
        raise ClearstateError(
            f"{target} is a name for {asked}, and a cleared checkpoint is still a checkpoint: "
            "name it .pt, .pth, .ckpt, .bin or .safetensors"
        )
    if layout == "safetensors" and not flat:
        _settle_copies(file)
        made = replace(file, layout=layout, root=_tensors(file), metadata={"format": "pt"})
        return made, _left_behind(file)
    if file.layout != layout and file.layout in ("safetensors", "sharded"):
        tied = {name: file.root[other] for name, other in file.metadata.items() if other in file.root}
        root = {**file.root, **tied} if layout == "zip" else file.root
        return replace(file, layout=layout, root=root, metadata={} if layout == "zip" else file.metadata), []
    return replace(file, layout=layout), []


def _folder(target: str) -> str:
    """The folder that shards are written to."""
    whole = os.path.isdir(target) or target.endswith(os.sep)
    return (target if whole else os.path.dirname(target)) or os.curdir


def _left_behind(file: File) -> list[str]:
    keys, model = main_model(file.root)
    if is_module(model) or is_program(model):
        return ["safetensors holds tensors only: the module's structure is not in the new file"]
    pairs = file.root.items() if isinstance(file.root, dict) else enumerate(file.root)
    others = [path_of((key,)) for key, value in pairs if key != keys[0] and value is not None] if keys else []
    verb = "has" if len(others) == 1 else "have"
    return [f"safetensors holds tensors only: {some(others, 5)} {verb} no place there"] if others else []


def _settle_copies(file: File) -> None:
    """Refuses a choice between the model and its averaged copy that nobody made."""
    keys, _ = main_model(file.root)
    own = f"{path_of(keys)}." if keys else ""
    for copy in copies(file.root):
        if own and copy.path.startswith(own):
            continue  # it is among the model's own tensors, and goes with them
        name, use = (
            ("an averaged copy of the model (EMA)", "ema")
            if copy.holds == "average"
            else ("a copy of the model", copy.path)
        )
        if copy.holds == "trained":
            name, use = "the model and its average (EMA), the weights as trained being", "ema"
        what = f"{file.path} has {name}, {copy.path}, and safetensors holds one model"
        raise ClearstateError(f"{what}: say --use {use} or --use model, or drop what is not to be in it")


def _tensors(file: File) -> dict[str, Tensor]:
    """The tensors of the model's state dict by name.

    Raises:
        ClearstateError: there are none, or the state dict holds something else besides.
    """
    found: dict[str, Tensor] = {}
    for name, place in places(main_model(file.root)[1]).items():
        tensor = tensor_in(place.value)
        if tensor is not None:
            found[name] = tensor
        elif is_subclass(place.value):
            raise ClearstateError(
                f"{name} is a tensor of the class {class_of(place.value)} (quantized, distributed or the like), and "
                "safetensors holds plain ones: save the model with plain tensors (torchao: weight.dequantize()), or "
                "name the output .pt"
            )
        elif place.value is not None:
            raise ClearstateError(f"safetensors holds tensors only, and {name} is none; --drop '*{name}' leaves it out")
    if not found:
        raise ClearstateError(f"{file.path} has no state dict whose tensors safetensors could hold")
    return found


def write(file: File, target: str, check: Check, watch: Watch) -> None:
    """Writes what the file holds, in its layout; ``check`` reads each finished file before it replaces anything."""
    from ..atomic import replacing
    from .container.shards import Sharded, write_sharded

    if isinstance(file, Sharded):
        from .container.companions import copy

        write_sharded(file, _folder(target), check, watch)
        copy(file, _folder(target))
        return
    with replacing(target, lambda path: check(path, file)) as handle:
        CONTAINERS[file.layout].write(file, watch(handle))


def size(file: File) -> int:
    """Bytes that `write` would write."""
    from .container.shards import Sharded, sharded_size

    if isinstance(file, Sharded):
        return sharded_size(file)
    return CONTAINERS[file.layout].size(file)


def written(file: File, target: str) -> int:
    """Bytes that `write` has written."""
    return size(file) if file.layout == "sharded" else os.path.getsize(target)


def differences(a: File, b: File, ignoring: Collection[Role] = ()) -> list[Difference]:
    """What differs between two files."""
    from .meaning.comparing import compare

    return compare(a, b, ignoring)
