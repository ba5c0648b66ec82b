"""Lightning, and the Trainer of Hugging Face: what they saved themselves is cleared, and they load it again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import clearstate as cs
from tests.cli.conftest import Command

from .programs import Net
from .test_programs import X, equal, read

pytestmark = pytest.mark.filterwarnings("ignore")


class Numbers(Dataset[Any]):
    """Ten rows."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        return torch.linspace(-1, 1, 3) * i


@pytest.fixture(scope="module")
def lightning(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A Lightning module's class, and a checkpoint that its trainer saved."""
    import pytorch_lightning as pl

    class Model(pl.LightningModule):
        def __init__(self, width: int = 4, lr: float = 0.1) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = Net()

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            return self.net(batch).sum()  # type: ignore[no-any-return]

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams["lr"])
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    folder = tmp_path_factory.mktemp("lightning")
    torch.manual_seed(1)
    trainer = pl.Trainer(
        max_steps=2,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[pl.callbacks.ModelCheckpoint(folder, save_last=True)],
    )
    trainer.fit(Model(width=5), DataLoader(Numbers(), batch_size=5))
    trainer.save_checkpoint(folder / "saved.ckpt")
    return Model, folder / "saved.ckpt"


def test_lightning_loads_its_cleared_checkpoint(lightning: tuple[Any, Path], tmp_path: Path) -> None:
    model, old = lightning
    new = tmp_path / "new.ckpt"
    report = cs.clear_file(old, new)
    before, after = read(old), read(new)
    assert set(before) - set(after) == {"loops", "callbacks", "optimizer_states", "lr_schedulers"}
    assert "written by Lightning" in report.before.notes
    assert report.after.by_role().keys() <= {cs.Role.PARAMETER, cs.Role.BUFFER, cs.Role.METADATA}
    expected, loaded = (model.load_from_checkpoint(path, weights_only=False) for path in (old, new))
    assert loaded.hparams == {"width": 5, "lr": 0.1}
    equal(dict(expected.state_dict()), dict(loaded.state_dict()))
    assert torch.equal(loaded.eval().net(X), expected.eval().net(X))


@pytest.mark.parametrize("version", ["1.0.0", "1.4.2", "1.6.1", "1.9.0"])
def test_lightning_upgrades_a_cleared_checkpoint_of_an_old_version(
    lightning: tuple[Any, Path], tmp_path: Path, version: str
) -> None:
    model, saved = lightning
    old, new = tmp_path / "old.ckpt", tmp_path / "new.ckpt"
    checkpoint = read(saved)
    checkpoint["pytorch-lightning_version"] = version
    if version < "1.5":
        del checkpoint["loops"]
    torch.save(checkpoint, old)
    cs.clear_file(old, new)
    expected, loaded = (model.load_from_checkpoint(path, weights_only=False) for path in (old, new))
    equal(dict(expected.state_dict()), dict(loaded.state_dict()))


def test_lightning_loads_a_plain_checkpoint_with_weights_only(lightning: tuple[Any, Path], tmp_path: Path) -> None:
    model, old = lightning
    cs.clear_file(old, tmp_path / "new.ckpt", plain=True)
    loaded = model.load_from_checkpoint(tmp_path / "new.ckpt", weights_only=True)
    assert loaded.hparams["width"] == 5
    equal(read(old)["state_dict"], read(tmp_path / "new.ckpt")["state_dict"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder ``checkpoint-2`` that the Trainer of transformers wrote, its model in safetensors."""
    from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

    folder = tmp_path_factory.mktemp("trainer")
    torch.manual_seed(1)
    config = BertConfig(vocab_size=40, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    rows = [{"input_ids": np.arange(6) + i, "labels": np.arange(6) + i} for i in range(4)]
    arguments = TrainingArguments(
        str(folder),
        max_steps=2,
        save_steps=2,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    Trainer(BertForMaskedLM(config), arguments, train_dataset=rows).train()
    return folder / "checkpoint-2"


def files(folder: Path) -> set[str]:
    return {os.path.relpath(os.path.join(place, name), folder) for place, _, names in os.walk(folder) for name in names}


def test_a_trainers_folder_becomes_one_with_the_model_alone(
    trained: Path,
    tmp_path: Path,
    command: Command,
) -> None:
    from transformers import BertForMaskedLM

    done = command("clear", trained, "-o", tmp_path / "new/")
    assert done.code == 0, done
    assert files(trained) >= {"optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin", "model.safetensors"}
    assert files(tmp_path / "new") == {"model.safetensors", "training_args.bin", "config.json", "trainer_state.json"}
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        assert name in done.out.partition("Left alone")[2], done.out
    expected, loaded = (BertForMaskedLM.from_pretrained(path).state_dict() for path in (trained, tmp_path / "new"))
    equal(dict(expected), dict(loaded))
    assert command("verify", trained / "model.safetensors", tmp_path / "new" / "model.safetensors").code == 0


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_file_of_training_state_alone_is_refused_and_stays(
    trained: Path,
    here: Path,
    command: Command,
    name: str,
) -> None:
    text = command("clear", trained / name, "-o", "new.pt").refused()
    assert "nothing would be left" in text
    assert os.listdir(here) == []


def test_the_trainers_arguments_tell_what_torch_load_would_call(trained: Path, command: Command) -> None:
    done = command("inspect", trained / "training_args.bin")
    assert "transformers.training_args.TrainingArguments" in "".join(done.out.split())
    assert done.code == 0


def sharded(trained: Path, folder: Path) -> Path:
    from transformers import BertForMaskedLM

    BertForMaskedLM.from_pretrained(trained).save_pretrained(folder, max_shard_size="3KB")
    assert len(json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]) > 10
    return folder


def test_shards_are_cleared_through_their_index_and_load_again(
    trained: Path,
    tmp_path: Path,
    command: Command,
) -> None:
    from transformers import BertForMaskedLM

    old, new = sharded(trained, tmp_path / "old"), tmp_path / "new"
    done = command("clear", old, "-o", new)
    assert done.code == 0, done
    assert files(new) == files(old)
    assert "Copied beside the new index: " in done.out
    equal(
        dict(BertForMaskedLM.from_pretrained(old).state_dict()), dict(BertForMaskedLM.from_pretrained(new).state_dict())
    )
    assert command("verify", old, new).code == 0


@pytest.mark.parametrize("name", ["one.safetensors", "one.pt"])
def test_shards_become_one_file_and_one_file_is_the_same_model(
    trained: Path,
    tmp_path: Path,
    command: Command,
    name: str,
) -> None:
    from safetensors.torch import load_file

    old = sharded(trained, tmp_path / "old")
    done = command("clear", old / "model.safetensors.index.json", "-o", tmp_path / name)
    assert done.code == 0, done
    assert command("verify", old, tmp_path / name).code == 0
    assert command("verify", tmp_path / name, old).code == 0
    state = load_file(tmp_path / name) if name.endswith("safetensors") else torch.load(tmp_path / name)
    parts = [load_file(old / part) for part in sorted(files(old)) if part.endswith(".safetensors")]
    equal({k: v for part in parts for k, v in part.items()}, dict(state))


def test_a_folder_of_accelerates_state_keeps_the_model(tmp_path: Path, command: Command) -> None:
    from accelerate import Accelerator  # type: ignore[import-untyped]

    torch.manual_seed(1)
    net = Net()
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters()))
    model(X).sum().backward()
    optimizer.step()
    accelerator.save_state(str(tmp_path / "old"), safe_serialization=False)
    done = command("clear", tmp_path / "old", "-o", tmp_path / "new/")
    assert done.code == 0, done
    assert files(tmp_path / "new") == {"pytorch_model.bin"}, files(tmp_path / "old")
    equal(read(tmp_path / "old" / "pytorch_model.bin"), read(tmp_path / "new" / "pytorch_model.bin"))
