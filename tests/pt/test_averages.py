"""``--use``: the model or its averaged copy, chosen when asked for and never silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ema_pytorch import EMA  # type: ignore[import-untyped]
from safetensors.torch import load_file

import clearstate as cs

from .programs import PROGRAMS, Net, Training, training
from .samples import sharing
from .test_programs import equal, read

COPIES = {
    "timm": "state_dict_ema",
    "latent diffusion": "state_dict.model_ema.*",
    "AveragedModel": "model_ema",
    "Ultralytics": "ema",
}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return tmp_path / "old.pt"


def wanted(name: str, t: Training) -> dict[str, torch.Tensor]:
    """The averaged copy as a state dict of the net."""
    averaged = t.ema.module.state_dict()
    if name == "latent diffusion":  # LitEma averages parameters only
        return {**averaged, **{name: t.net.state_dict()[name] for name, _ in t.net.named_buffers() if name != "cached"}}
    if name == "Ultralytics":
        return {key: value.half() if value.is_floating_point() else value for key, value in averaged.items()}
    return averaged


@pytest.mark.parametrize("name", COPIES)
def test_the_copy_takes_the_place_of_the_model(name: str, old: Path, tmp_path: Path) -> None:
    t = training()
    torch.save(PROGRAMS[name].save(t), old)
    report = cs.clear_file(old, tmp_path / "new.pt", use="ema")
    assert f"the averaged copy (EMA) {COPIES[name]} took the place of the model" in report.done[0]
    made = PROGRAMS[name].load(read(tmp_path / "new.pt")) if name != "timm" else None
    state = made.state_dict() if made is not None else read(tmp_path / "new.pt")["state_dict"]
    for key, value in wanted(name, t).items():
        assert torch.equal(state[key].float(), value.float()), key
    assert not any("averaged copy" in note for note in report.after.notes)
    cs.clear_file(old, tmp_path / "new.safetensors", use="ema")
    assert cs.verify(tmp_path / "new.pt", tmp_path / "new.safetensors")


@pytest.mark.parametrize("name", [name for name in COPIES if name != "Ultralytics"])
def test_the_copy_goes_and_the_model_is_what_it_was(name: str, old: Path, tmp_path: Path) -> None:
    t = training()
    torch.save(PROGRAMS[name].save(t), old)
    report = cs.clear_file(old, tmp_path / "new.pt", use="model")
    assert report.done[0] == f"the averaged copy (EMA) {COPIES[name]} went"
    before, after = read(old), read(tmp_path / "new.pt")
    key = "state_dict" if "state_dict" in before else "model"
    assert set(before[key]) - set(after[key]) == {n for n in before[key] if n.startswith("model_ema.")}
    equal({name: before[key][name] for name in after[key]}, dict(after[key]))
    assert not any("averaged copy" in note for note in report.after.notes)


def test_ties_of_the_model_stay_ties_of_the_copy(old: Path, tmp_path: Path) -> None:
    for name in ("timm", "latent diffusion", "AveragedModel"):
        torch.save(PROGRAMS[name].save(training()), old)
        cs.clear_file(old, tmp_path / "new.pt", use="ema")
        made = read(tmp_path / "new.pt")
        made = made.get("state_dict") or made["model"]
        assert made["first.weight"].data_ptr() == made["tied.weight"].data_ptr(), name


def test_a_copy_by_ema_pytorch_is_found_under_its_own_names(old: Path, tmp_path: Path) -> None:
    net = training().net
    ema = EMA(net, beta=0.5, update_every=1, update_after_step=0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)
    ema.update()
    ema.update()
    torch.save({"model": net.state_dict(), "ema": ema.state_dict(), "step": 3}, old)
    cs.clear_file(old, tmp_path / "new.pt", use="ema")
    made = read(tmp_path / "new.pt")
    equal(dict(ema.ema_model.state_dict()), dict(made["model"]))
    assert set(made) == {"model", "step"}
    Net().load_state_dict(made["model"])


def test_mmengine_has_the_average_in_the_models_place(old: Path, tmp_path: Path) -> None:
    """Its ``EMAHook`` swaps the two as it saves: ``ema_state_dict`` has the weights as they train."""
    t = training()
    torch.save(PROGRAMS["mmengine"].save(t), old)
    (note,) = (note for note in cs.inspect(old).notes if "EMA" in note)
    assert note.startswith("ema_state_dict has the weights as training left them")
    assert cs.clear_file(old, tmp_path / "ema.pt", use="ema").done == ("the weights as trained, ema_state_dict went",)
    assert cs.clear_file(old, tmp_path / "net.pt", use="model").done[0].endswith("took the place of the model")
    equal(dict(t.ema.module.state_dict()), dict(read(tmp_path / "ema.pt")["state_dict"]))
    equal(dict(t.net.state_dict()), dict(read(tmp_path / "net.pt")["state_dict"]))
    with pytest.raises(cs.ClearstateError, match="the weights as trained being, ema_state_dict, and safetensors holds"):
        cs.clear_file(old, tmp_path / "new.safetensors")
    cs.clear_file(old, tmp_path / "new.pt")
    cs.clear_file(tmp_path / "new.pt", tmp_path / "late.pt", use="ema")
    equal(dict(t.ema.module.state_dict()), dict(read(tmp_path / "late.pt")["state_dict"]))


def test_shadow_parameters_without_names_are_taken_in_the_models_order(old: Path, tmp_path: Path) -> None:
    """``torch_ema`` and diffusers' ``EMAModel`` keep a list."""
    net = training().net
    shadow = [parameter.detach().clone() + 1 for parameter in net.parameters()]
    torch.save({"model": net.state_dict(), "ema": {"decay": 0.9, "shadow_params": shadow}}, old)
    cs.clear_file(old, tmp_path / "new.pt", use="ema")
    made = Net()
    made.load_state_dict(read(tmp_path / "new.pt")["model"])
    for ours, theirs in zip(made.parameters(), shadow, strict=True):
        assert torch.equal(ours, theirs)
    cs.clear_file(old, tmp_path / "new.pt", use="model")
    assert set(read(tmp_path / "new.pt")) == {"model"}


def test_a_list_that_fits_the_model_in_two_ways_is_refused(old: Path, tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).state_dict()
    torch.save({"model": net, "ema": {"shadow_params": [torch.ones(2, 2), torch.ones(2)]}}, old)
    with pytest.raises(cs.ClearstateError, match=r"which of the model's tensors the 2 in ema\.shadow_params are"):
        cs.clear_file(old, tmp_path / "new.pt", use="ema")


def test_a_copy_of_another_model_is_refused_by_a_name(old: Path, tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.ones(2)}, "model_ema": {"w": torch.ones(2), "v": torch.ones(3)}}, old)
    with pytest.raises(cs.ClearstateError, match="model_ema is no copy of this model: the model has no v"):
        cs.clear_file(old, tmp_path / "new.pt", use="ema")
    assert not (tmp_path / "new.pt").exists()


def test_a_copy_whose_tensors_have_other_sizes_is_refused_by_a_name(old: Path, tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.ones(2)}, "model_ema": {"w": torch.ones(3)}}, old)
    with pytest.raises(cs.ClearstateError, match="no copy of this model: w is of size 3, the model's of 2"):
        cs.clear_file(old, tmp_path / "new.pt", use="ema")


def test_two_copies_are_named_and_none_is_taken(old: Path, tmp_path: Path) -> None:
    state = {"w": torch.ones(2)}
    torch.save({"model": state, "ema": {"w": torch.zeros(2)}, "model_ema": {"w": torch.zeros(2)}}, old)
    with pytest.raises(cs.ClearstateError, match="2 averaged copies: ema, model_ema"):
        cs.clear_file(old, tmp_path / "new.pt", use="ema")
    cs.clear_file(old, tmp_path / "new.pt", use="ema", drop=["model_ema"])
    assert torch.equal(read(tmp_path / "new.pt")["model"]["w"], torch.zeros(2))


@pytest.mark.parametrize("name", ["timm", "AveragedModel", "Ultralytics"])
def test_safetensors_holds_one_model_and_nobody_chooses_it_silently(name: str, old: Path, tmp_path: Path) -> None:
    torch.save(PROGRAMS[name].save(training()), old)
    with pytest.raises(cs.ClearstateError, match=f"averaged copy .* {COPIES[name]}.*--use ema or --use model"):
        cs.clear_file(old, tmp_path / "new.safetensors")
    assert not (tmp_path / "new.safetensors").exists()


def test_copies_inside_a_state_dict_go_with_it_into_safetensors(old: Path, tmp_path: Path) -> None:
    torch.save(PROGRAMS["latent diffusion"].save(training()), old)
    cs.clear_file(old, tmp_path / "new.safetensors")
    assert load_file(tmp_path / "new.safetensors").keys() >= {"first.weight", "model_ema.firstweight"}


def test_a_choice_of_what_is_not_there_is_refused(old: Path, tmp_path: Path) -> None:
    torch.save({"model": {"w": torch.ones(2)}}, old)
    with pytest.raises(cs.ClearstateError, match="no averaged copy"):
        cs.clear_file(old, tmp_path / "new.pt", use="ema")


def test_sharing_of_model_and_copy_that_are_one_ends_in_one_model(old: Path, tmp_path: Path) -> None:
    state: Any = training().net.state_dict()
    torch.save({"model": state, "model_ema": state}, old)
    cs.clear_file(old, tmp_path / "new.pt", use="ema")
    made = read(tmp_path / "new.pt")
    equal(dict(state), dict(made["model"]))
    assert sharing(state) == sharing(made["model"])


@pytest.mark.parametrize("name", [name for name in COPIES if name != "Ultralytics"])
def test_the_bytes_of_a_copy_are_its_own_and_go_only_when_asked_for(name: str, old: Path, tmp_path: Path) -> None:
    torch.save(PROGRAMS[name].save(training()), old)
    held = cs.inspect(old)
    start = COPIES[name].rstrip("*")
    copies = [entry for entry in held.select("copy") if entry.bytes]
    assert copies
    assert all(entry.path.startswith(start) for entry in copies)
    assert not any(entry.path.startswith(start) for entry in held.select("parameter", "buffer"))
    assert sum(entry.bytes for entry in held.entries) == held.size
    kept = cs.clear_file(old, tmp_path / "kept.pt")
    assert kept.after.by_role()[cs.Role.COPY] == held.by_role()[cs.Role.COPY]
    assert cs.verify(old, tmp_path / "kept.pt")
    gone = cs.clear_file(old, tmp_path / "gone.pt", drop=["copy"])
    assert gone.done == (f"the averaged copy (EMA) {COPIES[name]} went",)
    assert cs.Role.COPY not in gone.after.by_role()
    cs.clear_file(old, tmp_path / "model.pt", use="model")
    assert cs.verify(tmp_path / "gone.pt", tmp_path / "model.pt")
    cs.clear_file(old, tmp_path / "ema.pt", use="ema", drop=["copy"])
    assert cs.clear_file(old, tmp_path / "ema.safetensors", use="ema").after.by_role().keys() <= {
        *("parameter", "buffer", "metadata")
    }
    assert cs.verify(tmp_path / "ema.pt", tmp_path / "ema.safetensors")


def test_a_copy_that_stands_alone_is_the_model(old: Path, tmp_path: Path) -> None:
    torch.save(PROGRAMS["Ultralytics"].save(training()), old)
    held = cs.inspect(old)
    assert not held.select("copy")
    assert held.by_role()[cs.Role.PARAMETER]
    cs.clear_file(old, tmp_path / "new.pt", drop=["copy"])
    assert cs.verify(old, tmp_path / "new.pt")


def test_what_the_copy_shares_with_the_model_is_the_models(old: Path) -> None:
    state = {"w": torch.ones(1000)}
    torch.save({"ema": {**state, "v": torch.ones(10)}, "model": state}, old)
    held = cs.inspect(old)
    assert held.by_role()[cs.Role.PARAMETER] == 4000
    assert held.by_role()[cs.Role.COPY] == 40
    assert cs.clear_file(old, dry_run=True, dtype="float16").after.by_role()[cs.Role.COPY] == 20
