"""Every layer that Torch7 recorded gives Torch7's numbers as stock PyTorch too, to 1e-10 in double."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
from clearstate.export.convert import export
from clearstate.export.definition import write
from clearstate.nn import Criterion
from clearstate.nn.protocol.ownership import mapped, tensors
from clearstate.nn.protocol.stateful import Stateful
from tests.export.written import imported
from tests.nn.recorded import Recorded, all_cases, assert_close, read
from tests.recordings import PACKS, names

pytestmark = pytest.mark.filterwarnings("default")

NOT_MAPPABLE = {
    "SpatialMaxUnpooling-1": "the recording is of the layer alone, without the pooling whose indices it takes",
    "SpatialMaxUnpooling-2": "the recording is of the layer alone, without the pooling whose indices it takes",
    "VolumetricMaxUnpooling-1": "the recording is of the layer alone, without the pooling whose indices it takes",
    "VolumetricMaxUnpooling-2": "the recording is of the layer alone, without the pooling whose indices it takes",
}
"""Recorded modules that cannot be converted, and why; `test_unpooling` has them in nets."""

DRAWN = frozenset(("Dropout", "RReLU", "SpatialDropout", "VolumetricDropout", "WhiteNoise"))
"""Classes whose recorded output is one draw: in evaluation, where they do not draw, they equal ours."""

STATISTICS = frozenset(("BatchNormalization", "SpatialBatchNormalization", "VolumetricBatchNormalization"))
"""Classes whose output is another in training: the recording is in one of the two modes."""


NEARLY = {"Euclidean": 1e-6}
"""Classes whose gradient in Torch7 is not the derivative, by a little that it adds to a distance."""


def is_criterion(name: str) -> bool:
    return "Criterion" in name


MODULES = [name for name in all_cases() if not is_criterion(name)]
MAPPABLE = [name for name in MODULES if name not in NOT_MAPPABLE]


def recorded(name: str) -> Recorded:
    case = read(name, draws=False)
    assert not isinstance(case.module, Criterion)
    return case


def gradients(net: Any, input: Any, weights: Any) -> list[Any]:
    """The gradients of an input's tensors, zero where nothing is learnt from them."""
    leaves: list[Any] = []

    def leaf(tensor: Any) -> Any:
        if not tensor.is_floating_point():
            return tensor
        leaves.append(tensor.detach().clone().requires_grad_())
        return leaves[-1] * 1

    outputs = tensors(net(mapped(input, leaf)))
    pairs = [(o, g.reshape(o.shape)) for o, g in zip(outputs, tensors(weights), strict=True) if o.requires_grad]
    if not pairs or not leaves:
        return [torch.zeros_like(each) for each in leaves]
    found = torch.autograd.grad([o for o, _ in pairs], leaves, [w for _, w in pairs], allow_unused=True)
    return [torch.zeros_like(each) if grad is None else grad for each, grad in zip(leaves, found, strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where definitions are written."""
    return tmp_path_factory.mktemp("definitions")


def source(name: str, folder: Path) -> Path:
    return folder / f"{name.replace('-', '_')}.py"


@pytest.mark.parametrize("name", MAPPABLE)
def test_a_recorded_module_as_stock_pytorch_gives_torch7s_output_and_gradient(name: str, folder: Path) -> None:
    case = recorded(name)
    exported = export(case.module, case.input, weights=source(name, folder).with_suffix(".safetensors").name)
    write(exported, source(name, folder))
    assert_as_written(exported.net, imported(source(name, folder)).load(), case.input)
    assert not [type(m) for m in exported.net.modules() if isinstance(m, Stateful)]
    assert exported.net.training == case.module.training
    kind = name.rpartition("-")[0]
    if kind in DRAWN:
        due: Any = case.module.eval()(case.input)
        assert_close(exported.net.eval()(case.input), due, "output in evaluation")
        return
    modes = [case.module.training] if kind in STATISTICS else [False, True]
    for mode in modes:
        made = exported.net.train(mode)(case.input)
        assert_close(made, case.output, f"output ({'training' if mode else 'evaluation'})", case.within)
    if case.grad_input not in ([], None):
        exported.net.train(case.module.training)
        pairs = zip(tensors(case.grad_input), tensors(case.input), strict=True)
        due = [grad for grad, x in pairs if x.is_floating_point()]
        within = NEARLY.get(kind, case.within)
        assert_close(gradients(exported.net, case.input, case.grad_output), due, "gradient of the input", within)


def assert_as_written(net: Any, loaded: Any, input: Any) -> None:
    """The source with its weights makes the same net."""
    modes = [m.training for m in net.modules()]
    assert loaded.state_dict().keys() == net.state_dict().keys()
    results = []
    for each in (net.eval(), loaded):
        torch.manual_seed(0)
        with torch.no_grad():
            results.append(each(mapped(input, torch.Tensor.clone)))
    assert_close(results[0], results[1], "what was written", 1e-12)
    for module, mode in zip(net.modules(), modes, strict=True):
        module.training = mode


LOAD_ALL = """
import importlib, pathlib, sys
sys.modules["clearstate"] = None  # whoever imports it gets an ImportError
sys.path.insert(0, sys.argv[1])
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    importlib.import_module(path.stem).load()
"""


def test_what_is_written_is_formatted_and_loads_without_a_warning_where_there_is_no_clearstate(folder: Path) -> None:
    for name in MAPPABLE:
        if not source(name, folder).exists():
            case = recorded(name)
            cs.write_definition(case.module, source(name, folder), case.input)
    formatted = ["format", "--check", "--line-length"]
    for words in ([*formatted, "88"], [*formatted, "120"], ["check"]):
        command = [sys.executable, "-m", "ruff", *words, "--isolated", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(folder.glob("*.py"))) == len(MAPPABLE) > 150
    subprocess.run([sys.executable, "-I", "-W", "error", "-c", LOAD_ALL, str(folder)], check=True)
    for path in folder.glob("*.py"):
        assert "import clearstate" not in path.read_text()
        assert "from clearstate" not in path.read_text()


@pytest.mark.parametrize("name", names(PACKS))
def test_a_recorded_module_of_dpnn_or_rnn_gives_torch7s_output_too(name: str) -> None:
    case = recorded(name)
    stock = cs.to_stock(case.module, case.input)
    if name.rpartition("/")[2].rpartition("-")[0] in DRAWN:
        assert_close(stock.eval()(case.input), case.module.eval()(case.input), "output in evaluation")
        return
    assert all(parameter.requires_grad for parameter in stock.parameters())
    assert_close(stock.train(case.module.training)(case.input), case.output, "output", case.within)


@pytest.mark.parametrize("name", sorted(NOT_MAPPABLE))
def test_what_cannot_be_converted_alone_says_so(name: str) -> None:
    case = recorded(name)
    with pytest.raises(cs.ConversionError, match="the pooling it belongs to"):
        cs.to_stock(case.module, case.input)


@pytest.mark.parametrize("name", ["Dropout-1", "Dropout-2", "SpatialDropout-1", "VolumetricDropout-1", "WhiteNoise-1"])
def test_a_layer_that_draws_draws_as_torch7s_does(name: str) -> None:
    """Share, scale and mean of the draws are those of the class: of many draws, the mean and the spread agree."""
    case = recorded(name)
    stock = cs.to_stock(case.module, case.input).train()
    module = case.module.train()
    x = torch.ones_like(case.input)

    def drawn(net: Any) -> Any:
        torch.manual_seed(0)
        return torch.stack([net(x) for _ in range(1000)])

    ours, theirs = drawn(stock), drawn(module)
    torch.testing.assert_close(ours.mean(), theirs.mean(), rtol=0.05, atol=0.02)
    torch.testing.assert_close(ours.std(), theirs.std(), rtol=0.05, atol=0.02)
