"""Copies of the model in the forms that programs give them: nested, listed, pickled, wrapped, beside other things."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import schedulefree  # type: ignore[import-untyped]
import torch

import clearstate as cs

from .test_programs import read

pytestmark = pytest.mark.filterwarnings("ignore")
State = dict[str, torch.Tensor]


class Averager:
    """An object of a class of a user's that holds an average."""

    shadow: Any


class Bag(dict[str, Any]):
    """A dict of a class of its own, as configurations are."""


def net(layers: int = 2) -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))


MODEL = net()
STATE = OrderedDict(MODEL.state_dict())
COPY: State = OrderedDict((name, value + 1) for name, value in STATE.items())
VALUES = list(COPY.values())


def adam() -> dict[str, Any]:
    optimizer = torch.optim.AdamW(MODEL.parameters())
    MODEL(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    return optimizer.state_dict()


def lightning(callbacks: Any) -> dict[str, Any]:
    return {"pytorch-lightning_version": "2.6", "state_dict": STATE, "callbacks": callbacks}


def cleared(value: Any, folder: Path, name: str = "new.pt", **how: Any) -> Any:
    torch.save(value, folder / "old.pt")
    cs.clear_file(folder / "old.pt", folder / name, **how)
    return read(folder / name) if name.endswith(".pt") else None


def averager(shadow: Any) -> Averager:
    made = Averager()
    made.shadow = shadow
    return made


def tagged(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.clone()
    tensor.tag = 1  # type: ignore[attr-defined]
    return tensor


FORMS: dict[str, Any] = {
    "under a name that moments have": {"prev": COPY},
    "beside more of other sizes": {**COPY, **{f"h{i}": torch.randn(3) for i in range(9)}},
    "a defaultdict": {"w": defaultdict(float, COPY)},
    "a dict of a class": {"w": Bag(COPY)},
    "tensors with attributes": {"w": {name: tagged(value) for name, value in COPY.items()}},
    "arrays of NumPy": {"w": {name: value.numpy() for name, value in COPY.items()}},
    "a list of arrays": {"w": [value.numpy() for value in VALUES]},
    "by number in words": {"w": {str(i): value for i, value in enumerate(VALUES)}},
    "pairs of names and tensors": {"w": list(COPY.items())},
    "a list with more in it": {"w": [None, *VALUES, 3]},
    "each in a list": {"w": {name: [value] for name, value in COPY.items()}},
    "each with its step": {"w": {name: (value, 3) for name, value in COPY.items()}},
    "each by a key": {"w": {name: {"master": value} for name, value in COPY.items()}},
    "lists of groups": {"w": [[v for v in VALUES if v.ndim > 1], [v for v in VALUES if v.ndim == 1]]},
    "backwards": {"w": VALUES[::-1]},
    "flat, in a list": {"w": [value.flatten() for value in VALUES]},
    "one vector": {"ema": torch.cat([value.flatten() for value in VALUES])},
    "nested": {"w": {"0": {"weight": VALUES[0], "bias": VALUES[1]}, "1": {"weight": VALUES[2], "bias": VALUES[3]}}},
    "in an object": {"w": averager(VALUES)},
    "in an object in a list": {"w": [averager(COPY)]},
    "other weights without known names": {"w": {"a": torch.randn(3, 5), "b": torch.randn(5, 3)}},
}


def numbers(value: Any) -> set[float]:
    """All numbers of all floating tensors and arrays in a value."""
    if isinstance(value, torch.Tensor):
        return set(value.flatten().tolist()) if value.is_floating_point() else set()
    if isinstance(value, np.ndarray):
        return set(value.flatten().tolist())
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if isinstance(value, Averager):
        items = [value.shadow]
    return {number for item in items for number in numbers(item)}


@pytest.mark.parametrize("form", FORMS)
def test_it_stays_in_a_callback(form: str, tmp_path: Path) -> None:
    made = cleared(lightning({"X": FORMS[form], "Y": {"best": torch.ones(7)}}), tmp_path)
    assert numbers(FORMS[form]) <= numbers(made)
    assert set(made["callbacks"]) == {"X"}
    again = cs.clear_file(tmp_path / "new.pt", tmp_path / "again.pt")
    assert again.dropped == ()
    assert cs.verify(tmp_path / "old.pt", tmp_path / "new.pt")


@pytest.mark.parametrize("form", [form for form in FORMS if not form.startswith(("other", "under"))])
def test_it_stays_among_an_optimizers_own_keys(form: str, tmp_path: Path) -> None:
    made = cleared({"model": STATE, "optimizer": {**adam(), "extra": FORMS[form]}}, tmp_path)
    assert numbers(FORMS[form]) <= numbers(made)
    assert set(made["optimizer"]) == {"extra"}


def test_a_pickled_optimizer_that_holds_an_average_stays(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
    optimizer.shadow = [value.clone() for value in VALUES]  # type: ignore[attr-defined]
    optimizer.__class__.__getstate__ = lambda self: self.__dict__  # type: ignore[method-assign]
    try:
        made = cleared({"model": MODEL, "optimizer": optimizer}, tmp_path)
    finally:
        del optimizer.__class__.__getstate__
    assert all(map(torch.equal, made["optimizer"].shadow, VALUES))


def test_views_of_one_storage_are_the_model_and_its_copy(tmp_path: Path) -> None:
    flat = torch.arange(32.0)
    value = {"w": flat[:16].view(4, 4)}, {"w": flat[16:].view(4, 4)}
    model = {**value[0], "b": torch.ones(3)}
    made = cleared({**lightning({"X": {"w": {**value[1], "b": torch.zeros(3)}}}), "state_dict": model}, tmp_path)
    assert torch.equal(made["callbacks"]["X"]["w"]["w"], value[1]["w"])


def test_what_looks_like_a_scheduler_or_an_optimizer_and_has_the_model_in_it_stays(tmp_path: Path) -> None:
    model = {"w1": torch.randn(3, 3), "w2": torch.randn(3, 3)}
    for more in ({"last_epoch": 3, "base_lrs": [0.1]}, adam()):
        made = cleared({"ckpt": {"model": model, **more}, "v": 1}, tmp_path)
        assert torch.equal(made["ckpt"]["model"]["w1"], model["w1"])
        made = cleared({"model": model, **more, "v": 1, "rng_state": torch.zeros(8)}, tmp_path)
        assert torch.equal(made["model"]["w1"], model["w1"])
        assert "rng_state" not in made


def test_deepspeeds_flat_masters_stay(tmp_path: Path) -> None:
    flat = torch.cat([value.flatten() for value in VALUES])
    state = {"optimizer_state_dict": {}, "fp32_groups_flat": [flat]}
    made = cleared({"ds_version": "0.5", "module": STATE, "optimizer": state, "lr_scheduler": None}, tmp_path)
    assert torch.equal(made["optimizer"]["fp32_groups_flat"][0], flat)


@pytest.mark.parametrize("how", [{"keep": ["callbacks"]}, {"keep": ["callbacks.X", "callbacks.Y"]}])
def test_what_is_to_be_kept_stays_whole_though_a_copy_lies_in_it(how: dict[str, Any], tmp_path: Path) -> None:
    value = lightning({"X": {"s": COPY, "t": torch.randn(5)}, "Y": {"z": torch.randn(3)}})
    made = cleared(value, tmp_path, **how)
    assert {"s", "t"} == set(made["callbacks"]["X"])
    assert "z" in made["callbacks"]["Y"]


@pytest.mark.parametrize("pattern", ["callbacks", "callbacks.X", "callbacks.X.s", "callbacks.X.s.*"])
def test_what_is_to_go_by_its_path_goes_with_the_copy_in_it(pattern: str, tmp_path: Path) -> None:
    made = cleared(lightning({"X": {"s": COPY, "t": torch.randn(5)}}), tmp_path, drop=[pattern])
    assert not numbers(COPY) & (numbers(made) - numbers(STATE))


def test_an_optimizer_in_an_object_stays_with_the_object(tmp_path: Path) -> None:
    made = cleared(Pair(STATE, adam()), tmp_path)
    assert made.model.keys() == STATE.keys()


Pair = namedtuple("Pair", "model opt")


# --- the choice


def test_the_copys_name_tells_of_which_part_it_is(tmp_path: Path) -> None:
    other = net().state_dict()
    made = cleared({"G_A": other, "G_B": STATE, "G_B_ema": COPY}, tmp_path, use="ema")
    assert torch.equal(made["G_B"]["0.weight"], COPY["0.weight"])
    assert torch.equal(made["G_A"]["0.weight"], other["0.weight"])
    with pytest.raises(cs.ClearstateError, match="which part of the model it is a copy of is not certain"):
        cleared({"G_A": other, "G_B": STATE, "ema": COPY}, tmp_path, use="ema")


@pytest.mark.parametrize("flat", [False, True])
def test_a_nested_copy_is_matched_whole(flat: bool, tmp_path: Path) -> None:
    def parts() -> dict[str, Any]:
        return {"w": torch.randn(3, 3), "b": torch.randn(3)}

    model = {"enc": parts(), "dec": parts()}
    ema = {"dec": parts(), "enc": parts()}
    given = {f"{a}.{b}": t for a, part in model.items() for b, t in part.items()} if flat else model
    for value in ({"model": given, "ema": ema}, {**lightning({"EMA": {"shadow": ema}}), "state_dict": given}):
        made = cleared(value, tmp_path, use="ema")
        state = made.get("model") or made["state_dict"]
        for part in model:
            assert torch.equal(state[f"{part}.w"] if flat else state[part]["w"], ema[part]["w"])


def test_several_averages_in_one_entry_are_named_and_none_is_taken(tmp_path: Path) -> None:
    later = {name: value + 1 for name, value in COPY.items()}
    for held, path in (({"0.99": COPY, "0.999": later}, "ema.0.999"), ([COPY, later], "ema[1]")):
        with pytest.raises(cs.ClearstateError, match="ema holds 2 copies: ema"):
            cleared({"model": STATE, "ema": held}, tmp_path, use="ema")
        made = cleared({"model": STATE, "ema": held}, tmp_path, use=path)
        assert torch.equal(made["model"]["0.weight"], later["0.weight"])


def test_what_is_set_aside_for_an_average_is_not_taken_for_one(tmp_path: Path) -> None:
    held = {"original_weights": COPY, "ema_weights": {name: value + 2 for name, value in COPY.items()}}
    made = cleared(lightning({"EMA": held}), tmp_path, use="ema")
    assert torch.equal(made["state_dict"]["0.weight"], held["ema_weights"]["0.weight"])
    with pytest.raises(cs.ClearstateError, match="there is no averaged copy"):
        cleared(lightning({"EMA": {"backup": COPY}}), tmp_path, use="ema")


@pytest.mark.parametrize("field", ["exp_avg_slow", "m_slow", "grad_ema", "exp_avg_ema", "cached_mom"])
def test_moments_are_not_weights_to_evaluate_whatever_words_are_in_their_names(field: str, tmp_path: Path) -> None:
    state = adam()
    for entry in state["state"].values():
        entry[field] = torch.ones_like(entry["exp_avg"])
    with pytest.raises(cs.ClearstateError, match="no optimizer in this file holds other weights"):
        cleared({"model": STATE, "optimizer": state}, tmp_path, use="eval")


def schedule_free(module: torch.nn.Module, given: Any) -> torch.optim.Optimizer:
    optimizer: torch.optim.Optimizer = schedulefree.AdamWScheduleFree(given, lr=1e-3)
    optimizer.train()  # type: ignore[attr-defined]
    for _ in range(3):
        optimizer.zero_grad()
        module(torch.randn(8, 4)).pow(2).sum().backward()
        optimizer.step()
    return optimizer


@pytest.mark.parametrize("whole", [False, True])
def test_an_optimizer_in_another_order_than_the_models_is_matched_by_its_numbers(whole: bool, tmp_path: Path) -> None:
    module = net()
    optimizer = schedule_free(module, [*module[1].parameters(), *module[0].parameters()])  # type: ignore[index]
    value: dict[str, Any] = {"model": module.state_dict(), "optimizer": optimizer.state_dict()}
    if whole:
        value = {"model": module, "optimizer": optimizer}
    made = cleared(value, tmp_path, use="eval")["model"]
    optimizer.eval()  # type: ignore[attr-defined]
    state = made.state_dict() if whole else made
    torch.testing.assert_close(dict(state), dict(module.state_dict()), rtol=1e-6, atol=1e-7)


def test_an_optimizer_of_another_network_is_refused(tmp_path: Path) -> None:
    critic = net()
    optimizer = schedule_free(critic, critic.parameters())
    value = {"model": STATE, "critic": critic.state_dict(), "critic_optimizer": optimizer.state_dict()}
    with pytest.raises(cs.ClearstateError, match=r"it may belong to another network|not certain"):
        cleared(value, tmp_path, use="eval")


def test_groups_of_an_average_are_one_copy(tmp_path: Path) -> None:
    groups = ([v for v in VALUES if v.ndim > 1], [v for v in VALUES if v.ndim == 1])
    torch.save({"model": STATE, "optimizer": {**adam(), "ema": groups}}, tmp_path / "old.pt")
    notes = cs.inspect(tmp_path / "old.pt").notes
    assert [note.partition(" is ")[0] for note in notes if "averaged copy" in note] == ["optimizer.ema"]


def test_an_average_in_a_pair_is_one_by_its_name_and_goes_when_the_model_is_chosen(tmp_path: Path) -> None:
    value = {"model": STATE, "algos": [("EMA", COPY), ("Mixup", {"alpha": 0.1})]}
    made = cleared(value, tmp_path, use="ema")
    assert torch.equal(made["model"]["0.weight"], COPY["0.weight"])
    made = cleared(value, tmp_path, use="model")
    assert made["algos"] == [("EMA", None), ("Mixup", {"alpha": 0.1})]


@pytest.mark.parametrize("key", ["grads", "gradients", "accumulated_grads"])
def test_gradients_are_no_copy(key: str, tmp_path: Path) -> None:
    for held in (COPY, VALUES):
        torch.save({"model": STATE, key: held}, tmp_path / "old.pt")
        assert not any("copy" in note for note in cs.inspect(tmp_path / "old.pt").notes)


@pytest.mark.parametrize("key", ["mu", "nu", "momentum_buffer_list", "accumulated_grads"])
def test_tables_of_moments_go_with_the_optimizer(key: str, tmp_path: Path) -> None:
    for held in (COPY, VALUES):
        assert set(cleared({"model": STATE, "optimizer": {**adam(), key: held}}, tmp_path)) == {"model"}


def test_nothing_is_left_of_a_callback_whose_average_became_the_model(tmp_path: Path) -> None:
    held = {"decay": 0.9, "ema_state_dict": COPY, "history": [torch.ones(7)]}
    torch.save(lightning({"EMA": held}), tmp_path / "old.pt")
    for use in ("ema", "model"):
        report = cs.clear_file(tmp_path / "old.pt", tmp_path / "new.safetensors", use=use)
        assert report.done[-1] == "safetensors holds tensors only: pytorch-lightning_version has no place there"
        assert set(cleared(lightning({"EMA": held}), tmp_path, use=use)) == {"pytorch-lightning_version", "state_dict"}


def test_what_has_no_place_in_safetensors_is_named_by_its_place(tmp_path: Path) -> None:
    torch.save([STATE, adam(), 7], tmp_path / "old.pt")
    report = cs.clear_file(tmp_path / "old.pt", tmp_path / "new.safetensors")
    assert report.done == ("safetensors holds tensors only: [2] has no place there",)
