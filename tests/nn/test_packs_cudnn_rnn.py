"""cudnn.torch's recurrent networks: flat weights are what cuDNN lays out, and every kind gives PyTorch's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import clearstate as cs
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Table, Tensor
from clearstate.nn.packs import cudnn_rnn
from clearstate.nn.protocol.memory import sequence
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises

KINDS: list[Any] = [
    cudnn_rnn.RNN,
    cudnn_rnn.RNNReLU,
    cudnn_rnn.RNNTanh,
    cudnn_rnn.LSTM,
    cudnn_rnn.GRU,
    cudnn_rnn.BLSTM,
    cudnn_rnn.BGRU,
]


def sigmoid(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    made: np.ndarray[Any, Any] = 1 / (1 + np.exp(-x))
    return made


def by_hand(mode: str, flat: np.ndarray[Any, Any], x: np.ndarray[Any, Any], hidden: int, both: bool) -> Any:
    """cuDNN's equations for two layers, with matrices and biases taken one by one from where cuDNN puts them."""
    gates = {"LSTM": "ifgo", "GRU": "rzn", "RNN_TANH": "h"}[mode]
    directions = 2 if both else 1
    at = 0

    def take(*shape: int) -> np.ndarray[Any, Any]:
        nonlocal at
        at += int(np.prod(shape))
        return flat[at - int(np.prod(shape)) : at].reshape(shape)

    cells = [(layer, d) for layer in range(2) for d in range(directions)]
    width = {0: x.shape[-1], 1: hidden * directions}
    matrices = {
        cell: ([take(hidden, width[cell[0]]) for _ in gates], [take(hidden, hidden) for _ in gates]) for cell in cells
    }
    biases = {cell: ([take(hidden) for _ in gates], [take(hidden) for _ in gates]) for cell in cells}
    assert at == len(flat)
    for layer in range(2):
        outputs = []
        for d in range(directions):
            (w, r), (bw, br) = matrices[layer, d], biases[layer, d]
            h = c = np.zeros((x.shape[1], hidden))
            steps = []
            for step in x[::-1] if d else x:
                mine = [step @ m.T + b for m, b in zip(w, bw, strict=True)]
                last = [h @ m.T + b for m, b in zip(r, br, strict=True)]
                if mode == "LSTM":
                    i, f, g, o = (a + b for a, b in zip(mine, last, strict=True))
                    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
                    h = sigmoid(o) * np.tanh(c)
                elif mode == "GRU":
                    reset, update = sigmoid(mine[0] + last[0]), sigmoid(mine[1] + last[1])
                    h = (1 - update) * np.tanh(mine[2] + reset * last[2]) + update * h
                else:
                    h = np.tanh(mine[0] + last[0])
                steps.append(h)
            outputs.append(np.stack(steps[::-1] if d else steps))
        x = np.concatenate(outputs, -1)
    return x


@pytest.mark.parametrize(
    "name, mode, both",
    [
        ("cudnn.LSTM", "LSTM", False),
        ("cudnn.BLSTM", "LSTM", True),
        ("cudnn.GRU", "GRU", False),
        ("cudnn.BGRU", "GRU", True),
        ("cudnn.RNNTanh", "RNN_TANH", False),
    ],
)
def test_a_file_with_flat_weights_gives_cudnns_numbers_and_is_written_back(name: str, mode: str, both: bool) -> None:
    rng = np.random.default_rng(1)
    gates, hidden, width, directions = {"LSTM": 4, "GRU": 3}.get(mode, 1), 3, 5, 2 if both else 1
    per = hidden * (width + hidden) + hidden * (hidden * directions + hidden) + 2 * 2 * hidden
    flat = rng.standard_normal(gates * per * directions)
    x = rng.standard_normal((4, 2, width))
    file = Object(
        name,
        Table(
            _type="torch.CudaDoubleTensor",
            datatype="CUDNN_DATA_DOUBLE",
            inputSize=float(width),
            hiddenSize=float(hidden),
            numLayers=2.0,
            bidirectional="CUDNN_BIDIRECTIONAL" if both else "CUDNN_UNIDIRECTIONAL",
            numDirections=float(directions),
            inputMode="CUDNN_LINEAR_INPUT",
            mode=f"CUDNN_{mode}",
            dropout=0.0,
            seed=19088743.0,
            batchFirst=False,
            rememberStates=False,
            sync=True,
            seqLength=7.0,
            miniBatch=2.0,
            inputPacked=False,
            train=True,
            weight=Tensor.of(flat, "torch.CudaDoubleTensor"),
            gradWeight=Tensor.of(0 * flat, "torch.CudaDoubleTensor"),
            reserve=Tensor.of(np.ones(9), "torch.CudaDoubleTensor"),
            output=Tensor.of(np.ones((7, 2, 3)), "torch.CudaDoubleTensor"),
        ),
    )
    live = to_live(file)
    np.testing.assert_allclose(live(torch.from_numpy(x)).detach().numpy(), by_hand(mode, flat, x, hidden, both))
    written = to_graph(live)
    cleared = cs.clear_state(t7.loads(t7.dumps(file)))
    assert [str(d) for d in t7.compare(cleared, written)] == []
    assert {"hiddenOutput", "cellOutput", "gradHiddenInput", "gradCellInput", "reserve"} <= set(written.fields)
    assert (written["seqLength"], written["weight"].typename) == (1.0, "torch.CudaDoubleTensor")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch_first", [False, True])
def test_every_kind_gives_what_pytorchs_module_with_the_same_parameters_does(kind: Any, batch_first: bool) -> None:
    module = kind(4, 3, 2, batch_first)
    stock, x = module.to_torch(), torch.randn(5, 2, 4, requires_grad=True)
    output = module(x)
    due, _ = stock(x)
    assert torch.allclose(output, due, atol=1e-6)
    weights = torch.randn_like(due)
    ours = torch.autograd.grad(output, [x, module.weight], weights)
    theirs = torch.autograd.grad(due, [x, *stock._flat_weights], weights)
    assert torch.allclose(ours[0], theirs[0], atol=1e-6)
    other = kind(4, 3, 2, batch_first).copy_from(stock)
    assert torch.equal(other.weight, module.weight)
    for part, grad in zip(stock._flat_weights, theirs[1:], strict=True):
        part.data = grad
    assert torch.allclose(other.copy_from(stock).weight, ours[1], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_keeps_the_promises_and_is_the_same_after_a_file(kind: Any) -> None:
    module, x = kind(3, 2, 2), torch.randn(4, 2, 3)
    check_promises(module, x)
    check_io(module, x)


@pytest.mark.parametrize("kind", [cudnn_rnn.BLSTM, cudnn_rnn.GRU])
def test_the_gradients_of_flat_weights_are_right(kind: Any) -> None:
    check_gradients(kind(2, 1, 1), torch.randn(3, 1, 2))


@pytest.mark.parametrize("kind", [cudnn_rnn.LSTM, cudnn_rnn.BGRU, cudnn_rnn.RNNTanh])
def test_packed_sequences_of_several_lengths_give_what_each_gives_alone(kind: Any) -> None:
    module = kind(4, 3, 2)
    sequences = [torch.randn(n, 4) for n in (5, 3, 2)]
    packed = torch.nn.utils.rnn.pack_sequence(sequences)
    data = module([packed.data, packed.batch_sizes.tolist()])
    apart, _ = torch.nn.utils.rnn.pad_packed_sequence(packed._replace(data=data))
    for i, one in enumerate(sequences):
        assert torch.allclose(apart[: len(one), i], module(one.unsqueeze(1))[:, 0], atol=1e-6)
    assert module.forward([packed.data, packed.batch_sizes]).shape == data.shape


@pytest.mark.parametrize("kind", [cudnn_rnn.LSTM, cudnn_rnn.GRU])
def test_remembered_states_make_two_sequences_one(kind: Any) -> None:
    module = kind(4, 3, 2, remember_states=True)
    x = torch.randn(6, 2, 4)
    whole = module(x)
    kept = torch.cat([module.forward(x[:2]).clone(), module.forward(x[2:]).clone()])
    assert torch.allclose(kept, whole, atol=1e-6)
    module.reset_states()
    assert torch.allclose(module.forward(x), whole, atol=1e-6)
    module.clear_state()
    with sequence():
        inside = torch.cat([module(x[:2]), module(x[2:])])
    assert torch.allclose(inside, whole, atol=1e-6)
    assert torch.allclose(module(x), whole, atol=1e-6), "a plain call leaves nothing to go on from"


def test_a_state_may_be_given_to_begin_from() -> None:
    module = cudnn_rnn.LSTM(4, 3, 2)
    h, c, x = torch.randn(2, 2, 3), torch.randn(2, 2, 3), torch.randn(5, 2, 4)
    module.hidden_input, module.cell_input = h, c
    assert torch.allclose(module(x), module.to_torch()(x, (h, c))[0], atol=1e-6)
    module.clear_state()
    assert not hasattr(module, "hidden_input")
    assert h.abs().sum() > 0
    module.hidden_input = torch.randn(1, 2, 3)
    with pytest.raises(ValueError, match="expected hidden_input to be of 2x2x3, got a tensor of 1x2x3"):
        module(x)


def test_dropout_is_between_layers_and_in_training_only() -> None:
    module, x = cudnn_rnn.LSTM(4, 3, 2, dropout=0.5), torch.randn(5, 2, 4)
    torch.manual_seed(0)
    assert not torch.allclose(module(x), module(x))
    module.eval()
    assert torch.allclose(module(x), module(x))


def test_a_weight_of_another_size_is_refused_by_its_size() -> None:
    module = cudnn_rnn.LSTM(4, 3, 1)
    module.weight = torch.nn.Parameter(torch.zeros(100))
    with pytest.raises(ValueError, match="expected a flat weight of 108 elements, got a tensor of 100"):
        module(torch.zeros(2, 1, 4))
    with pytest.raises(ValueError, match=r"expected a module like LSTM\(4, 3\), got LSTM\(4, 5\)"):
        cudnn_rnn.LSTM(4, 3, 1).copy_from(torch.nn.LSTM(4, 5))
    skipping = cudnn_rnn.LSTM(3, 3, 1)
    skipping.input_mode = "CUDNN_SKIP_INPUT"
    with pytest.raises(ValueError, match="CUDNN_SKIP_INPUT is not known"):
        skipping(torch.zeros(2, 1, 3))
