"""``clearstate verify`` answers whether two files are the same model, in words and by its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearstate.formats import t7
from tests.cli.conftest import Command
from tests.recordings import DIGITS, FORMATS, paths


def test_a_model_and_its_cleared_self_are_the_same(command: Command, net: str) -> None:
    command("clear", net, "-o", "small.t7")
    done = command("verify", net, "small.t7")
    assert (done.code, done.err) == (0, "")
    assert done.lines[0] == "Same model: net.t7 and small.t7"


def test_what_torch7_cleared_is_the_same_model(command: Command) -> None:
    assert command("verify", DIGITS / "digits.t7", DIGITS / "digits-torch7-clearState.t7").code == 0


def test_a_changed_weight_is_named_by_its_path_with_exit_code_1(command: Command, net: str) -> None:
    root = t7.load(net)
    weight = root["modules"][4]["weight"].numpy().copy()
    weight.flat[5] += 1
    root["modules"][4]["weight"] = t7.Tensor.of(weight, "torch.FloatTensor")
    t7.save(root, "other.t7")
    done = command("verify", net, "other.t7")
    assert (done.code, done.err) == (1, "")
    assert done.lines[0].startswith("Not the same model: net.t7 and other.t7, 1 difference")
    assert done.lines[1].startswith("  modules[4].weight: ")


def test_a_changed_setting_is_a_difference(command: Command, net: str) -> None:
    root = t7.load(net)
    root["modules"][9]["p"] = 0.75
    t7.save(root, "other.t7")
    done = command("verify", net, "other.t7")
    assert done.code == 1
    assert "  modules[9].p: " in done.out


def test_what_differs_and_is_not_the_model_is_told(command: Command, net: str) -> None:
    command("clear", net, "--drop", "gradient", "-o", "small.t7")
    done = command("verify", net, "small.t7")
    assert done.code == 0
    assert "of role gradient" in done.out


@pytest.mark.parametrize("path", paths(FORMATS))
def test_a_file_is_the_same_model_as_itself(command: Command, path: Path) -> None:
    assert command("verify", path, path).code == 0


def test_two_different_files_are_not_the_same_model(command: Command, net: str) -> None:
    done = command("verify", net, DIGITS / "digits-test.t7")
    assert done.code == 1
    assert "Not the same model" in done.out
