"""rnn's normalized weights: the same as the plain modules with the weight that directions and lengths make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import clearstate as cs
from clearstate.formats import t7
from clearstate.nn.packs import rnn
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises

MAKES: dict[str, Any] = {
    "SeqLSTM": (lambda: rnn.SeqLSTM_WN(4, 3), lambda: rnn.SeqLSTM(4, 3)),
    "SeqLSTMP": (lambda: rnn.SeqLSTMP_WN(4, 5, 3), lambda: rnn.SeqLSTMP(4, 5, 3)),
    "SeqGRU": (lambda: rnn.SeqGRU_WN(4, 3), lambda: rnn.SeqGRU(4, 3)),
}


def normalized(g: Any, v: Any, inputs: int) -> Any:
    """``g v / |v|``, the rows of the input and those of the output by themselves."""
    parts = [v[:inputs], v[inputs:]]
    return np.concatenate([p * g[i] / np.sqrt((p**2).sum(0)) for i, p in enumerate(parts)])


def scattered(name: str) -> Any:
    torch.manual_seed(0)
    layer = MAKES[name][0]().double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def plain(name: str, layer: Any) -> Any:
    made = MAKES[name][1]().double()
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(normalized(layer.g.detach().numpy(), layer.v.detach().numpy(), 4)))
        made.bias.copy_(layer.bias)
        if name == "SeqLSTMP":
            made.weight_o.copy_(layer.vo * layer.go / layer.vo.square().sum(0).sqrt())
    return made


@pytest.mark.parametrize("batchfirst", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", MAKES)
def test_it_is_the_plain_module_with_the_weight_that_its_parameters_make(
    name: str, masked: bool, batchfirst: bool
) -> None:
    layer = scattered(name)
    other = plain(name, layer)
    x = torch.randn(3, 2, 4, dtype=torch.float64)
    x[1, 0] = 0
    for module in (layer, other):
        module.maskzero, module.batchfirst = masked, batchfirst
    assert torch.allclose(layer(x), other(x))


@pytest.mark.parametrize("name", MAKES)
def test_it_keeps_the_promises_and_its_gradients_are_right(name: str) -> None:
    layer, x = scattered(name), torch.randn(3, 2, 4, dtype=torch.float64)
    check_promises(layer, x)
    check_io(layer, x)
    check_gradients(layer, x[:2, :1])


@pytest.mark.parametrize("name", MAKES)
def test_what_is_learnt_is_what_torch7_learns_in_its_order(name: str) -> None:
    layer = MAKES[name][0]()
    due = ["g", "v", "bias", *(["go", "vo"] if name == "SeqLSTMP" else [])]
    assert [n for n, _ in layer.named_parameters()] == due
    again: Any = to_live(t7.loads(t7.dumps(to_graph(layer))))
    assert [n for n, _ in again.named_parameters()] == due
    size = 3
    assert layer.bias.tolist() == [1.0 if size <= i < 2 * size else 0.0 for i in range(len(layer.bias))]
    assert torch.allclose(layer.v, layer.weight)


@pytest.mark.parametrize("name", MAKES)
def test_a_file_has_the_weight_that_torch7_evaluates_with_and_the_room_it_needs(name: str) -> None:
    layer = scattered(name)
    written: Any = to_graph(layer)
    columns = len(layer.bias)
    np.testing.assert_allclose(
        written["weight"].numpy(), normalized(layer.g.detach().numpy(), layer.v.detach().numpy(), 4)
    )
    sizes = {"weight": (7, columns), "gradWeight": (7, columns), "gradV": (7, columns), "gradG": (2, columns)}
    sizes |= {"norm": (2, columns), "scale": (2, columns)}
    if name == "SeqLSTMP":
        sizes |= {"weightO": (5, 3), "gradWeightO": (5, 3), "normO": (1, 3), "scaleO": (1, 3), "gradVO": (5, 3)}
    if name == "SeqGRU":
        sizes["hTmp"] = (3, 9)
    assert {field: written[field].size for field in sizes} == sizes
    assert [part.typename for part in written["gradInput"].array()] == ["torch.DoubleTensor"] * (
        2 if name == "SeqGRU" else 3
    )
    work: Any = to_graph(layer)
    for field in ("gates", "buffer4", "buffer7", "grad_x", "h0"):
        assert not work[field].size
        work[field] = t7.Tensor.of(np.ones(3))
    work["gradWeight"].numpy()[:] = 5
    assert t7.compare(cs.clear_state(work), written) == []
    assert work["gradWeight"].size == (7, columns)


def test_a_normalized_lstm_is_a_step_by_step_one() -> None:
    layer, x = scattered("SeqLSTM"), torch.randn(4, 2, 4, dtype=torch.float64)
    assert torch.allclose(rnn.Sequencer(layer.to_fast_lstm())(x), layer(x))
    layer = scattered("SeqGRU")
    assert torch.allclose(rnn.Sequencer(layer.to_gru())(x), layer(x))
    with pytest.raises(TypeError, match=r"nn\.SeqLSTMP_WN has a projection"):
        scattered("SeqLSTMP").to_fast_lstm()


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name, kind", [("SeqLSTM", "LSTM"), ("SeqLSTMP", "LSTM"), ("SeqGRU", "ResetFirstGRU")])
def test_it_becomes_stock_pytorch(name: str, kind: str) -> None:
    layer, x = scattered(name).eval(), torch.randn(4, 2, 4, dtype=torch.float64)
    stock: Any = cs.to_stock(layer, x)
    assert [type(each).__name__ for each in stock.children()] == [kind]
    other = torch.randn(5, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(stock(other), layer(other))


def test_dropout_of_a_sequence_is_one_draw_for_its_steps() -> None:
    torch.manual_seed(0)
    layer, x = rnn.SeqDropout(0.25), torch.ones(6, 20, 5)
    output = layer.forward(x)
    assert set(output.unique().tolist()) == {0.0, float(torch.tensor(1 / 0.75))}
    assert torch.equal(output, output[:1].expand_as(output))
    assert 0.6 < float((output > 0).float().mean()) < 0.9
    check_promises(layer, x)
    check_io(layer, x)
    assert torch.equal(layer.eval()(x), x)
    old = rnn.SeqDropout(0.25, True)
    assert torch.equal(old.eval()(x), x * 0.75)
    for each in (layer, old):
        torch.testing.assert_close(cs.to_stock(each, x)(x), each(x))
    with pytest.raises(cs.ConversionError, match=r"nn\.SeqDropout\): it draws in evaluation"):
        cs.to_stock(rnn.SeqDropout(0.25, stochastic_inference=True), x)
