"""Files of numbers without their model load into a definition, in Torch7's order, or are refused with both counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_live
from clearstate.nn.t7.numbers import flat_parameters
from tests.nn.recorded import dense
from tests.recordings import CASES, DIGITS, case


def with_parameters() -> list[str]:
    return [name for name in CASES if (t7.load(case(name) / "io.t7").get("parameters") or {})]


def numbers(module: torch.nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in module.parameters()]


def zeroed(module: Any) -> Any:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return module


@pytest.mark.parametrize("name", with_parameters())
def test_recorded_parameters_load_as_torch7_lists_them(name: str) -> None:
    module = to_live(t7.load(case(name) / "before.t7"))
    due = numbers(module)
    listed = to_live(t7.load(case(name) / "io.t7"))["parameters"]
    listed = [dense(each, each) for each in listed]
    if len({tuple(t.reshape(-1).tolist()) for t in listed}) == len(due) < len(listed):
        listed = list({tuple(t.reshape(-1).tolist()): t for t in listed}.values())  # a MapTable's clones
    assert cs.load_parameters(zeroed(module), listed) is module
    assert all(map(torch.equal, numbers(module), due))


def definition() -> Any:
    """The net of ``digits.t7``, made anew, in evaluation mode."""
    net = cs.load(DIGITS / "digits.t7")
    for inner in net.modules():
        if hasattr(inner, "reset"):
            inner.reset()
    return net.evaluate()


def statistics(net: Any) -> list[Tensor]:
    return [t for m in net.modules() if hasattr(m, "running_mean") for t in (m.running_mean, m.running_var)]


def accuracy(net: Any) -> float:
    test = cs.load(DIGITS / "digits-test.t7")
    return (net(test["input"]).argmax(1) == test["label"] - 1).double().mean().item()  # type: ignore[no-any-return]


def test_the_flat_vector_that_torch7_trained_gives_its_accuracy(tmp_path: Path) -> None:
    trained = t7.load(DIGITS / "digits.t7")
    weight = trained["modules"][1]["weight"]
    flat = weight.storage  # getParameters had put all of them on it, in its order
    path = tmp_path / "params.t7"
    t7.save(t7.Tensor(weight.typename, (len(flat),), (1,), 0, flat), path)
    stats = [t.clone() for t in statistics(cs.load(DIGITS / "digits.t7"))]
    net = definition()
    assert accuracy(net) < 0.5
    cs.load_parameters(net, path)
    with torch.no_grad():
        for into, of in zip(statistics(net), stats, strict=True):
            into.copy_(of)
    assert round(accuracy(net), 3) == 0.983


def test_a_table_of_parameters_and_statistics_gives_the_whole_net(tmp_path: Path) -> None:
    trained = cs.load(DIGITS / "digits.t7")
    flat, _ = trained.get_parameters()
    stats = statistics(trained)
    for i, saved in enumerate(
        (
            {"parameters": list(trained.parameters()), "bnVars": stats, "epoch": 3},
            {"parameters": flat, "gradParameters": torch.zeros_like(flat), "bnVars": stats},
            [flat, stats],
            {"model": flat, "stats": [{"running_mean": m, "running_var": v} for m, v in zip(*[iter(stats)] * 2)]},  # noqa: B905
            {"w": flat, "bn": {"running_mean": stats[::2], "running_var": stats[1::2]}},
        )
    ):
        path = tmp_path / f"{i}.t7"
        cs.save(saved, path)
        assert round(accuracy(cs.load_parameters(definition(), path)), 3) == 0.983, i


def test_states_of_modules_and_modules_load() -> None:
    trained = cs.load(DIGITS / "digits.t7").evaluate()
    kept = ("weight", "bias", "running_mean", "running_var")
    states = [{n: getattr(m, n) for n in kept if isinstance(getattr(m, n, None), Tensor)} for m in trained.modules()]
    assert round(accuracy(cs.load_parameters(definition(), [s for s in states if s])), 3) == 0.983
    assert round(accuracy(cs.load_parameters(definition(), [s or [] for s in states])), 3) == 0.983
    assert round(accuracy(cs.load_parameters(definition(), trained)), 3) == 0.983


def test_shared_parameters_are_there_once_in_a_vector_and_each_time_in_a_list() -> None:
    inner: Any = nn.Linear(2, 2)
    net: Any = nn.Sequential().add(inner).add(nn.Tanh()).add(inner).add(nn.Linear(2, 1))
    flat = torch.arange(9.0)
    cs.load_parameters(net, flat)
    assert torch.equal(torch.cat(flat_parameters(net)), flat)
    assert inner.bias.tolist() == [4, 5]
    twice = [torch.full((n,), float(i)) for i, n in enumerate((4, 2, 4, 2, 2, 1))]
    cs.load_parameters(net, twice)
    assert inner.bias.tolist() == [3, 3]
    assert net.get(3).bias.tolist() == [5]


def test_the_order_is_that_of_get_parameters_also_once_they_are_on_one_memory() -> None:
    net: Any = nn.Sequential().add(nn.Linear(3, 2)).add(nn.PReLU()).add(nn.Linear(2, 2))
    before = torch.cat(flat_parameters(net)).clone()
    flat, _ = net.get_parameters()
    assert torch.equal(flat, before)
    cs.load_parameters(net, torch.arange(15.0))
    assert torch.equal(flat, torch.arange(15.0))


def test_statistics_named_bnvars_come_class_by_class() -> None:
    net: Any = nn.Sequential().add(nn.SpatialBatchNormalization(2)).add(nn.BatchNormalization(3))
    of = [torch.full((n,), float(i)) for i, n in enumerate((3, 3, 2, 2))]
    cs.load_parameters(net, {"parameters": torch.zeros(10), "bnVars": of})
    assert net.get(1).running_var.tolist() == [1, 1, 1]
    assert net.get(0).running_mean.tolist() == [2, 2]
    cs.load_parameters(net, {"parameters": torch.zeros(10), "bnVars": [of[2], of[3], of[0], of[1]]})
    assert net.get(1).running_var.tolist() == [1, 1, 1]


LINEAR = {"weight": torch.ones(2, 3), "bias": torch.ones(2)}


@pytest.mark.parametrize(
    "source, said",
    [
        (torch.ones(7), "holds 7 numbers, and the module has 8 parameters"),
        ([torch.ones(2, 3)], "holds 1 tensors, and the module has 2 parameters"),
        ([torch.ones(2, 3), torch.ones(3)], "parameter 2 is 3, and the module's is 2"),
        ([torch.ones(8), [torch.ones(2)]], "holds 1 running statistics, and the module's 0 layers have 0"),
        ({"parameters": torch.ones(9)}, "parameters of the table holds 9 numbers, and the module has 8"),
        ({"a": torch.ones(8), "b": torch.ones(8)}, "any of a, b could be the parameters"),
        ({"epoch": 3}, "nothing that fits the module's 8 parameters"),
        ([LINEAR, LINEAR, LINEAR], "the states of 3 modules, and the module has 1"),
        ([{"weight": torch.ones(2, 3)}], "has weight, bias, and the table weight"),
        ("words", "no parameters"),
        (3, "no parameters"),
        ([], "no parameters"),
    ],
)
def test_counts_that_differ_are_told_and_nothing_is_changed(source: Any, said: str, tmp_path: Path) -> None:
    net: Any = nn.Sequential().add(nn.Linear(3, 2))
    before = numbers(net)
    if isinstance(source, str):
        cs.save(source, tmp_path / "x.t7")
        source = tmp_path / "x.t7"
    with pytest.raises(ValueError, match=said):
        cs.load_parameters(net, source)
    assert all(map(torch.equal, numbers(net), before))


def test_the_file_is_named_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "params.t7"
    cs.save(torch.ones(5), path)
    with pytest.raises(ValueError, match=r"params\.t7 holds 5 numbers, and the module has 8 parameters"):
        cs.load_parameters(nn.Linear(3, 2), path)


def test_numbers_are_cast_to_the_modules_type() -> None:
    net = nn.Linear(2, 1).double()
    cs.load_parameters(net, torch.tensor([1.5, 2.5, 3.5]))
    assert net.weight.dtype is torch.float64
    assert net.weight.tolist() == [[1.5, 2.5]]
