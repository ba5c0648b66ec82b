"""A copy of the model is never dropped as training state, wherever it lies, and all that is dropped is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.optim.swa_utils import AveragedModel

import clearstate as cs
from clearstate import Role

from .test_programs import equal, read

Draw = Callable[..., Any]


class Net(torch.nn.Module):
    """Layers with running statistics and a part that does not train."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.encoder = torch.nn.Sequential(torch.nn.Linear(width, 4), torch.nn.BatchNorm1d(4))
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.encoder(x))
        return out


def trained(net: torch.nn.Module) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        net(torch.randn(5, 3)).sum().backward()
        optimizer.step()
    return optimizer


def moved(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same with other numbers."""
    return {name: value + 1 for name, value in state.items()}


def parameters(net: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach() + 1 for parameter in net.parameters()]


COPIES: dict[str, Callable[[Net], Any]] = {
    "a state dict": lambda net: moved(net.state_dict()),
    "parameters by name": lambda net: {name: p.detach() + 1 for name, p in net.named_parameters()},
    "under a wrapper's prefix": lambda net: {f"module.{n}": v for n, v in moved(net.state_dict()).items()},
    "AveragedModel": lambda net: moved(AveragedModel(net).state_dict()),
    "compiled": lambda net: {f"_orig_mod.{n}": v for n, v in moved(net.state_dict()).items()},
    "without dots": lambda net: {n.replace(".", ""): v for n, v in moved(net.state_dict()).items()},
    "a list in order": parameters,
    "a tuple in order": lambda net: tuple(parameters(net)),
    "by number": lambda net: dict(enumerate(parameters(net))),
    "all tensors in order": lambda net: [v.float() + 1 for v in net.state_dict().values()],
    "in half precision": lambda net: {n: v.half() for n, v in moved(net.state_dict()).items()},
    "with a count": lambda net: {**moved(net.state_dict()), "n_averaged": torch.tensor(3)},
    "only what trains": lambda net: {n: p.detach() + 1 for n, p in net.head.named_parameters(prefix="head")},
    "in two tables": lambda net: {
        "named_parameters_dict": {n: p.detach() + 1 for n, p in net.named_parameters()},
        "named_buffers_dict": {n: b + 1 for n, b in net.named_buffers()},
    },
}
NAMES = ["ema", "shadow", "average_model_state", "backup", "best", "teacher", "x", "weights", "state", "params"]
HOLDERS: dict[str, Callable[[Any, str], Any]] = {
    "dict": lambda value, name: {name: value},
    "beside others": lambda value, name: {"decay": 0.9, name: value, "history": [torch.ones(7)], "steps": {"n": 3}},
    "list": lambda value, name: [value],
    "pair": lambda value, name: (name, value),
    "list of pairs": lambda value, name: [("LRMonitor", {"lr": torch.ones(3)}), (name, value)],
}
PLACES: dict[str, Callable[[Net, torch.optim.Optimizer, Any], Any]] = {
    "Lightning's callbacks": lambda net, opt, held: {
        "pytorch-lightning_version": "2.6.0",
        "state_dict": net.state_dict(),
        "optimizer_states": [opt.state_dict()],
        "lr_schedulers": [],
        "callbacks": {"EarlyStopping": {"best_score": torch.tensor(0.5)}, "Averaging{'decay': 0.9}": held},
    },
    "an optimizer's own keys": lambda net, opt, held: {
        "state_dict": net.state_dict(),
        "epoch": 3,
        "optimizer": {**opt.state_dict(), "extra": held},
    },
    "one of Lightning's optimizers": lambda net, opt, held: {
        "pytorch-lightning_version": "2.6.0",
        "state_dict": net.state_dict(),
        "optimizer_states": [{"opt": opt.state_dict(), "decay": 0.9, "extra": held}, opt.state_dict()],
    },
    "Composer's algorithms": lambda net, opt, held: {
        "state": {
            "model": net.state_dict(),
            "optimizers": {"AdamW": opt.state_dict()},
            "algorithms": [("EMA", held), ("LabelSmoothing", {"smoothing": 0.1})],
            "schedulers": {"LambdaLR": {"last_epoch": 3, "_step_count": 4}},
        },
        "rng": [{"python": (3, (1, 2), None), "torch": torch.zeros(8, dtype=torch.uint8)}],
    },
    "a scheduler": lambda net, opt, held: {
        "model": net.state_dict(),
        "scheduler": {"last_epoch": 3, "_step_count": 4, "extra": held},
    },
    "mmengine's hub": lambda net, opt, held: {
        "message_hub": {"runtime_info": {"epoch": 3}, "extra": held},
        "state_dict": net.state_dict(),
        "optimizer": opt.state_dict(),
    },
    "the root": lambda net, opt, held: {"model": net.state_dict(), "held": held, "optimizer": opt.state_dict()},
    "a list": lambda net, opt, held: [net.state_dict(), opt.state_dict(), 3, held],
}


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in tensors_in(item)]


def contains(whole: Any, part: torch.Tensor) -> bool:
    return any(t.shape == part.shape and t.dtype == part.dtype and torch.equal(t, part) for t in tensors_in(whole))


def paths(value: Any, path: str = "") -> dict[str, Any]:
    """Every leaf and every empty container by its path."""
    if isinstance(value, dict) and value:
        parts = [(below(path, key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple) and len(value):
        parts = [(f"{path}[{i}]", item) for i, item in enumerate(value)]
    else:
        return {path: value}
    return {name: leaf for inner, item in parts for name, leaf in paths(item, inner).items()}


def below(path: str, key: Any) -> str:
    return f"{path}[{key!r}]" if not isinstance(key, str) else f"{path}.{key}" if path else key


def check(value: Any, copy: Any, folder: Path) -> cs.Cleared:
    old, new = folder / "old.pt", folder / "new.pt"
    torch.save(value, old)
    report = cs.clear_file(old, new)
    made = read(new)
    for part in tensors_in(copy):
        if part.ndim:
            assert contains(made, part), "a tensor of the copy was dropped"
    assert cs.verify(old, new)
    gone = [dropped.path for dropped in report.dropped]
    left = paths(made)
    for path, leaf in paths(value).items():
        named = any(path == one or path.startswith((f"{one}.", f"{one}[")) for one in gone)
        there = path in left or any(inner.startswith((f"{path}.", f"{path}[")) for inner in left)
        assert named or there, f"{path} went and is not named: {gone}"
        assert not (named and isinstance(leaf, torch.Tensor) and path in left and left[path] is not None), path
    assert cs.clear_file(new, folder / "again.pt").dropped == (), "a second clearing drops nothing"
    return report


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_copy_hidden_anywhere_stays_and_all_that_goes_is_named(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    torch.manual_seed(data.draw(st.integers(0, 9)))
    net = Net()
    optimizer = trained(net)
    copy = COPIES[data.draw(st.sampled_from(list(COPIES)))](net)
    held = copy
    for _ in range(data.draw(st.integers(1, 3))):
        held = HOLDERS[data.draw(st.sampled_from(list(HOLDERS)))](held, data.draw(st.sampled_from(NAMES)))
    place = data.draw(st.sampled_from(list(PLACES)))
    check(PLACES[place](net, optimizer, held), copy, tmp_path_factory.mktemp("copies"))


@pytest.mark.parametrize("kind", COPIES)
@pytest.mark.parametrize("place", PLACES)
def test_each_kind_of_copy_stays_at_each_place(place: str, kind: str, tmp_path: Path) -> None:
    net = Net()
    optimizer = trained(net)
    copy = COPIES[kind](net)
    report = check(PLACES[place](net, optimizer, {"extra": copy}), copy, tmp_path)
    if place not in ("the root", "a list"):
        assert report.after.by_role().get(Role.COPY), "it is reported as what it is"
        cs.clear_file(tmp_path / "old.pt", tmp_path / "none.pt", drop=["copy"])
        assert not any(contains(read(tmp_path / "none.pt"), part) for part in tensors_in(copy) if part.ndim > 1)


def test_moments_of_an_optimizer_are_no_copy(tmp_path: Path) -> None:
    net = Net()
    optimizer = trained(net).state_dict()
    names = [name for name, _ in net.named_parameters()]
    by_name = {
        "state": {name: optimizer["state"][i] for i, name in enumerate(names)},
        "param_groups": optimizer["param_groups"],
    }
    moments = {"exp_avg": {name: torch.ones_like(p) for name, p in net.named_parameters()}}
    lists = {"exp_avg": [torch.ones_like(p) for p in net.parameters()]}
    for state in (optimizer, by_name, {**optimizer, **moments}, {**optimizer, **lists}):
        torch.save({"model": net.state_dict(), "optimizer": state}, tmp_path / "old.pt")
        report = cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt")
        assert list(read(tmp_path / "new.pt")) == ["model"]
        assert [str(dropped) for dropped in report.dropped] == ["optimizer (optimizer state)"]


def test_what_is_seen_from_two_places_is_no_copy(tmp_path: Path) -> None:
    net = Net()
    state = net.state_dict()
    value = {"pytorch-lightning_version": "2.6", "state_dict": state, "callbacks": {"Keep": {"weights": dict(state)}}}
    torch.save(value, tmp_path / "old.pt")
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt")
    assert set(read(tmp_path / "new.pt")) == {"pytorch-lightning_version", "state_dict"}


def test_weights_of_another_network_in_a_callback_stay_and_are_named(tmp_path: Path) -> None:
    other = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.Linear(6, 5)).state_dict()
    value = {
        "pytorch-lightning_version": "2.6",
        "state_dict": Net().state_dict(),
        "callbacks": {"Distillation": {"teacher": other, "temperature": 2.0}},
    }
    report = check(value, other, tmp_path)
    assert any("callbacks.Distillation.teacher has weights of layers" in note for note in report.after.notes)


def test_a_path_chooses_a_copy(tmp_path: Path) -> None:
    net = Net()
    best = moved(net.state_dict())
    torch.save({"model": net.state_dict(), "best": best, "epoch": 3}, tmp_path / "old.pt")
    assert any("best is a copy of the model's weights" in note for note in cs.inspect(tmp_path / "old.pt").notes)
    report = cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", use="best")
    assert report.done == ("the copy best took the place of the model",)
    equal(dict(best), dict(read(tmp_path / "new.pt")["model"]))
    with pytest.raises(cs.ClearstateError, match=r"nothing called worst is a copy .* the copies here are best"):
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", use="worst")
    with pytest.raises(cs.ClearstateError, match="say --use best or --use model"):
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.safetensors")
