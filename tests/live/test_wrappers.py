"""Wrappers come off in any order, from models and from the keys of their checkpoints."""

from __future__ import annotations

import copy
import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn import BatchNorm1d, Linear, Module, ReLU, Sequential

import clearstate as cs


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone, for wrappers that want one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def net() -> Sequential:
    return Sequential(Linear(3, 3), BatchNorm1d(3), ReLU())


def compiled(model: Module) -> Module:
    return torch.compile(model, backend="eager")  # type: ignore[return-value]


WRAPS: dict[str, Callable[[Any], Module]] = {
    "DataParallel": torch.nn.DataParallel,
    "DDP": torch.nn.parallel.DistributedDataParallel,
    "compiled": compiled,
    "checkpointed": checkpoint_wrapper,
    "averaged": torch.optim.swa_utils.AveragedModel,
}
NESTED = [
    *itertools.chain.from_iterable(
        itertools.permutations(("DataParallel", "DDP", "compiled", "checkpointed"), n) for n in (1, 2, 3)
    ),
    ("averaged",),
    ("compiled", "averaged"),
    ("averaged", "DataParallel"),
]


@pytest.mark.parametrize("order", NESTED, ids="-".join)
def test_wrappers_come_off_in_any_order_from_the_model_and_from_its_keys(
    one_process: None, order: tuple[str, ...]
) -> None:
    model: Module = net()
    wrapped = model
    for name in order:
        wrapped = WRAPS[name](wrapped)
    inside = cs.unwrap(wrapped)
    assert type(inside) is Sequential
    assert (inside is model) == ("averaged" not in order), "an average is a copy"
    table = cs.unwrap(wrapped.state_dict())
    table.pop("n_averaged", None)
    assert list(table) == list(model.state_dict())
    bare = net()
    bare.load_state_dict(table)
    for key, value in bare.state_dict().items():
        assert torch.equal(value, model.state_dict()[key])


@pytest.mark.filterwarnings("ignore:.*NO_SHARD.*:UserWarning", "ignore:.*NO_SHARD.*:FutureWarning")
def test_fsdp_of_the_first_kind_comes_off_and_of_the_second_is_the_model_itself(one_process: None) -> None:
    model = net()
    first = FullyShardedDataParallel(net(), use_orig_params=True, device_id=torch.device("cpu"))
    assert type(cs.unwrap(compiled(first))) is Sequential
    assert list(cs.unwrap(first.state_dict())) == list(model.state_dict())
    sharded: Any = fully_shard(copy.deepcopy(model))
    assert cs.unwrap(sharded) is sharded
    assert cs.unwrap(compiled(sharded)) is sharded
    assert list(cs.unwrap(sharded.state_dict())) == list(model.state_dict())


def test_a_part_keeps_its_wrapper_in_the_model_and_loses_it_in_the_keys() -> None:
    model = net()
    keys = list(model.state_dict())
    model[0] = checkpoint_wrapper(model[0])
    model[1] = compiled(model[1])
    part = model[0]
    assert cs.unwrap(torch.nn.DataParallel(model)) is model
    assert model[0] is part
    assert list(cs.unwrap(torch.nn.DataParallel(model).state_dict())) == keys


def test_names_that_only_contain_such_a_word_and_last_steps_stay() -> None:
    table = {
        "module.my_module.weight": 1,
        "submodule.weight": 2,
        "module.encoder.module": 3,
        "encoder.module_.bias": 4,
        "_orig_mod.module._fsdp_wrapped_module._checkpoint_wrapped_module.scale": 5,
        "module": 6,
    }
    assert cs.unwrap(table) == {
        "my_module.weight": 1,
        "submodule.weight": 2,
        "encoder.module": 3,
        "encoder.module_.bias": 4,
        "scale": 5,
        "module": 6,
    }


def test_the_table_is_new_of_the_same_class_and_keeps_its_metadata_and_values() -> None:
    wrapped = torch.nn.DataParallel(net())
    old = wrapped.state_dict()
    bare = net().state_dict()
    new = cs.unwrap(old)
    assert type(new) is OrderedDict
    assert next(iter(old)).startswith("module."), "the table that was given stays"
    assert new["0.weight"] is old["module.0.weight"]
    assert vars(new)["_metadata"]["1"]["version"] == 2, "batch norm's version goes along"
    assert vars(new)["_metadata"] == vars(bare)["_metadata"]


def test_keys_that_would_become_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"module\.a\.weight and a\.weight would both become a\.weight"):
        cs.unwrap({"module.a.weight": 1, "a.weight": 2})


def test_what_is_neither_model_nor_state_dict_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a torch\.nn\.Module or a state_dict, not str"):
        cs.unwrap("model.pt")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="keys are text, not 3"):
        cs.unwrap({3: 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["DataParallel", "DDP", "compiled", "checkpointed"])
def test_clearing_and_inspecting_look_through_wrappers_with_paths_from_what_was_given(
    one_process: None, name: str
) -> None:
    model: Any = net()
    wrapped = WRAPS[name](model)
    wrapped(torch.randn(4, 3)).sum().backward()
    model[0].seen = model[0](torch.randn(4, 3))
    step = next(key for key in wrapped._modules)
    assert [e.path for e in cs.inspect(wrapped).select("transient")] == [f"{step}.0.seen"]
    assert [e.path for e in cs.inspect(cs.unwrap(wrapped)).select("transient")] == ["0.seen"]
    cs.clear_state(wrapped)
    assert not hasattr(model[0], "seen")
    wrapped(torch.randn(4, 3)).sum().backward()
