"""A whole folder cleared into another: what makes it a model that loads goes along, and what stays behind is named."""

from __future__ import annotations

from pathlib import Path

import pytest
import safetensors.torch
import torch

from .conftest import Command

TEXTS = {
    "model_index.json": "{}",
    "README.md": "# A model",
    "LICENSE": "MIT",
    "tokenizer/vocab.json": "{}",
    "tokenizer/merges.txt": "a b",
    "unet/config.json": "{}",
}
OTHERS = {"unet/net.onnx": b"\x08\x07", "samples/0.png": b"\x89PNG", "events.out": b"\1"}


@pytest.fixture
def folder(here: Path) -> str:
    """A model as diffusers has them: a folder with folders."""
    for name, data in {**{name: text.encode() for name, text in TEXTS.items()}, **OTHERS}.items():
        path = here / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (here / "model/.cache").mkdir()
    (here / "model/.cache/notes.json").write_text("{}")
    (here / "model/.gitattributes").write_text("*")
    safetensors.torch.save_file({"w": torch.ones(3)}, here / "model/unet/weights.safetensors")
    torch.save({"w": torch.ones(3)}, here / "model/text.pt")
    return "model"


def names(folder: str) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["model", "model/", "./model"])
def test_configuration_and_tokenizer_go_along_and_the_rest_is_named(command: Command, folder: str, name: str) -> None:
    done = command("clear", name, "-o", "new")
    assert (done.code, done.err) == (0, "")
    assert names("new") == {*TEXTS, "unet/weights.safetensors", "text.pt"}
    assert {name: Path("new", name).read_text() for name in TEXTS} == TEXTS
    said = " ".join(done.out.split())
    assert f"Went along from {name}: LICENSE, README.md, model_index.json, tokenizer/merges.txt" in said
    left = f"Not copied from {name}, since these may hold weights, or no loader asks for them: "
    assert f"{left}events.out, samples/0.png, unet/net.onnx." in said


def test_what_the_other_folder_has_stays_as_it_is_there(command: Command, folder: str) -> None:
    Path("new").mkdir()
    Path("new/README.md").write_text("mine")
    assert "README.md" not in command("clear", folder, "-o", "new").out
    assert Path("new/README.md").read_text() == "mine"


def test_a_dry_run_says_what_would_go_along_and_copies_nothing(command: Command, folder: str) -> None:
    assert "Went along from model: LICENSE" in command("clear", folder, "-o", "new/", "--dry-run").out
    assert not Path("new").exists()


def test_a_folder_in_the_folder_is_not_copied_into_itself(command: Command, folder: str) -> None:
    assert command("clear", folder, "-o", "model/new").code == 0
    assert command("clear", folder, "-o", "model/new").code == 0
    assert names("model/new") == {*TEXTS, "unet/weights.safetensors", "text.pt"}


@pytest.mark.parametrize("words", [["--in-place"], ["--dry-run"]], ids=str)
def test_nothing_goes_along_where_there_is_no_other_folder(command: Command, folder: str, words: list[str]) -> None:
    before = names(folder)
    assert "Went along" not in command("clear", folder, *words).out
    assert names(folder) == before


def test_from_a_folder_that_is_no_models_nothing_goes_along_and_what_stays_is_named(
    command: Command, here: Path
) -> None:
    Path("runs/one").mkdir(parents=True)
    torch.save({"w": torch.ones(3)}, "runs/one/net.pt")
    Path("runs/one/log.txt").write_text("loss 0.1")
    Path("runs/data.json").write_text("{}")
    done = command("clear", "runs", "-o", "new")
    assert names("new") == {"one/net.pt"}
    said = " ".join(done.out.split())
    left = "Not copied from runs, since these may hold weights, or no loader asks for them: "
    assert f"{left}data.json, one/log.txt." in said


def test_of_one_file_nothing_goes_along(command: Command, folder: str) -> None:
    assert command("clear", "model/text.pt", "-o", "new/").code == 0
    assert names("new") == {"text.pt"}
