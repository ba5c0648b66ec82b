"""Where each maximum was: Python counts from 0 within the plane, a file has it in Torch7's form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live
from tests.nn.recorded import read
from tests.recordings import CASES, case

POOLINGS = [name for name in CASES if name.rpartition("-")[0].endswith("MaxPooling") and "metric" in name]
POOLINGS += [f"Spatial{kind}MaxPooling-{n}" for kind in ("", "Dilated") for n in (1, 2)]
POOLINGS = [name for name in POOLINGS if "Fractional" not in name]


def in_torch7(name: str) -> Any:
    """The recorded indices; of a volume's, only the bytes that Torch7 sets."""
    indices = t7.load(case(name) / "before.t7").state["indices"].numpy()
    return indices & 0xFFFFFF if "Volumetric" in name else indices


@pytest.mark.parametrize("name", POOLINGS)
def test_indices_of_a_file_say_where_the_maxima_are(name: str) -> None:
    recorded = read(name)
    module = recorded.module
    dims = len(module.axes)
    found = recorded.input.flatten(-dims).gather(-1, module.indices.flatten(-dims))
    assert torch.equal(found, recorded.output.flatten(-dims))


@pytest.mark.parametrize("name", POOLINGS)
def test_indices_computed_in_python_go_to_a_file_as_torch7_wrote_them(name: str) -> None:
    recorded = read(name)
    module = recorded.module.clear_state()
    assert to_graph(module).state["indices"].size == ()
    module.forward(recorded.input)
    written = to_graph(module).state["indices"]
    assert written.typename == "torch.LongTensor"
    assert np.array_equal(written.numpy(), in_torch7(name))
    assert torch.equal(to_live(to_graph(module)).indices, module.indices)


@pytest.mark.parametrize("name", POOLINGS)
def test_the_size_of_the_last_input_is_kept_with_the_indices_and_goes_with_them(name: str) -> None:
    recorded = read(name)
    module = recorded.module
    axes = ("itime", "iheight", "iwidth")[-len(module.axes) :]
    assert [getattr(module, axis) for axis in axes] == list(recorded.input.shape[-len(axes) :])
    module.clear_state()
    assert not any(hasattr(module, axis) for axis in axes)
    assert module.indices.numel() == 0


def test_indices_of_a_volume_without_its_size_are_let_go() -> None:
    pooling = nn.VolumetricMaxPooling(2, 2, 2)
    pooling.forward(torch.randn(1, 4, 4, 4))
    old = to_graph(pooling)
    for name in ("itime", "iheight", "iwidth"):
        del old.state[name]
    assert to_live(old).indices.numel() == 0


def test_indices_of_old_files_may_be_doubles() -> None:
    pooling = nn.SpatialMaxPooling(2, 2)
    input = torch.randn(1, 4, 4)
    pooling.forward(input)
    old = to_graph(pooling)
    old.state["indices"] = t7.Tensor.of(old.state["indices"].numpy().astype(np.float64))
    made = to_live(old)
    assert made.indices.tolist() == pooling.indices.tolist()
    assert torch.equal(made.forward(input), pooling.output)
    assert to_graph(made).state["indices"].typename == "torch.LongTensor"


def test_a_plain_call_keeps_no_indices() -> None:
    pooling = nn.SpatialMaxPooling(2, 2)
    pooling(torch.randn(1, 4, 4))
    assert pooling.indices.numel() == 0
    assert not hasattr(pooling, "iwidth")
