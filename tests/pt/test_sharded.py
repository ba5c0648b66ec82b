"""Checkpoints in shards are read as one, checked against their index, and written back into the same files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from transformers import BertConfig, BertModel

import clearstate as cs
from clearstate.errors import ClearstateError, FormatError
from clearstate.formats.pt.container.file import File
from clearstate.formats.pt.container.shards import Sharded, open_sharded, write_sharded
from clearstate.formats.pt.meaning.comparing import compare
from clearstate.formats.pt.pickle.stubs import Tensor
from clearstate.formats.safetensors import open_safetensors

A, B = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"
VALUES = {
    "a.w": torch.arange(6.0).reshape(2, 3),
    "a.b": torch.ones(3),
    "c.w": torch.arange(4).half(),
    "c.n": torch.tensor(7),
}
PLACES = {"a.w": A, "a.b": A, "c.w": B, "c.n": B}


def bert() -> BertModel:
    torch.manual_seed(5)
    config = BertConfig(vocab_size=60, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24)
    return BertModel(config)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of two safetensors shards."""
    return laid(tmp_path / "sharded")


def laid(folder: Path, places: dict[str, str] = PLACES, **more: Any) -> Path:
    folder.mkdir()
    for shard in sorted(set(places.values())):
        part = {name: VALUES[name] for name, home in places.items() if home == shard}
        safetensors.torch.save_file(part, folder / shard, {"format": "pt"})
    say(folder, places, **more)
    return folder


def say(folder: Path, places: Any, **more: Any) -> None:
    index = {"metadata": {"total_size": 52}, "weight_map": places, **more}
    (folder / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def pickled(folder: Path, zipped: bool) -> Path:
    """The same, in two shards of `torch.save`."""
    folder.mkdir()
    places = {
        name: home.replace("model", "pytorch_model").replace("safetensors", "bin") for name, home in PLACES.items()
    }
    for shard in sorted(set(places.values())):
        part = {name: VALUES[name] for name, home in places.items() if home == shard}
        torch.save(part, folder / shard, _use_new_zipfile_serialization=zipped)
    index = {"metadata": {"total_size": 52}, "weight_map": places}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def copied(file: Sharded, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    write_sharded(file, str(folder))
    return folder


def holds(file: File, values: dict[str, torch.Tensor]) -> None:
    assert file.root.keys() == values.keys()
    for name, value in values.items():
        tensor: Tensor = file.root[name]
        assert f"torch.{tensor.dtype}" == str(value.dtype)
        assert tensor.numpy().tobytes() == value.numpy().tobytes()
        assert tensor.size == tuple(value.shape)


@pytest.mark.parametrize("inside", ["", INDEX], ids=["folder", "index"])
def test_shards_are_read_as_one(folder: Path, inside: str) -> None:
    file = open_sharded(str(folder / inside))
    holds(file, VALUES)
    assert (file.layout, file.kind) == ("sharded", "2 shards (safetensors file)")
    assert list(file.shards) == [A, B]
    assert file.size == sum(len(data) for data in contents(folder).values())
    assert len(file.storages) == 4


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_shards_of_torch_save_are_read_and_written_too(tmp_path: Path, zipped: bool) -> None:
    file = open_sharded(str(pickled(tmp_path / "a", zipped)))
    holds(file, VALUES)
    file.root.pop("a.b")
    target = copied(file, tmp_path / "b")
    left = {name: value for name, value in VALUES.items() if name != "a.b"}
    holds(open_sharded(str(target)), left)
    index = json.loads((target / "pytorch_model.bin.index.json").read_text())
    assert index["metadata"] == {"total_size": 24 + 8 + 8}
    for shard in set(index["weight_map"].values()):
        assert zipped is ((target / shard).read_bytes()[:2] == b"PK")
        for name, value in torch.load(target / shard, weights_only=True).items():
            assert torch.equal(value, left[name])


def test_what_is_written_unchanged_is_the_same_byte_for_byte(tmp_path: Path, folder: Path) -> None:
    before = contents(folder)
    assert contents(copied(open_sharded(str(folder)), tmp_path / "copy")) == before
    write_sharded(open_sharded(str(folder)), str(folder))
    assert contents(folder) == before


def test_a_model_of_transformers_is_read_whole_and_loads_again_in_it(tmp_path: Path) -> None:
    model = bert()
    model.save_pretrained(tmp_path / "model", max_shard_size="8KB")
    before = contents(tmp_path / "model")
    shards = [name for name in before if name.endswith(".safetensors")]
    assert len(shards) > 2
    file = open_sharded(str(tmp_path / "model"))
    assert len(file.shards) == len(shards)
    holds(file, model.state_dict())
    after = contents(copied(file, tmp_path / "copy"))
    assert {name: after[name] for name in shards} == {name: before[name] for name in shards}
    assert json.loads(after[INDEX]) == json.loads(before[INDEX])
    (tmp_path / "copy" / "config.json").write_bytes(before["config.json"])
    again = BertModel.from_pretrained(tmp_path / "copy")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in again.state_dict().items())


@pytest.mark.parametrize("target", ["new/", "new/model.safetensors.index.json"])
def test_a_saved_model_is_cleared_into_another_folder_and_loads_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    model = bert()
    model.save_pretrained("old", max_shard_size="8KB")
    beside = {"vocab.txt": b"a\nb\n", "tokenizer.json": b"{}", "training_args.bin": b"PK", "flax_model.msgpack": b"x"}
    for name, data in {**beside, ".hidden": b""}.items():
        Path("old", name).write_bytes(data)
    Path("old", "checkpoint-5").mkdir()
    Path("new").mkdir()
    Path("new", "vocab.txt").write_text("mine")
    report = cs.clear_file("old/" + INDEX, target, dtype="float16")
    config = "config.json"
    assert report.done[1:] == (
        f"copied beside the new index: {config}, tokenizer.json",
        "not copied, since these may hold weights of their own: flax_model.msgpack, training_args.bin",
    )
    old, new = contents(Path("old")), contents(Path("new"))
    assert old.keys() - new.keys() == {"training_args.bin", "flax_model.msgpack", ".hidden"}
    assert (new[config], new["tokenizer.json"], new["vocab.txt"]) == (old[config], b"{}", b"mine")
    again = BertModel.from_pretrained("new")
    for name, value in model.state_dict().items():
        assert torch.equal(value.half().float(), again.state_dict()[name].float()), name


def test_nothing_is_copied_where_shards_are_replaced_or_become_one_file(tmp_path: Path) -> None:
    folder = laid(tmp_path / "old")
    (folder / "config.json").write_text("{}")
    before = contents(folder)
    assert cs.clear_file(folder / INDEX, in_place=True).done == ()
    assert contents(folder) == before
    assert cs.clear_file(folder / INDEX, tmp_path / "one.safetensors").done == ()
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["old", "one.safetensors"]
    assert cs.clear_file(folder / INDEX, str(tmp_path / "new") + "/", dry_run=True).done != ()
    assert not (tmp_path / "new").exists()


def test_what_is_dropped_goes_from_its_shard_and_the_index(tmp_path: Path) -> None:
    folder = laid(tmp_path / "x", by="me")
    file = open_sharded(str(folder))
    file.index["metadata"]["total_parameters"] = 14
    del file.root["c.w"], file.root["c.n"], file.root["a.b"]
    write_sharded(file, str(folder))
    index = json.loads((folder / INDEX).read_text())
    assert index == {"by": "me", "metadata": {"total_size": 24}, "weight_map": {"a.w": A}}
    assert safetensors.torch.load_file(folder / A).keys() == {"a.w"}
    assert safetensors.torch.load_file(folder / B) == {}
    holds(open_sharded(str(folder)), {"a.w": VALUES["a.w"]})


def test_a_new_name_goes_where_its_value_was(tmp_path: Path, folder: Path) -> None:
    file = open_sharded(str(folder))
    file.root = {f"model.{name}": value for name, value in file.root.items()}
    target = copied(file, tmp_path / "renamed")
    assert json.loads((target / INDEX).read_text())["weight_map"] == {f"model.{n}": home for n, home in PLACES.items()}
    holds(open_sharded(str(target)), {f"model.{name}": value for name, value in VALUES.items()})


def test_tensors_tied_in_a_shard_are_written_once_and_the_index_names_the_one(tmp_path: Path, folder: Path) -> None:
    file = open_sharded(str(folder))
    file.root["a.tied"] = file.root["a.w"]
    target = copied(file, tmp_path / "tied")
    index = json.loads((target / INDEX).read_text())
    assert index["metadata"]["total_size"] == 24 + 12 + 8 + 8
    assert open_safetensors(str(target / A)).metadata == {"format": "pt", "a.w": "a.tied"}
    assert index["weight_map"] == {"a.tied": A, "a.b": A, "c.w": B, "c.n": B}
    open_sharded(str(target))


@pytest.mark.parametrize("value", [{}, 3, "tensor"])
def test_what_belongs_to_no_shard_is_refused_before_anything_is_written(folder: Path, value: Any) -> None:
    before = contents(folder)
    file = open_sharded(str(folder))
    other = open_sharded(str(folder)).root["a.w"]
    file.root["new"] = other if value == "tensor" else value
    with pytest.raises(ClearstateError, match="'new' was in no shard"):
        write_sharded(file, str(folder))
    file = open_sharded(str(folder))
    file.root["c.w"] = value
    with pytest.raises(ClearstateError, match=r"'c\.w' is no tensor"):
        write_sharded(file, str(folder))
    assert contents(folder) == before


def test_a_failed_check_leaves_its_shard_and_the_index_as_they_were(folder: Path) -> None:
    before = contents(folder)
    file = open_sharded(str(folder))
    del file.root["a.b"], file.root["c.w"]
    seen: list[str] = []

    def check(path: str, expected: File) -> None:
        assert compare(open_safetensors(path), expected) == []
        seen.extend(expected.root)
        if "c.n" in expected.root:
            raise ClearstateError("no")

    with pytest.raises(ClearstateError, match="no"):
        write_sharded(file, str(folder), check)
    assert seen == ["a.w", "c.n"]
    after = contents(folder)
    assert after.keys() == before.keys()
    assert (after[B], after[INDEX]) == (before[B], before[INDEX])
    assert after[A] != before[A]


def test_a_tensor_that_the_index_does_not_name_is_read_all_the_same(folder: Path) -> None:
    say(folder, {"a.w": A, "c.w": B})
    holds(open_sharded(str(folder)), VALUES)


def refusal(folder: Path) -> str:
    with pytest.raises(FormatError) as caught:
        open_sharded(str(folder))
    return str(caught.value)


def test_a_missing_shard_is_named(folder: Path) -> None:
    os.unlink(folder / B)
    assert f"expected the shard {B} beside the index, found no such file" in refusal(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    say(folder, {**PLACES, "d.w": B})
    assert f"expected 'd.w' in {B}, where the index has it, found none" in refusal(folder)


def test_a_tensor_in_another_shard_is_named_with_both(folder: Path) -> None:
    say(folder, {**PLACES, "a.b": B})
    assert f"expected 'a.b' in {B}, where the index has it, found it in {A}" in refusal(folder)


def test_a_tensor_in_two_shards_is_named_with_both(folder: Path) -> None:
    safetensors.torch.save_file({**VALUES}, folder / B)
    text = refusal(folder)
    assert "in one shard, found it in" in text
    assert A in text
    assert B in text


def test_a_damaged_shard_is_refused_under_its_own_name(folder: Path) -> None:
    (folder / B).write_bytes((folder / B).read_bytes()[:-1])
    text = refusal(folder)
    assert B in text
    assert "1 bytes are missing" in text


def test_a_shard_that_holds_no_tensors_by_name_is_refused(folder: Path) -> None:
    torch.save([1, 2], folder / B)
    assert "a dict of tensors by name" in refusal(folder)
    torch.save({3: torch.ones(1)}, folder / B)
    assert "a dict of tensors by name" in refusal(folder)
    (folder / B).write_text("<!DOCTYPE html>")
    assert f"a shard {B} that PyTorch or safetensors wrote" in refusal(folder)


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/passwd", "..", "", "sub/x", "a\\b", "C:x", "x\0y", 3, None, [A]]
)
def test_an_index_that_points_out_of_its_folder_is_refused(folder: Path, name: Any) -> None:
    (folder.parent / "x.safetensors").write_bytes((folder / A).read_bytes())
    say(folder, {**PLACES, "a.w": name})
    assert "the name of a file beside the index, for 'a.w'" in refusal(folder)


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "an index in JSON"),
        ("{", "an index in JSON"),
        ("\udcff", "an index in JSON"),
        ("[]", "with a weight_map"),
        ("{}", "with a weight_map"),
        ('{"weight_map": []}', "with a weight_map"),
        ('{"weight_map": {}, "metadata": 3}', "with a weight_map"),
        ('{"weight_map": {"a": "x", "a": "y"}}', "'a' twice"),
        ('{"weight_map": ' + "[" * 90_000, "a nest without end"),
        ("[" + "[]," * 200_000 + "[]]", "a heap of lists"),
        ('{"a":' * 200_000, "a heap of lists"),
    ],
    ids=range(11),
)
def test_an_index_that_makes_no_sense_is_refused(folder: Path, text: str, words: str) -> None:
    (folder / INDEX).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert words in refusal(folder / INDEX)


def test_a_folder_without_an_index_or_with_two_is_refused(folder: Path) -> None:
    (folder / "pytorch_model.bin.index.json").write_text('{"weight_map": {}}')
    assert f"{INDEX} and pytorch_model.bin.index.json" in refusal(folder)
    holds(open_sharded(str(folder / INDEX)), VALUES)
    for path in folder.glob("*.json"):
        path.unlink()
    assert "one index of shards" in refusal(folder)
