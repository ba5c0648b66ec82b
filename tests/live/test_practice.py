"""What people keep on modules, and what PyTorch's own tools put there."""

from __future__ import annotations

import copy
import functools
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import clearstate as cs


def net() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), Linear(8, 4))


def size(model: Module) -> int:
    return len(pickle.dumps(model))


class Chat(Module):
    def __init__(self, transformers: Any) -> None:
        super().__init__()
        sizes = {"vocab_size": 64, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, intermediate_size=32)
        self.decoder = transformers.LlamaForCausalLM(config)
        self.past: Any = None

    def forward(self, ids: Tensor) -> Tensor:
        out = self.decoder(input_ids=ids, use_cache=True)
        self.past = out.past_key_values
        logits: Tensor = out.logits
        return logits


def test_a_cache_of_keys_and_values_that_a_decoder_keeps_goes() -> None:
    transformers = pytest.importorskip("transformers")

    model, ids = Chat(transformers).eval(), torch.arange(6).view(1, 6)
    before = size(model)
    for context in (torch.no_grad, torch.enable_grad):
        with context():
            expected = model(ids).detach()
        assert isinstance(model.past, transformers.DynamicCache)
        cs.clear_state(model, sample=ids)
        assert model.past is None
        assert size(model) == before
        copy.deepcopy(model)
        assert torch.equal(model(ids), expected)
        cs.clear_state(model)


def keep(module: Any, args: Any, output: Tensor, *, detached: bool) -> None:
    module.seen_by_a_hook = output.detach().clone() if detached else output


@pytest.mark.parametrize("detached", [False, True])
def test_feature_maps_that_hooks_store_go_and_the_hooks_stay(detached: bool) -> None:
    model, x = net().eval(), torch.randn(3, 4)
    for layer in model:
        layer.register_forward_hook(functools.partial(keep, detached=detached))
    before = size(model)
    expected = model(x)
    cs.clear_state(model, sample=x if detached else None)
    assert size(model) == before
    assert torch.equal(model(x), expected)
    assert all(hasattr(layer, "seen_by_a_hook") for layer in model)


def test_training_with_batch_norm_goes_on_as_if_nothing_was_cleared() -> None:
    x = torch.randn(8, 4)
    ends = []
    for clearing in (False, True):
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(4):
            model.last = model(x)
            model.last.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if clearing:
                cs.clear_state(model, sample=x)
                assert not hasattr(model, "last")
        assert model.training
        ends.append(model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


def test_recomputed_activations_are_the_same_after_clearing_between_two_steps() -> None:
    class Recomputing(Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = net()
            self.last: Any = None

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = checkpoint(self.inner, x, use_reentrant=False)
            self.last = y
            return y

    model, x = Recomputing().eval(), torch.randn(3, 4)
    grads = []
    for _ in range(2):
        model.zero_grad()
        model(x).square().mean().backward()
        cs.clear_state(model)
        assert model.last is None
        grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert all(map(torch.equal, *grads))


def test_clearing_between_forward_and_backward_leaves_the_gradients() -> None:
    model, x = net().eval(), torch.randn(3, 4)
    model.last = model(x)
    loss = model.last.square().mean()
    grads = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    cs.clear_state(model)
    assert all(map(torch.equal, torch.autograd.grad(loss, list(model.parameters())), grads))


class Symmetric(Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight.triu() + weight.triu(1).mT


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("kind", ["parametrize", "weight_norm", "LSTM", "GRU", "attention", "pruned", "transformer"])
def test_what_pytorch_keeps_for_itself_stays_and_works_in_training_and_after(kind: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 4)
    layers: dict[str, Any] = {
        "LSTM": lambda: torch.nn.LSTM(4, 4, num_layers=2),
        "GRU": lambda: torch.nn.GRU(4, 4, bidirectional=True),
        "attention": lambda: torch.nn.MultiheadAttention(4, 2),
        "transformer": lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0),
        "weight_norm": lambda: torch.nn.utils.weight_norm(Linear(4, 4)),
    }
    model: Any = layers.get(kind, lambda: Linear(4, 4))()
    if kind == "parametrize":
        torch.nn.utils.parametrize.register_parametrization(model, "weight", Symmetric())
    if kind == "pruned":
        prune.random_unstructured(model, "weight", 0.5)  # type: ignore[no-untyped-call]
    inputs = (x, x, x) if kind == "attention" else (x,)

    def output() -> Tensor:
        out = model(*inputs)
        found: Tensor = out[0] if isinstance(out, tuple) else out
        return found

    names = set(model.__dict__)
    for training in (True, False):
        model.train(training)
        expected = output()
        expected.square().sum().backward()  # type: ignore[no-untyped-call]
        state = copy.deepcopy(model.state_dict())
        cs.clear_state(model, sample=inputs)
        copy.deepcopy(model)
        assert set(model.__dict__) == names
        assert list(model.state_dict()) == list(state)
        assert torch.equal(output(), expected)
    if kind in ("LSTM", "GRU"):
        assert [p.data_ptr() for p in model._flat_weights] == [p.data_ptr() for p in model.parameters()]
