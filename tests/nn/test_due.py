"""A module of a file whose tensors have sizes that do not go with its fields is refused in words, by its path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate as cs
import clearstate.nn as nn
from clearstate.errors import ClearstateError
from clearstate.formats import t7
from clearstate.nn.declarations.bad_file import misfit
from clearstate.nn.t7.files import to_graph, to_live
from tests.nn.recorded import all_cases, read

CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "flat": Tensor.flatten,
    "fewer": lambda t: t[1:].clone(),
    "more": lambda t: torch.cat([t, t]),
    "one more dimension": lambda t: t.unsqueeze(0),
}


def places(module: torch.nn.Module) -> Iterator[tuple[str, str]]:
    """Every parameter and buffer with numbers, by the path of its module and its name."""
    for path, inner in module.named_modules():
        for name, held in {**inner._parameters, **inner._buffers}.items():
            if held is not None and held.numel():
                yield path, name


def changed(case: str, path: str, name: str, how: str) -> tuple[nn.Module, Any] | None:
    """A recorded module one of whose tensors has other sizes, and the recorded arguments."""
    recorded = read(case)
    inner = recorded.module.get_submodule(path)
    held = inner._parameters if name in inner._parameters else inner._buffers
    old = held[name].detach()
    new = CHANGES[how](old)
    if new.shape == old.shape or not new.numel():
        return None
    held[name] = torch.nn.Parameter(new) if name in inner._parameters else new
    criterion = isinstance(recorded.module, nn.Criterion)
    return recorded.module, ((recorded.input, recorded.target) if criterion else (recorded.input,))


@pytest.mark.parametrize("case", [case for case in all_cases() if case.endswith("-1") and [*places(read(case).module)]])
def test_a_tensor_of_other_sizes_is_no_error_of_pytorch(case: str) -> None:
    refused = 0
    for path, name in places(read(case).module):
        for how in CHANGES:
            made = changed(case, path, name, how)
            if made is None:
                continue
            try:
                made[0](*made[1])
            except ValueError as error:
                refused += 1
                assert str(error).startswith(f"in {path} (" if path and "from the file" in str(error) else "")
    assert refused or case.partition("-")[0] in HARMLESS


HARMLESS = {"PReLU", "CMul", "CAdd", "Euclidean", "Cosine"}
"""What computes with any sizes that go with the input's."""


FIRST_CASES = {read(case).typename: case for case in reversed(all_cases())}
"""A recorded case of each class."""


@pytest.mark.parametrize("case", FIRST_CASES.values(), ids=FIRST_CASES)
def test_a_module_whose_file_lacks_a_field_works_or_says_so_in_words(case: str) -> None:
    recorded = read(case)
    arguments = (recorded.input, recorded.target) if isinstance(recorded.module, nn.Criterion) else (recorded.input,)
    for name in [name for name in to_graph(recorded.module).state if isinstance(name, str)]:
        graph = to_graph(read(case).module)
        del graph.state[name]
        try:
            made = to_live(graph)
            str(made)
            made(*arguments)
        except (ValueError, IndexError, ClearstateError) as error:
            assert "None" not in str(error) or re.search(rf"\b{name}\b", str(error))
        except RuntimeError as error:
            assert name == "modules", error


def test_a_net_is_printed_though_its_file_lacks_a_field() -> None:
    graph = to_graph(nn.SpatialConvolution(3, 8, 3, 3))
    del graph.state["kW"]
    assert str(nn.Sequential(to_live(graph))).endswith("(1): nn.SpatialConvolution(the file lacks kW)\n}")


UNRECORDED: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "PReLU": lambda: (nn.PReLU(3), torch.rand(2, 3, 4)),
    "SparseLinear": lambda: (nn.SparseLinear(4, 2), torch.tensor([[3, 0.5]])),
    "SpatialConvolutionLocal": lambda: (nn.SpatialConvolutionLocal(2, 3, 6, 5, 3, 2), torch.rand(2, 5, 6)),
    "TemporalRowConvolution": lambda: (nn.TemporalRowConvolution(4, 2), torch.rand(5, 4)),
    "VolumetricFullConvolution": lambda: (nn.VolumetricFullConvolution(2, 3, 2, 3, 2), torch.rand(2, 3, 3, 3)),
    "WeightedEuclidean": lambda: (nn.WeightedEuclidean(4, 3), torch.rand(4)),
}


@pytest.mark.parametrize("name", UNRECORDED)
def test_layers_without_a_recording_tell_right_sizes_from_wrong_ones(name: str) -> None:
    module, input = UNRECORDED[name]()
    assert misfit(module) is None
    refused = set()
    for _, which in places(module):
        for change in CHANGES.values():
            made = to_live(to_graph(module))
            held = made._parameters[which].detach()
            made._parameters[which] = torch.nn.Parameter(change(held))
            try:
                made(input)
            except ValueError as error:
                if f"its {which} is a tensor of" in str(error):
                    refused.add(which)
    assert refused


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"weight": (2, 3), "bias": (5,)}, r"its bias is a tensor of 5, and one of 2 is due"),
        ({"weight": (2, 3, 1), "bias": (2,)}, r"its weight is a tensor of 2x3x1, and one of \?x\? is due"),
    ],
)
def test_a_file_with_wrong_sizes_names_path_class_what_came_and_what_is_due(
    fields: dict[str, tuple[int, ...]], message: str, tmp_path: Path
) -> None:
    layer = t7.Object(
        "nn.Linear", t7.Table({name: t7.Tensor.of(torch.ones(size).numpy()) for name, size in fields.items()})
    )
    inner = t7.Object("nn.Sequential", t7.Table(modules=t7.Table.of([layer]), train=True))
    path = tmp_path / "model.t7"
    t7.save(t7.Object("nn.Sequential", t7.Table(modules=t7.Table.of([inner]), train=True)), path)
    net = cs.load(path)
    for call in (net, net.forward):
        with pytest.raises(ValueError, match=rf"^in 0\.0 \(nn\.Linear\): .*{message}$"):
            call(torch.ones(4, 3))


def test_an_error_that_no_size_explains_stays_what_it_is() -> None:
    net = read("Linear-1").module
    with pytest.raises(RuntimeError, match="dtype"):
        net(torch.ones(1, net.weight.shape[1], dtype=torch.int64))
