"""One file of weights cleared into another folder: what makes it a model that loads goes along, as with shards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import clearstate as cs

from .conftest import Command

TEXTS = {"config.json": "{}", "tokenizer.json": "{}", "vocab.txt": "a\nb\n", "README.md": "# A model", "custom.py": ""}
LEFT = {"flax_model.msgpack": b"x", "training_args.bin": b"PK"}


def laid(folder: Path, name: str = "model.safetensors", config: str = "config.json") -> str:
    """A model's folder with one file of weights, and with others that may hold some."""
    folder.mkdir(parents=True)
    for text, content in TEXTS.items():
        (folder / (config if text == "config.json" else text)).write_text(content)
    for other, data in {**LEFT, ".gitattributes": b"*"}.items():
        (folder / other).write_bytes(data)
    (folder / "checkpoint-5").mkdir()
    (folder / "checkpoint-5/config.json").write_text("{}")
    weights = {"w": torch.ones(3)}
    if name.endswith(".bin"):
        torch.save(weights, folder / name)
    else:
        safetensors.torch.save_file(weights, folder / name)
    return f"{folder}/{name}"


def names(folder: str | Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


FOLDERS = [
    ("old", "model.safetensors", "config.json"),
    ("old", "model.fp16.safetensors", "config.json"),
    ("old", "pytorch_model.bin", "config.json"),
    ("old", "adapter_model.safetensors", "adapter_config.json"),
    ("old", "adapter_model.bin", "adapter_config.json"),
    ("pipe/unet", "diffusion_pytorch_model.safetensors", "config.json"),
    ("pipe/vae", "diffusion_pytorch_model.fp16.bin", "config.json"),
    ("old", "open_clip_model.safetensors", "open_clip_config.json"),
]


@pytest.mark.parametrize("python", [False, True], ids=["command", "python"])
@pytest.mark.parametrize("folder, name, config", FOLDERS)
def test_configuration_and_tokenizer_go_along_with_one_file_and_what_stays_is_named(
    command: Command, here: Path, folder: str, name: str, config: str, python: bool
) -> None:
    path = laid(here / folder, name, config)
    if python:
        said = "; ".join(cs.clear_file(path, "new/").done)
    else:
        done = command("clear", path, "-o", "new/")
        assert (done.code, done.err) == (0, "")
        said = " ".join(done.out.split()).replace("Copied", "copied").replace("Not copied", "not copied")
    assert names("new") == {name, *TEXTS} - {"config.json"} | {config}
    assert "copied beside the new file: " in said
    assert "not copied, since these may hold weights of their own: flax_model.msgpack, training_args.bin" in said


@pytest.mark.parametrize("output", ["new/", "new", "new/model.safetensors", "new/../new/model.fp16.safetensors"])
def test_the_other_folder_may_be_said_in_any_way_and_what_it_has_stays(
    command: Command, here: Path, output: str
) -> None:
    Path("new").mkdir()
    Path("new/README.md").write_text("mine")
    path = laid(here / "old")
    done = command("clear", path, "-o", output)
    assert (done.code, done.err) == (0, "")
    assert {"config.json", "tokenizer.json", "vocab.txt"} < names("new")
    assert Path("new/README.md").read_text() == "mine"
    assert "README.md" not in done.out


def test_in_python_an_existing_folder_may_be_the_output(here: Path) -> None:
    Path("new").mkdir()
    done = cs.clear_file(Path(laid(here / "old")), Path("new"))
    assert done.path == "new/model.safetensors"
    assert names("new") == {"model.safetensors", *TEXTS}


@pytest.mark.parametrize("output", ["old/small.safetensors", "old/model.small.safetensors", "link/model.b.safetensors"])
def test_in_the_same_folder_nothing_is_copied(command: Command, here: Path, output: str) -> None:
    path = laid(here / "old")
    os.symlink("old", "link")
    before = names("old")
    done = command("clear", path, "-o", output)
    assert names("old") == before | {Path(output).name}
    assert "opied" not in done.out


@pytest.mark.parametrize("words", [["--in-place"], ["--dry-run"]], ids=str)
def test_without_another_folder_nothing_is_copied(command: Command, here: Path, words: list[str]) -> None:
    path = laid(here / "old")
    before = names(here)
    assert "opied" not in command("clear", path, *words).out
    assert names(here) == before


@pytest.mark.parametrize("output", ["new/", "new/model.safetensors"])
def test_a_dry_run_says_what_would_be_copied_and_copies_nothing(command: Command, here: Path, output: str) -> None:
    path = laid(here / "old")
    done = command("clear", path, "-o", output, "--dry-run")
    assert done.out.count("Copied beside the new file: README.md, config.json") == 1
    assert done.out.count("Not copied, since these may hold weights") == 1
    assert not Path("new").exists()


def test_from_a_folder_that_no_loader_knows_nothing_is_copied_and_nothing_said(command: Command, here: Path) -> None:
    path = laid(here / "old")
    Path("old/config.json").unlink()
    done = command("clear", path, "-o", "new/")
    assert names("new") == {"model.safetensors"}
    assert "opied" not in done.out


@pytest.mark.parametrize("name, output", [("last.safetensors", "new/"), ("model.safetensors", "new/net.safetensors")])
def test_where_no_loader_would_look_nothing_is_copied(command: Command, here: Path, name: str, output: str) -> None:
    path = laid(here / "old", name)
    Path("new").mkdir()
    assert "opied" not in command("clear", path, "-o", output).out
    assert len(names("new")) == 1


def test_a_file_that_cannot_be_cleared_takes_nothing_along(command: Command, here: Path) -> None:
    Path(laid(here / "old")).write_bytes(b"\x08" + bytes(7) + b"{broken}")
    assert command("clear", "old/model.safetensors", "-o", "new/").code == 2
    assert names("new") == set()


def test_files_that_are_cleared_together_stay_no_one_behind(command: Command, here: Path) -> None:
    laid(here / "a")
    torch.save({"w": torch.ones(3)}, "a/pytorch_model.bin")
    laid(here / "b", "adapter_model.safetensors", "adapter_config.json")
    done = command("clear", "a/model.safetensors", "a/pytorch_model.bin", "b/adapter_model.safetensors", "-o", "new/")
    assert (done.code, done.err) == (0, "")
    assert names("new") == {
        "model.safetensors",
        "pytorch_model.bin",
        "adapter_model.safetensors",
        "adapter_config.json",
        *TEXTS,
    }
    said = " ".join(done.out.split())
    assert "a: copied beside the new file: README.md, config.json" in said
    assert "b: copied beside the new file: adapter_config.json" in said
    assert "pytorch_model.bin" not in said.partition("files cleared")[2]


def test_of_a_whole_folder_it_is_said_once_what_went_along(command: Command, here: Path) -> None:
    laid(here / "old")
    done = command("clear", "old", "-o", "new/")
    assert "Went along from old: README.md, config.json" in done.out
    assert "beside the new file" not in done.out


@pytest.fixture
def elsewhere() -> Iterator[Any]:
    """A store that is reached by addresses, in memory."""
    fsspec = pytest.importorskip("fsspec")
    store = fsspec.filesystem("memory")
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.mark.parametrize("python", [False, True], ids=["command", "python"])
@pytest.mark.parametrize(
    "source, target",
    [("memory://in/m/", "new/"), ("old/", "memory://out/m/"), ("memory://in/m/", "memory://out/m/")],
)
def test_elsewhere_it_is_the_same(
    command: Command, here: Path, elsewhere: Any, source: str, target: str, python: bool
) -> None:
    laid(here / "old")
    for path in (here / "old").iterdir():
        if path.is_file():
            elsewhere.pipe(f"/in/m/{path.name}", path.read_bytes())
    if target.startswith("memory"):
        elsewhere.pipe("/out/m/README.md", b"mine")
    else:
        Path("new").mkdir()
        Path("new/README.md").write_text("mine")
    if python:
        said = " ".join(cs.clear_file(f"{source}model.safetensors", target).done)
    else:
        done = command("clear", f"{source}model.safetensors", "-o", target)
        assert (done.code, done.err) == (0, "")
        said = " ".join(done.out.split())
    if target.startswith("memory"):
        new = {Path(name).name: elsewhere.cat(name) for name in elsewhere.find("/out/m")}
    else:
        new = {path.name: path.read_bytes() for path in Path("new").iterdir()}
    assert new.keys() == {"model.safetensors", *TEXTS}
    assert new["README.md"] == b"mine"
    assert "opied beside the new file: config.json, custom.py, tokenizer.json, vocab.txt" in said
    assert "flax_model.msgpack, training_args.bin" in said


@pytest.mark.parametrize("target", ["memory://out/m/", "memory://out/m/model.safetensors.index.json"])
def test_with_shards_too_what_is_elsewhere_already_stays(here: Path, elsewhere: Any, target: str) -> None:
    laid(here / "old", "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": {"w": "model-00001-of-00001.safetensors"}}
    Path("old/model.safetensors.index.json").write_text(json.dumps(index))
    elsewhere.pipe("/out/m/README.md", b"mine")
    done = cs.clear_file("old/model.safetensors.index.json", target)
    assert done.path == "memory://out/m/model.safetensors.index.json"
    assert elsewhere.cat("/out/m/README.md") == b"mine"
    there = {Path(name).name for name in elsewhere.find("/out/m")}
    assert there == {"model.safetensors.index.json", "model-00001-of-00001.safetensors", *TEXTS}
    assert "copied beside the new index: config.json, custom.py, tokenizer.json, vocab.txt" in done.done


def test_transformers_loads_the_cleared_model_and_its_tokenizer_from_the_new_folder(
    command: Command, here: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "vocab_size": 8,
    }
    model = transformers.BertModel(transformers.BertConfig(**sizes))
    model.save_pretrained("old")
    Path("old/vocab.txt").write_text("[UNK]\n[SEP]\n[PAD]\n[CLS]\n[MASK]\na\nb\n")
    Path("old/tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    torch.save({"state": {}, "param_groups": []}, "old/optimizer.pt")
    done = command("clear", "old/model.safetensors", "-o", "new/", "--dtype", "float16")
    assert "own: optimizer.pt" in " ".join(done.out.split())
    again = transformers.BertModel.from_pretrained("new")
    for name, value in model.state_dict().items():
        assert torch.equal(value.half().float(), again.state_dict()[name].float()), name
    words = transformers.AutoTokenizer.from_pretrained("new").tokenize("a b")
    assert words == transformers.AutoTokenizer.from_pretrained("old").tokenize("a b")
