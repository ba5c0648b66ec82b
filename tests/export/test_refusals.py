"""What cannot be converted is said before anything is written: every layer, by its path and class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.export import rule
from clearstate.export.rules import RULES


class Doubled(nn.Module):
    """A layer of a user's own."""

    def update_output(self, input: Any) -> Any:
        return 2 * input


class Biased(nn.Linear):
    """A layer that computes something else than its parent does."""

    def update_output(self, input: Any) -> Any:
        return super().update_output(input) + 1


class Renamed(nn.Linear):
    """A layer that computes what its parent does."""


def test_all_layers_without_a_rule_are_named() -> None:
    inner = nn.Sequential(Doubled(), nn.Kmeans(2, 2))
    net = nn.Sequential(nn.Linear(3, 2), nn.ConcatTable().add(inner).add(nn.Identity()))
    with pytest.raises(cs.ConversionError) as caught:
        cs.to_stock(net, torch.randn(2, 3))
    text = str(caught.value)
    assert text.startswith("2 layers cannot be converted: ")
    assert "1.0.0 (nn.Doubled): there is no rule for this class" in text
    assert "1.0.1 (nn.Kmeans): there is no rule for this class" in text


def test_they_are_named_without_a_sample_too() -> None:
    with pytest.raises(cs.ConversionError, match=r"0 \(nn.Kmeans\): there is no rule"):
        cs.to_stock(nn.Sequential(nn.Kmeans(2, 2)))


def test_classes_and_configurations_are_refused_together() -> None:
    net = nn.Sequential(nn.SpatialFractionalMaxPooling(2, 2, 3, 3).fix_pooling_regions(), Doubled())
    with pytest.raises(cs.ConversionError, match=r"2 layers cannot be converted: 0 .*; 1 "):
        cs.to_stock(net, torch.randn(2, 1, 5, 5))


def test_a_class_that_computes_something_else_does_not_pass_for_its_parent() -> None:
    with pytest.raises(cs.ConversionError, match="Biased"):
        cs.to_stock(Biased(3, 2))
    net, x = Renamed(3, 2), torch.randn(2, 3)
    torch.testing.assert_close(cs.to_stock(net)(x), net(x))


def test_a_class_of_ones_own_is_added_with_one_function() -> None:
    net = nn.Sequential(nn.Linear(3, 2), Doubled())
    assert not cs.coverage(net).complete

    @rule(Doubled, becomes="2 * x")
    def doubled(module: Doubled, x: Any, to: Any) -> Any:
        return to.code("2 * {0}", x)

    try:
        assert cs.coverage(net).complete
        x = torch.randn(4, 3)
        torch.testing.assert_close(cs.to_stock(net)(x), net(x))
    finally:
        del RULES[Doubled]


def test_a_rule_that_is_wrong_is_caught_with_the_layer_that_differs() -> None:
    @rule(Doubled, becomes="3 * x")
    def wrong(module: Doubled, x: Any, to: Any) -> Any:
        return to.code("3 * {0}", x)

    try:
        net = nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.Tanh(), Doubled()), nn.Linear(2, 2))
        with pytest.raises(cs.ConversionError, match=r"1\.1 \(nn.Doubled\) as 3 \* x does not give the same: numbers"):
            cs.to_stock(net)
        assert cs.to_stock(net, tolerance=10.0) is not None
    finally:
        del RULES[Doubled]


def test_a_criterion_and_what_is_no_net_are_refused_in_words() -> None:
    with pytest.raises(cs.ConversionError, match=r"nn.MSECriterion is a criterion"):
        cs.write_definition(nn.MSECriterion(), "net.py")
    with pytest.raises(cs.ConversionError, match=r"no rule for the criterion nn.L1Cost"):
        cs.to_stock(nn.L1Cost())
    with pytest.raises(cs.ConversionError, match="dict is no net"):
        cs.to_stock({})


def test_a_sample_that_does_not_fit_says_where() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.Linear(5, 2)))
    with pytest.raises(ValueError, match=r"in 1\.0 \(nn.Linear\): expected a tensor whose last dimension is 5"):
        cs.to_stock(net, torch.randn(2, 3))


def test_coverage_says_what_each_layer_becomes_without_running_it() -> None:
    net = nn.Sequential(nn.SpatialConvolution(1, 2, 3, 3), nn.Sequential(nn.ReLU(), Doubled()), nn.CAddTable())
    report = cs.coverage(net)
    assert [(row.path, row.typename, row.becomes) for row in report.rows] == [
        ("0", "nn.SpatialConvolution", "nn.Conv2d"),
        ("1.0", "nn.ReLU", "nn.Threshold, nn.ReLU"),
        ("1.1", "nn.Doubled", None),
        ("2", "nn.CAddTable", "x + y"),
    ]
    assert not report.complete
    assert [row.path for row in report.missing] == ["1.1"]
    assert repr(report) == "Coverage(4 layers, 1 missing)"


def test_the_report_of_a_conversion_has_the_difference_of_each_layer(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh()).double()
    report = cs.write_definition(net, tmp_path / "net.py")
    assert [(row.path, row.becomes) for row in report.rows] == [("0", "nn.Linear(3, 2)"), ("1", "nn.Tanh()")]
    assert all(row.difference is not None and row.difference <= 1e-10 for row in report.rows)
    assert str(report).splitlines()[1].split() == ["1", "nn.Tanh", "nn.Tanh()", "0"]


def test_every_class_of_nn_has_a_rule_or_is_known_to_have_none() -> None:
    without = {
        cls.__name__
        for cls in vars(nn).values()
        if isinstance(cls, type) and issubclass(cls, nn.Module) and cls not in RULES
    }
    assert without == {
        "Container",  # has no forward
        "Kmeans",  # learns by a rule of its own
        "Module",  # has no forward
        "Opaque",  # of a class that is not known
    }
