"""One model in every format: each becomes each other, and is the same model there; one changed element is named."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import clearstate as cs

from .programs import Net, training
from .samples import sharing
from .test_programs import equal, read

State = dict[str, torch.Tensor]


def fresh() -> Net:
    """A net whose buffers have storages of their own: safetensors refuses to save, or to load, any other."""
    net = Net()
    net.register_buffer("anchors", net.get_buffer("anchors").clone())
    return net


def _zip(state: State, folder: Path) -> Path:
    torch.save(state, folder / "x.pt")
    return folder / "x.pt"


def _legacy(state: State, folder: Path) -> Path:
    torch.save(state, folder / "x.pth", _use_new_zipfile_serialization=False)
    return folder / "x.pth"


def _checkpoint(state: State, folder: Path) -> Path:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
    torch.save({"state_dict": state, "optimizer": optimizer.state_dict(), "epoch": 3}, folder / "x.ckpt")
    return folder / "x.ckpt"


def _module(state: State, folder: Path) -> Path:
    net = Net()
    net.load_state_dict(state)
    torch.save(net, folder / "whole.pt")
    return folder / "whole.pt"


def _safetensors(state: State, folder: Path) -> Path:
    net = fresh()
    net.load_state_dict(state)
    safetensors.torch.save_model(net, str(folder / "x.safetensors"))
    return folder / "x.safetensors"


def _shards(state: State, folder: Path, ending: str) -> Path:
    names = sorted(set(state) - {"tied.weight"})
    parts = {f"model-0000{i + 1}-of-00002.{ending}": names[i::2] for i in range(2)}
    for part, held in parts.items():
        tensors = {name: state[name].clone() for name in held}
        if ending == "safetensors":
            safetensors.torch.save_file(tensors, folder / part, {"format": "pt"})
            continue
        if "first.weight" in held:
            tensors["tied.weight"] = tensors["first.weight"]
        torch.save(tensors, folder / part)
    places = {name: part for part, held in parts.items() for name in held}
    if ending == "bin":
        places["tied.weight"] = places["first.weight"]
    index = folder / f"model.{ending}.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return index


FORMATS: dict[str, Callable[[State, Path], Path]] = {
    "zip": _zip,
    "legacy": _legacy,
    "checkpoint": _checkpoint,
    "module": _module,
    "safetensors": _safetensors,
    "shards of zips": lambda state, folder: _shards(state, folder, "bin"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("formats")
    state = training().net.state_dict()
    return {name: write(state, folder) for name, write in FORMATS.items()}


@pytest.mark.parametrize("a", FORMATS)
@pytest.mark.parametrize("b", FORMATS)
def test_the_same_model_is_the_same_in_every_pair_of_formats(a: str, b: str, files: dict[str, Path]) -> None:
    verdict = cs.verify(files[a], files[b])
    whole = {"checkpoint", "module"}
    if a != b and "safetensors" not in (a, b) and "shards of zips" not in (a, b) and whole & {a, b}:
        assert not verdict, "a checkpoint is more than a state dict"
        return
    assert verdict, str(verdict)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("other", ["safetensors", "zip", "shards of zips"])
def test_a_changed_element_is_named_in_every_pair_of_formats(
    name: str, other: str, files: dict[str, Path], tmp_path: Path
) -> None:
    net = training().net
    net.norm.bias.data[2] += 0.5
    state = net.state_dict()
    changed = FORMATS[name](state, tmp_path)
    if name in ("checkpoint", "module") and other == "zip":
        return
    for a, b in ((changed, files[other]), (files[other], changed)):
        verdict = cs.verify(a, b)
        texts = [str(difference) for difference in verdict.differences]
        assert len(texts) == 1, texts
        assert "norm.bias: 1 of 4 elements differ, by at most 0.5" in texts[0]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_becomes_safetensors_and_its_own_loaders_take_it(
    name: str, files: dict[str, Path], tmp_path: Path
) -> None:
    new = tmp_path / "new.safetensors"
    cs.clear_file(files[name], new)
    state = training().net.state_dict()
    found = safetensors.torch.load_file(new)
    equal({key: state[key] for key in found}, found)
    assert state.keys() - found.keys() in ({"tied.weight"}, {"first.weight"})
    net = fresh()
    missing, unexpected = safetensors.torch.load_model(net, str(new))
    assert (list(missing), unexpected) == ([], []) or set(missing) <= {"tied.weight", "first.weight"}
    equal(dict(state), dict(net.state_dict()))
    assert net.first.weight is net.tied.weight
    assert cs.verify(files[name], new)


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_becomes_a_pt_file_with_its_ties(name: str, files: dict[str, Path], tmp_path: Path) -> None:
    between, new = tmp_path / "between.safetensors", tmp_path / "new.pt"
    cs.clear_file(files[name], between)
    cs.clear_file(between, new)
    made = torch.load(new, weights_only=True)
    state = training().net.state_dict()
    equal(dict(state), {key: made[key] for key in state})
    assert made.keys() == state.keys()
    assert made["first.weight"].data_ptr() == made["tied.weight"].data_ptr()
    Net().load_state_dict(made)
    assert cs.verify(between, new)
    assert cs.verify(files[name], new) or name in ("checkpoint", "module")


def test_shards_become_one_pt_file(files: dict[str, Path], tmp_path: Path) -> None:
    cs.clear_file(files["shards of zips"], tmp_path / "new.pt")
    made = torch.load(tmp_path / "new.pt", weights_only=True)
    equal(dict(training().net.state_dict()), {key: made[key] for key in training().net.state_dict()})
    assert made["first.weight"].data_ptr() == made["tied.weight"].data_ptr()


def test_a_legacy_file_stays_one(files: dict[str, Path], tmp_path: Path) -> None:
    cs.clear_file(files["legacy"], tmp_path / "new.pth")
    made = read(tmp_path / "new.pth")
    assert (tmp_path / "new.pth").read_bytes()[:2] == b"\x80\x02"
    equal(dict(read(files["legacy"])), dict(made))
    assert sharing(read(files["legacy"])) == sharing(made)


def test_a_plain_pickle_without_tensors_stays_one(tmp_path: Path) -> None:
    value = {"names": ["a", "b"], "n": 3, "optimizer": {"state": {}, "param_groups": []}}
    (tmp_path / "x.bin").write_bytes(pickle.dumps(value, 4))
    cs.clear_file(tmp_path / "x.bin", tmp_path / "new.bin")
    assert pickle.loads((tmp_path / "new.bin").read_bytes()) == {"names": ["a", "b"], "n": 3}


@pytest.mark.parametrize("value", [{"epoch": 3}, [1, 2], None, {"model": {}}], ids=str)
def test_without_tensors_there_is_nothing_for_safetensors(value: Any, tmp_path: Path) -> None:
    torch.save(value, tmp_path / "old.pt")
    with pytest.raises(cs.ClearstateError, match="safetensors"):
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.safetensors")
    assert os.listdir(tmp_path) == ["old.pt"]


def test_what_else_a_state_dict_holds_is_named_before_anything_is_written(tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.ones(2), "head": {"extra": [1, 2]}}}, tmp_path / "old.pt")
    with pytest.raises(cs.ClearstateError, match=r"head\.extra is none; --drop '\*head\.extra' leaves it out"):
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.safetensors")
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.safetensors", drop=["*head.extra"])
    assert safetensors.torch.load_file(tmp_path / "new.safetensors").keys() == {"w"}


@pytest.mark.parametrize(
    "tensor",
    [torch.eye(3).to_sparse(), torch.empty(2, device="meta"), torch.view_as_complex(torch.ones(2, 2)).conj()],
    ids=["sparse", "meta", "conjugated"],
)
def test_a_tensor_that_safetensors_cannot_hold_is_named(tensor: torch.Tensor, tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2), "odd": tensor}, tmp_path / "old.pt")
    with pytest.raises(cs.ClearstateError, match="odd"):
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.safetensors")
    assert os.listdir(tmp_path) == ["old.pt"]
