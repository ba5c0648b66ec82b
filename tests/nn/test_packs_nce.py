"""dpnn's noise contrastive estimation: outputs, losses and gradients by their formulas, draws by how often they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import clearstate as cs
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Table, Tensor
from clearstate.nn.packs.alias import AliasMultinomial
from clearstate.nn.packs.nce import NCECriterion, NCEModule
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises


def made(batchnoise: bool, z: float | None = 3.0) -> Any:
    torch.manual_seed(0)
    layer = NCEModule(3, 10, 4, torch.rand(10), z).double()
    torch.nn.init.normal_(layer.bias)  # type: ignore[arg-type]
    layer.batchnoise = batchnoise
    return layer


def given() -> list[torch.Tensor]:
    return [torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 9, 3, 3, 7])]


def by_hand(layer: Any, x: Any, target: Any, noise: Any, z: float) -> list[Any]:
    weight, bias, p = (t.detach().numpy() for t in (layer.weight, layer.bias, layer.unigrams))
    out: list[Any] = [np.zeros(5), np.zeros((5, 4)), np.zeros(5), np.zeros((5, 4))]
    for n in range(5):
        out[0][n] = np.exp(weight[target[n]] @ x[n].numpy() + bias[target[n]]) / z
        out[2][n] = p[target[n]]
        for i, j in enumerate(noise if noise.ndim == 1 else noise[n]):
            out[1][n, i] = np.exp(weight[j] @ x[n].numpy() + bias[j]) / z
            out[3][n, i] = p[j]
    return out


@pytest.mark.parametrize("batchnoise", [True, False])
def test_targets_and_draws_are_found_as_likely_as_the_formulas_say(batchnoise: bool) -> None:
    layer, (x, target) = made(batchnoise), given()
    output = layer.forward([x, target])
    assert layer.drawn.shape == ((4,) if batchnoise else (5, 4))
    for ours, due in zip(output, by_hand(layer, x, target, layer.drawn.numpy(), 3.0), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), due, rtol=1e-6)
    check_promises(layer, [x, target])
    check_io(layer, [x, target])
    check_gradients(layer, [x, target])


@pytest.mark.parametrize("batchnoise", [True, False])
def test_the_divisor_is_estimated_of_the_first_batch_and_kept(batchnoise: bool) -> None:
    layer, (x, target) = made(batchnoise, None), given()
    layer.forward([x, target])
    due = by_hand(layer, x, target, layer.drawn.numpy(), 1.0)
    known = due[1] if batchnoise else np.concatenate([due[0][:, None], due[1]], 1)
    assert float(layer.z) == pytest.approx(10 * known.mean(), rel=1e-6)
    z = float(layer.z)
    layer.clear_state().forward([x, target])
    assert float(layer.z) == z
    assert float(to_live(t7.loads(t7.dumps(to_graph(layer)))).z) == z


def test_in_evaluation_it_may_be_a_softmax() -> None:
    layer, (x, target) = made(True), given()
    layer.normalized = True
    scores = x @ layer.weight.t() + layer.bias
    assert len(layer([x, target])) == 4
    layer.eval()
    assert torch.allclose(layer([x, target]), scores.softmax(1))
    layer.logsoftmax = True
    assert torch.allclose(layer([x, target]), scores.log_softmax(1))
    check_promises(layer, [x, target])
    check_io(layer, [x, target])


@pytest.mark.parametrize("average", [True, False])
def test_the_loss_and_its_gradient_are_those_of_the_formulas(average: bool) -> None:
    torch.manual_seed(0)
    parts = [torch.rand(size, dtype=torch.float64) for size in ((5,), (5, 3), (5,), (5, 3))]
    parts[0][0] = 1e-8  # where what Torch7 adds to divisors counts
    pmt, pms, pnt, pns = (part.numpy() for part in parts)
    eps, k, count = 1e-7, 3, 5 if average else 1
    loss = NCECriterion()
    loss.size_average = average
    due = -(np.log(pmt / (pmt + k * pnt + eps)).sum() + np.log(k * pns / (pms + k * pns + eps)).sum()) / count
    assert loss.forward(parts, None) == pytest.approx(due)
    grads = loss.backward(parts, None)
    np.testing.assert_allclose(grads[0], -k * pnt / (pmt + k * pnt + eps) / (pmt + eps) / count)
    np.testing.assert_allclose(grads[1], pms / (pms + k * pns + eps) / (pms + eps) / count)
    assert torch.equal(grads[2], torch.zeros(5))
    assert torch.equal(grads[3], torch.zeros(5, 3))
    check_promises(loss, parts)
    check_io(loss, parts)


def test_what_a_loss_of_noise_is_given_must_fit_together() -> None:
    parts = [torch.rand(5), torch.rand(5, 3), torch.rand(5), torch.rand(1, 3)]
    with pytest.raises(ValueError, match="the noise's part to be a tensor of 5x3, got a tensor of 1x3"):
        NCECriterion()(parts)


@pytest.mark.parametrize(
    "probabilities", [[0.7, 0.1, 0.0, 0.2], [0.25] * 4, [0.0, 0.0, 0.0, 1.0], [0.3, 0.4, 0.2, 0.1]]
)
def test_classes_are_drawn_as_often_as_they_are_likely(probabilities: list[float]) -> None:
    torch.manual_seed(0)
    sampler = AliasMultinomial.of(torch.tensor(probabilities, dtype=torch.float64) * 3)
    share, other = sampler.q.numpy() / 4, sampler.j.numpy()
    total = share.copy()
    for i, kept in enumerate(share):
        if kept < 0.25:
            total[other[i]] += 0.25 - kept
    np.testing.assert_allclose(total, probabilities, atol=1e-12)
    often = sampler.draw(20000).bincount(minlength=4) / 20000
    np.testing.assert_allclose(often.numpy(), probabilities, atol=0.02)


def test_the_noise_keeps_its_type_and_its_file_says_what_it_was() -> None:
    layer = made(True)
    assert layer.half().unigrams.dtype is torch.float32
    assert layer.weight.dtype is torch.float16
    written: Any = to_graph(layer.float())
    noise = written["aliasmultinomial"]
    assert noise.typename == "torch.AliasMultinomial"
    assert set(noise.fields) == {"J", "q", "dpnn_parameters"}
    assert noise["J"].typename == "torch.LongTensor"
    assert {"k", "unigrams", "Z", "batchnoise", "weight", "bias"} <= set(written.fields)
    noise["J"] = Tensor.of(np.array([1, 1, 2, 3, 4, 5, 6, 7, 8, 9]), "torch.LongTensor")
    again: Any = to_live(t7.loads(t7.dumps(written)))
    assert again.sampler.j.tolist() == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert to_graph(again)["aliasmultinomial"]["J"].numpy().tolist() == noise["J"].numpy().tolist()


def test_a_file_of_the_first_years_has_no_sampler_and_a_divisor_that_is_a_number() -> None:
    written: Any = to_graph(made(False))
    state = Table(written.fields)
    del state["aliasmultinomial"], state["batchnoise"]
    state["Z"] = 2.0
    again: Any = to_live(Object("nn.NCEModule", state))
    assert (float(again.z), again.batchnoise) == (2, None)
    assert again(given())[1].shape == (5, 4)


def test_a_file_in_use_is_cleared_to_what_it_was() -> None:
    layer, loss = made(True), NCECriterion()
    fresh = [to_graph(layer), to_graph(loss)]
    parts = layer.forward(given())
    loss.forward(parts, None)
    layer.backward(given(), loss.backward(parts, None))
    for module, due in zip((layer, loss), fresh, strict=True):
        module.zero_grad()
        cleared = cs.clear_state(to_graph(module))
        assert t7.compare(cleared, due) == []
        assert set(cleared.fields) == set(due.fields)


@pytest.mark.parametrize("logarithm", [True, False])
def test_once_learnt_it_becomes_a_linear_layer_and_a_softmax(logarithm: bool) -> None:
    layer = made(True).eval()
    with pytest.raises(cs.ConversionError, match=r"nn\.NCEModule\): it draws noise: set normalized = True"):
        cs.to_stock(layer, given())
    layer.normalized, layer.logsoftmax = True, logarithm
    stock: Any = cs.to_stock(layer, given())
    assert [type(m).__name__ for m in stock.children()] == ["Linear"]
    x, target = torch.randn(3, 3).double(), torch.tensor([1, 2, 3])
    torch.testing.assert_close(stock([x, target]), layer([x, target]))
