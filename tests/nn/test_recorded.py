"""Every recorded case runs in Python and gives Torch7's numbers, to 1e-10."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clearstate.nn import Criterion
from clearstate.nn.protocol.ownership import mapped, tensors
from tests.nn.recorded import Recorded, all_cases, assert_close, read

pytestmark = pytest.mark.filterwarnings("default")


def unique_parameters(recorded: Recorded) -> list[Any]:
    """The recorded gradients of distinct parameters: Torch7 lists a shared one as often as it is met."""
    seen: list[Any] = []
    for grad in recorded.grad_parameters:
        if not any(grad is other or grad.data_ptr() == other.data_ptr() for other in seen):
            seen.append(grad)
    if recorded.typename == "nn.WeightNorm":  # its work leaves gradV in the weight's shape, v has one of its own
        return [grad.view_as(p) for grad, p in zip(seen, recorded.module.parameters(), strict=True)]
    return seen


@pytest.mark.parametrize("name", all_cases())
def test_the_protocol_gives_torch7s_output_and_gradients(name: str) -> None:
    recorded = read(name)
    module = recorded.module
    if isinstance(module, Criterion):
        assert_close(module.forward(recorded.input, recorded.target), recorded.output, "output", recorded.within)
        assert_close(
            module.backward(recorded.input, recorded.target), recorded.grad_input, "grad_input", recorded.within
        )
        return
    module.zero_grad_parameters()
    assert_close(module.forward(recorded.input), recorded.output, "output", recorded.within)
    assert_close(
        module.backward(recorded.input, recorded.grad_output), recorded.grad_input, "grad_input", recorded.within
    )
    assert_close([p.grad for p in module.parameters()], unique_parameters(recorded), "parameter gradients")


@pytest.mark.parametrize("name", all_cases())
def test_plain_autograd_gives_torch7s_output_and_gradients(name: str) -> None:
    recorded = read(name)
    module = recorded.module
    module.zero_grad(set_to_none=True)
    module.clear_state()
    leaves: list[Any] = []

    def leaf(tensor: Any) -> Any:
        if tensor.is_floating_point():
            leaves.append(tensor.detach().clone().requires_grad_())
            return leaves[-1] * 1  # so that in-place layers may change it
        return tensor

    input = mapped(recorded.input, leaf)
    if isinstance(module, Criterion):
        output = module(input, recorded.target)
        weights = [torch.ones_like(output)]
    else:
        output = module(input)
        weights = list(tensors(recorded.grad_output))
    assert_close(output, recorded.output, "output", recorded.within)
    pairs = [
        (o, w.reshape(o.shape).to(o.dtype)) for o, w in zip(tensors(output), weights, strict=True) if o.requires_grad
    ]
    parameters = [p for p in module.parameters() if p.requires_grad]
    sources = [*leaves, *parameters]
    grads = [None] * len(sources)
    if pairs and sources:
        found = torch.autograd.grad([o for o, _ in pairs], sources, [w for _, w in pairs], allow_unused=True)
        grads = list(found)  # type: ignore[arg-type]
    filled = [torch.zeros_like(s) if g is None else g for s, g in zip(sources, grads, strict=True)]
    indices = {i for i, t in enumerate(tensors(recorded.input)) if not t.is_floating_point()}
    floating = [t for i, t in enumerate(tensors(recorded.grad_input)) if t.is_floating_point() and i not in indices]
    if recorded.grad_input != []:  # what Torch7 does not compute, autograd does
        assert_close(filled[: len(leaves)], floating if leaves else [], "gradient of the input", recorded.within)
    if not isinstance(module, Criterion):
        assert_close(filled[len(leaves) :], unique_parameters(recorded), "parameter gradients")
    assert not list(tensors(module.output)) or not any(t.numel() for t in tensors(module.output))
