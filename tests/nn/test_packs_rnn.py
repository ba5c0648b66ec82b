"""rnn: cells against equations and PyTorch's modules, sequences, memory, masks, both directions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.packs import rnn
from clearstate.nn.protocol.ownership import tensors
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises

torch.manual_seed(0)


def cell() -> nn.Sequential:
    return nn.Sequential(nn.JoinTable(0, 1), nn.Linear(7, 3), nn.Tanh())


def recurrent() -> rnn.Recurrent:
    return rnn.Recurrent(3, nn.Linear(4, 3), nn.Linear(3, 3), nn.Tanh())


STEPS: dict[str, Any] = {
    "LSTM": lambda: rnn.LSTM(4, 3),
    "LSTM without peepholes": lambda: rnn.LSTM(4, 3, cell2gate=False),
    "FastLSTM": lambda: rnn.FastLSTM(4, 3),
    "GRU": lambda: rnn.GRU(4, 3),
    "Recurrent": recurrent,
    "Recurrence": lambda: rnn.Recurrence(cell(), 3, 1),
    "Recursor": lambda: rnn.Recursor(nn.Sequential(rnn.GRU(4, 3), nn.Linear(3, 3))),
    "masked": lambda: rnn.LSTM(4, 3).mask_zero(),
    "trimmed": lambda: rnn.GRU(4, 3).trim_zero(),
}

SEQUENCES: dict[str, Any] = {
    **{f"Sequencer of {name}": lambda make=make: rnn.Sequencer(make()) for name, make in STEPS.items()},
    "SeqLSTM": lambda: rnn.SeqLSTM(4, 3),
    "SeqLSTM batch first": lambda: _set(rnn.SeqLSTM(4, 3), batchfirst=True),
    "SeqLSTM masked": lambda: rnn.SeqLSTM(4, 3).mask_zero(),
    "SeqLSTMP": lambda: rnn.SeqLSTMP(4, 5, 3),
    "SeqLSTMP masked": lambda: rnn.SeqLSTMP(4, 5, 3).mask_zero(),
    "SeqGRU": lambda: rnn.SeqGRU(4, 3),
    "SeqGRU masked": lambda: rnn.SeqGRU(4, 3).mask_zero(),
    "SeqBRNN": lambda: rnn.SeqBRNN(4, 3),
    "SeqBRNN batch first": lambda: rnn.SeqBRNN(4, 3, True, nn.JoinTable(2)),
    "SeqReverseSequence": lambda: rnn.SeqReverseSequence(1),
}

TABLES: dict[str, Any] = {
    "Sequencer": lambda: rnn.Sequencer(nn.Sequential(rnn.GRU(4, 3), nn.Tanh())),
    "BiSequencer": lambda: rnn.BiSequencer(rnn.FastLSTM(4, 3), rnn.GRU(4, 2)),
    "BiSequencer merged": lambda: rnn.BiSequencer(rnn.FastLSTM(4, 3), None, nn.CAddTable()),
    "BiSequencerLM": lambda: rnn.BiSequencerLM(rnn.FastLSTM(4, 3)),
    "BiSequencerLM of nets": lambda: rnn.BiSequencerLM(rnn.Sequencer(nn.Linear(4, 3)), rnn.Sequencer(nn.Tanh()), 1),
}


def _set(module: Any, **values: Any) -> Any:
    for name, value in values.items():
        setattr(module, name, value)
    return module


def padded() -> torch.Tensor:
    """Steps of a batch of two; the second sample has none in steps 1 and 2."""
    x = torch.randn(5, 2, 4)
    x[1:3, 1] = 0
    return x


def checks(module: Any, input: Any) -> None:
    check_promises(module, input)
    check_io(module, input)
    check_gradients(module, input)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_keeps_the_promises(name: str) -> None:
    check_promises(STEPS[name](), torch.randn(2, 4))


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_sequence_keeps_the_promises_and_is_the_same_after_a_file(name: str) -> None:
    module, x = SEQUENCES[name](), padded()
    check_promises(module, x)
    check_io(module, x)


@pytest.mark.parametrize("name", ["Sequencer of Recurrent", "Sequencer of Recurrence", "SeqLSTM", "SeqLSTMP", "SeqGRU"])
def test_the_gradients_of_a_sequence_are_right(name: str) -> None:
    check_gradients(SEQUENCES[name](), torch.randn(3, 1, 4))


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_steps_keeps_the_promises_and_is_the_same_after_a_file(name: str) -> None:
    module, x = TABLES[name](), [torch.randn(2, 4) for _ in range(3)]
    check_promises(module, x)
    check_io(module, x)


def test_repeating_is_a_sequence_of_the_same_input() -> None:
    module = rnn.Repeater(rnn.FastLSTM(4, 3), 3)
    x = torch.randn(2, 4)
    check_promises(module, x)
    check_io(module, x)
    for ours, due in zip(module(x), rnn.Sequencer(module.get(0))([x, x, x]), strict=True):
        assert torch.equal(ours, due)


@pytest.mark.parametrize("peepholes", [True, False])
def test_lstm_computes_its_equations(peepholes: bool) -> None:
    lstm = rnn.LSTM(4, 3, cell2gate=peepholes)
    x, h, c = torch.randn(2, 4), torch.randn(2, 3), torch.randn(2, 3)

    def sums(gate: Any, state: torch.Tensor) -> torch.Tensor:
        parts = next(m for m in gate.modules() if isinstance(m, nn.ParallelTable))
        first: list[Any] = list(parts)
        (i, o), peep = [m[1] for m in first[:2]], first[2:]
        total: torch.Tensor = x @ i.weight.t() + i.bias + h @ o.weight.t()
        return total + peep[0].weight * state if peep else total

    take, forget = (sums(lstm.part(name), c).sigmoid() for name in ("inputGate", "forgetGate"))
    cell = forget * c + take * sums(lstm.part("hiddenLayer"), c).tanh()
    output = sums(lstm.part("outputGate"), cell).sigmoid() * cell.tanh()
    made, state = lstm.advance(x, [h, c])
    assert torch.allclose(made, output, atol=1e-6)
    assert torch.allclose(state[1], cell, atol=1e-6)


def test_fast_lstm_computes_pytorchs_lstm_with_gates_in_its_order() -> None:
    ours = rnn.FastLSTM(4, 3)
    theirs: Any = torch.nn.LSTM(4, 3)
    with torch.no_grad():
        for name, mine in (("weight_ih_l0", ours.part("i2g").weight), ("weight_hh_l0", ours.part("o2g").weight)):
            take, hidden, forget, give = mine.chunk(4)
            getattr(theirs, name).copy_(torch.cat([take, forget, hidden, give]))
        take, hidden, forget, give = ours.part("i2g").bias.chunk(4)
        theirs.bias_ih_l0.copy_(torch.cat([take, forget, hidden, give]))
        theirs.bias_hh_l0.zero_()
    x = torch.randn(5, 2, 4)
    assert torch.allclose(rnn.Sequencer(ours)(x), theirs(x)[0], atol=1e-6)


@pytest.mark.parametrize("make", [lambda: rnn.SeqLSTM(4, 3).to_fast_lstm(), lambda: rnn.SeqGRU(4, 3).to_gru()])
def test_one_sample_is_a_batch_of_one(make: Any) -> None:
    module, x = make(), torch.randn(4)
    assert torch.allclose(module(x), module(x.unsqueeze(0))[0], atol=1e-6)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_whole_sequence_is_its_steps_one_by_one(kind: str, masked: bool) -> None:
    whole: Any = rnn.SeqLSTM(4, 3) if kind == "lstm" else rnn.SeqGRU(4, 3)
    torch.nn.init.normal_(whole.bias)
    steps = whole.to_fast_lstm() if kind == "lstm" else whole.to_gru()
    x = padded()
    if masked:
        whole.mask_zero()
        steps.mask_zero()
    due = rnn.Sequencer(steps)(x)
    output = whole(x)
    assert torch.allclose(output, due, atol=1e-6)
    assert bool((output[1:3, 1] == 0).all()) is masked
    weights = torch.randn_like(due)
    ours = torch.autograd.grad(output, whole.bias, weights)[0]
    theirs = torch.autograd.grad(due, [p for p in steps.parameters() if p.dim() == 1], weights)
    if kind == "lstm":
        take, hidden, forget, give = theirs[0].chunk(4)
        assert torch.allclose(ours, torch.cat([take, forget, give, hidden]), atol=1e-5)
    else:
        assert torch.allclose(ours, torch.cat(theirs), atol=1e-5)


def test_a_projection_has_no_fast_lstm() -> None:
    with pytest.raises(TypeError, match=r"nn\.SeqLSTMP has a projection"):
        rnn.SeqLSTMP(4, 5, 3).to_fast_lstm()


def test_a_sequence_begins_from_the_states_of_its_table() -> None:
    lstm, x = rnn.SeqLSTM(4, 3), torch.randn(5, 2, 4)
    steps, (h, c) = lstm.to_fast_lstm(), (torch.randn(2, 3), torch.randn(2, 3))
    state: Any = [h, c]
    for step, output in zip(x, lstm([c, h, x]), strict=True):
        due, state = steps.advance(step, state)
        assert torch.allclose(output, due, atol=1e-6)
    assert torch.allclose(lstm([h, x])[0], steps.advance(x[0], [h, torch.zeros(2, 3)])[0], atol=1e-6)
    lstm.forward([c, h, x])
    assert [g.shape for g in lstm.backward([c, h, x], torch.ones(5, 2, 3))] == [c.shape, h.shape, x.shape]
    with pytest.raises(ValueError, match="expected a state that is a tensor of 2x3, got a tensor of 3x3"):
        lstm([torch.randn(3, 3), x])


def test_recurrent_starts_by_itself_and_feeds_back_its_output() -> None:
    module, x = recurrent(), torch.randn(3, 2, 4)
    start, first, feedback = module[0], module[1], module[2]
    due = [(first(x[0]) + start.bias).tanh()]
    for step in x[1:]:
        due.append((first(step) + feedback(due[-1])).tanh())
    assert torch.allclose(rnn.Sequencer(module)(x), torch.stack(due), atol=1e-6)
    assert "(t==0): nn.Add" in str(module)


def test_recurrent_goes_to_a_file_with_the_nets_that_torch7_runs_on_shared_parameters() -> None:
    module: Any = recurrent()
    graph: Any = to_graph(module)
    first, later = graph["initialModule"], graph["recurrentModule"]
    assert [m.typename for m in first["modules"].array()] == ["nn.Linear", "nn.Add", "nn.Tanh"]
    own, at_first = graph["modules"][2], first["modules"][1]
    assert own is later["modules"][1]["modules"][1]
    assert own is not at_first
    assert own["weight"].storage is at_first["weight"].storage
    assert own["gradWeight"].storage is at_first["gradWeight"].storage
    assert graph["sharedClones"][2] is later
    again = to_live(t7.loads(t7.dumps(graph)))
    x = torch.randn(3, 2, 4)
    assert torch.equal(rnn.Sequencer(again)(x), rnn.Sequencer(module)(x))
    assert len(list(again.parameters())) == 5
    with pytest.raises(TypeError, match=r"use nn.Recurrence to mask zeros"):
        module.mask_zero()


def test_a_recurrence_has_outputs_of_any_form() -> None:
    inner = nn.Sequential(
        nn.FlattenTable(),
        nn.ConcatTable()
        .add(nn.Sequential(nn.NarrowTable(0, 2), nn.JoinTable(0, 1), nn.Linear(7, 3)))
        .add(nn.Sequential(nn.SelectTable(2), nn.Linear(2, 2))),
    )
    module = rnn.Recurrence(inner, [[3], [2]], 1)
    outputs = rnn.Sequencer(module)([torch.randn(5, 4)] * 2)
    assert [[t.shape for t in step] for step in outputs] == [[(5, 3), (5, 2)]] * 2
    check_io(module, torch.randn(5, 4))
    with pytest.raises(ValueError, match="an input of 1 dimensions, or a batch of these, got a tensor of 2x2x4"):
        rnn.Recurrence(cell(), 3, 1)(torch.randn(2, 2, 4))


@pytest.mark.parametrize("name", ["LSTM", "GRU", "Recurrence", "Recursor"])
def test_steps_in_a_block_are_a_sequence_and_leave_nothing_on_the_net(name: str) -> None:
    module, x = STEPS[name](), torch.randn(5, 2, 4)
    due = rnn.Sequencer(module)(x)
    before = {path: set(m.__dict__) for path, m in module.named_modules()}
    with rnn.sequence() as memory:
        first = [module(step) for step in x[:2]]
    with rnn.sequence(memory):
        rest = [module(step) for step in x[2:]]
    assert torch.allclose(torch.stack([*first, *rest]), due, atol=1e-6)
    assert torch.allclose(module(x[0]), due[0], atol=1e-6), "outside a block every step is a first one"
    assert {path: set(m.__dict__) for path, m in module.named_modules()} == before


def test_going_back_step_by_step_adds_up_to_going_back_through_time() -> None:
    whole = rnn.Sequencer(rnn.GRU(4, 3)).double()
    x, weights = torch.randn(4, 2, 4).double(), torch.randn(4, 2, 3).double()
    whole.zero_grad_parameters()
    whole.forward(x)
    whole.backward(x, weights)
    due = [p.grad.clone() for p in whole.parameters() if p.grad is not None]
    step: Any = whole.get(0)
    step.zero_grad_parameters()
    with rnn.sequence():
        for t in range(4):
            step.forward(x[t])
            step.backward(x[t], weights[t])
    for parameter, grad in zip(step.parameters(), due, strict=True):
        assert torch.allclose(parameter.grad, grad)


@pytest.mark.parametrize("name", ["Sequencer of LSTM", "Sequencer of Recursor", "SeqLSTM", "SeqGRU", "SeqLSTMP"])
def test_a_sequence_that_is_remembered_goes_on_until_it_is_forgotten(name: str) -> None:
    module, x = SEQUENCES[name](), torch.randn(5, 2, 4)
    whole = module(x)
    module.remember()

    def halves(call: Any) -> torch.Tensor:
        return torch.cat([call(x[:2]).clone(), call(x[2:]).clone()])

    assert torch.allclose(halves(module.forward), whole, atol=1e-6)
    assert not torch.allclose(module.forward(x), whole, atol=1e-6)
    module.forget()
    assert torch.allclose(halves(module.forward), whole, atol=1e-6)
    assert torch.allclose(module.clear_state().forward(x), whole, atol=1e-6)
    assert torch.allclose(module.eval().forward(x), whole, atol=1e-6), "another mode begins anew"
    assert torch.allclose(module(x), whole, atol=1e-6), "a plain call leaves nothing"
    with rnn.sequence():
        assert torch.allclose(halves(module), whole, atol=1e-6)
    written: Any = to_graph(module)
    assert written["_remember"] == "both"
    module.train().remember("eval")
    module.forward(x)
    assert torch.allclose(module.forward(x), whole, atol=1e-6)
    check_promises(module.remember("neither"), x)
    with pytest.raises(ValueError, match="remember is one of neither, train, eval, both, not 'always'"):
        module.remember("always")


def test_what_is_remembered_goes_with_clearing_and_back_stops_at_its_begin() -> None:
    module, x = rnn.Sequencer(rnn.FastLSTM(4, 3)).remember(), torch.randn(5, 2, 4)
    module.forward(x)
    assert any(t.numel() for t in tensors(module.__dict__["carried"]))
    module.forward(x)
    module.backward(x, torch.ones(5, 2, 3))
    assert cs.inspect(module.clear_state()).by_role().get(cs.Role.TRANSIENT, 0) == 0
    assert "carried" not in module.__dict__


def test_dropout_of_a_gate_is_one_draw_a_sequence() -> None:
    torch.manual_seed(1)
    gru = rnn.GRU(50, 50, p=0.5)
    x = torch.ones(3, 2, 50)
    drops = [m for m in gru.modules() if isinstance(m, nn.Dropout)]
    seen: list[torch.Tensor] = []
    hook = drops[0].register_forward_hook(lambda module, args, output: seen.append(output.clone()))
    rnn.Sequencer(gru)(x)
    rnn.Sequencer(gru)(x)
    hook.remove()
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[1], seen[2])
    assert not torch.equal(seen[2], seen[3])
    assert not torch.equal(seen[0][0], seen[0][1])
    mono = rnn.GRU(50, 50, p=0.5, mono=True)
    one = next(m for m in mono.modules() if isinstance(m, nn.Dropout))
    output = one(x[0])
    assert torch.equal(output[0], output[1])
    again: Any = to_live(t7.loads(t7.dumps(to_graph(mono))))
    assert all(m.lazy and m.mono for m in again.modules() if isinstance(m, nn.Dropout))
    for module in (rnn.LSTM(4, 3, p=0.5), rnn.FastLSTM(4, 3, p=0.5), rnn.GRU(4, 3, p=0.5)):
        check_promises(rnn.Sequencer(module), torch.randn(3, 2, 4))


def test_the_norm_stabilizer_adds_the_gradient_of_its_penalty() -> None:
    x = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(x)
    norms = x.norm(dim=2)
    penalty = 0.7 * (norms[1:] - norms[:-1]).square().mean(1).sum()
    (due,) = torch.autograd.grad((x * weights).sum() + penalty, x)
    net = rnn.Sequencer(rnn.NormStabilizer(0.7)).double()
    output = net(x)
    assert torch.equal(output, x)
    assert torch.allclose(torch.autograd.grad(output, x, weights)[0], due)
    net.forward(x.detach())
    assert torch.allclose(net.backward(x.detach(), weights), due)
    assert torch.equal(torch.autograd.grad(net.eval()(x), x, weights)[0], weights)


@pytest.mark.parametrize("kind", [rnn.MaskZero, rnn.TrimZero])
@pytest.mark.parametrize("rows", [[0, 2], [], [0, 1, 2, 3]])
def test_rows_of_zeros_give_zeros_and_no_gradient(kind: Any, rows: list[int]) -> None:
    inner: Any = nn.Linear(3, 2)
    x = torch.randn(4, 3)
    x[rows] = 0
    module = kind(inner, 1)
    x.requires_grad_()
    output = module(x)
    keep = torch.ones(4, 1)
    keep[rows] = 0
    assert torch.equal(output, inner(x) * keep)
    weights = torch.randn(4, 2)
    ours = torch.autograd.grad(output, [x, inner.weight, inner.bias], weights, allow_unused=True)
    due = torch.autograd.grad(inner(x) * keep, [x, inner.weight, inner.bias], weights)
    for mine, theirs in zip(ours, due, strict=True):
        assert torch.allclose(torch.zeros_like(theirs) if mine is None else mine, theirs, atol=1e-6)
    check_promises(module, x.detach())
    check_io(module, [x.detach()][0])
    assert torch.equal(module(torch.zeros(3)), torch.zeros(2))


def test_a_mask_goes_by_the_first_tensor_of_a_table() -> None:
    module = rnn.MaskZero(nn.Identity(), 2)
    image = torch.zeros(2, 3, 3)
    image[1, 0, 0] = 1
    first, second = module([image, torch.ones(2, 4)])
    assert torch.equal(first, image)
    assert second.tolist() == [[0] * 4, [1] * 4]
    with pytest.raises(ValueError, match="expected 2 dimensions, or a batch of these, got a tensor of 4"):
        module(torch.ones(4))


def test_a_masked_cell_begins_anew_after_zeros_and_its_file_says_so() -> None:
    module: Any = rnn.LSTM(4, 3).mask_zero()
    x = torch.randn(3, 1, 4)
    x[1] = 0
    output = rnn.Sequencer(module)(x)
    assert torch.equal(output[1], torch.zeros(1, 3))
    assert torch.allclose(output[2], module(x[2]), atol=1e-6)
    written: Any = to_graph(module)
    assert written["recurrentModule"].typename == "nn.MaskZero"
    assert written["recurrentModule"] is written["modules"][1]
    assert written["sharedClones"][1] is written["modules"][1]
    assert written["inputGate"].typename == "nn.Sequential"
    again = to_live(t7.loads(t7.dumps(written)))
    assert torch.equal(rnn.Sequencer(again)(x), output)
    assert again.part("inputGate") in set(again.modules())


def test_index_zero_of_the_masked_table_is_zeros_whatever_its_row_is() -> None:
    table = rnn.LookupTableMaskZero(5, 3)
    indices = torch.tensor([[0, 5, 1], [2, 0, 0]])
    output = table(indices)
    assert torch.equal(output, table.weight[indices] * (indices > 0).unsqueeze(-1))
    check_promises(table, indices)
    check_io(table, indices)
    with pytest.raises(ValueError, match="expected indices from 0 to 5, got 6"):
        table(torch.tensor([6]))


def test_both_directions_are_merged_step_by_step() -> None:
    ahead, behind = rnn.FastLSTM(4, 3), rnn.GRU(4, 2)
    x = list(torch.randn(5, 2, 4))
    left, right = rnn.Sequencer(ahead)(x), rnn.Sequencer(behind)(x[::-1])[::-1]
    due = [torch.cat(pair, 1) for pair in zip(left, right, strict=True)]
    for ours, theirs in zip(rnn.BiSequencer(ahead, behind)(x), due, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_a_language_model_of_both_directions_has_not_seen_the_step_it_is_asked_for() -> None:
    ahead, behind = rnn.FastLSTM(4, 3), rnn.GRU(4, 2)
    x = list(torch.randn(4, 2, 4))
    left, right = rnn.Sequencer(ahead)(x[:-1]), rnn.Sequencer(behind)(x[:0:-1])[::-1]
    due = zip([torch.zeros(2, 3), *left], [*right, torch.zeros(2, 2)], strict=True)
    module = rnn.BiSequencerLM(ahead, behind)
    for ours, pair in zip(module(x), due, strict=True):
        assert torch.allclose(ours, torch.cat(pair, 1), atol=1e-6)
    with pytest.raises(ValueError, match="expected a table of at least 2 steps, got a table of 1"):
        module(x[:1])


def test_the_other_direction_is_a_copy_with_parameters_of_its_own() -> None:
    module: Any = rnn.BiSequencer(rnn.FastLSTM(4, 3))
    ahead, behind = module.part("forwardModule"), module.part("backwardModule")
    assert type(behind) is rnn.FastLSTM
    assert not torch.equal(next(ahead.parameters()), next(behind.parameters()))
    written: Any = to_graph(module)
    assert written["forwardModule"] is written["fwdSeq"]["module"]
    assert written["mergeModule"].typename == "nn.JoinTable"
    assert written["module"] is written["modules"][1]


def test_both_directions_of_a_whole_sequence_are_added() -> None:
    module: Any = rnn.SeqBRNN(4, 3)
    x = torch.randn(5, 2, 4)
    ahead, behind = module.part("forwardModule"), module.part("backwardModule")
    assert torch.allclose(module(x), ahead(x) + behind(x.flip(0)).flip(0), atol=1e-6)


@pytest.mark.parametrize("average", [False, True])
def test_a_loss_over_steps_is_the_sum_of_theirs(average: bool) -> None:
    loss = rnn.SequencerCriterion(nn.ClassNLLCriterion(), average)
    x, target = torch.randn(3, 2, 4).log_softmax(2), torch.tensor([[0, 1], [2, 3], [1, 1]])
    due = sum(torch.nn.functional.nll_loss(a, b) for a, b in zip(x, target, strict=True)) / (3 if average else 1)
    assert torch.allclose(loss(x, target), torch.as_tensor(due))
    assert torch.allclose(loss(list(x), list(target)), torch.as_tensor(due))
    for forms in ((x, target), (list(x), list(target))):
        check_promises(loss, *forms)
        check_io(loss, *forms)
    check_gradients(loss, x, target)
    with pytest.raises(ValueError, match="expected a target a step, as many as inputs, got a tensor of 2x2"):
        loss(x, target[:2])
    same = rnn.RepeaterCriterion(nn.ClassNLLCriterion())
    assert torch.allclose(
        same(x, target[0]), torch.as_tensor(sum(torch.nn.functional.nll_loss(a, target[0]) for a in x))
    )
    check_promises(same, list(x), target[0])
    check_io(same, list(x), target[0])


def test_a_loss_leaves_out_rows_of_zeros() -> None:
    x, target = torch.randn(4, 3), torch.randn(4, 3)
    x[[0, 2]] = 0
    loss = rnn.MaskZeroCriterion(nn.MSECriterion(), 1)
    assert torch.allclose(loss(x, target), torch.nn.functional.mse_loss(x[[1, 3]], target[[1, 3]]))
    assert loss.forward(torch.zeros(4, 3), target) == 0
    assert torch.equal(loss.backward(torch.zeros(4, 3), target), torch.zeros(4, 3))
    check_promises(loss, x, target)
    check_io(loss, x, target)
    with pytest.raises(ValueError, match="expected a batch, got a tensor of 3"):
        loss(torch.ones(3), target[0])


def test_small_layers_compute_what_they_say() -> None:
    assert torch.equal(rnn.SAdd(2)(torch.ones(2)), torch.full((2,), 3.0))
    for module, input in (
        (rnn.SAdd(-1, True), torch.randn(3)),
        (rnn.CopyGrad(), torch.randn(3)),
        (rnn.ExpandAs(), [torch.randn(2, 3), torch.randn(1, 3)]),
        (rnn.LinearNoBias(3, 2), torch.randn(4, 3)),
    ):
        checks(module, input)


@pytest.mark.parametrize("name", ["Sequencer of Recursor", "SeqLSTM"])
def test_a_recurrent_net_is_compiled_whole(name: str) -> None:
    module, x = SEQUENCES[name](), torch.randn(3, 2, 4)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    assert torch.allclose(compiled(x), module(x), atol=1e-6)


@pytest.mark.parametrize("what", [torch.ones(3), 3])
def test_a_sequence_of_other_things_is_refused_in_words(what: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"expected a (tensor|table)"):
        rnn.Sequencer(rnn.GRU(4, 3))(what)
    with pytest.raises(ValueError, match="expected a table of at least 2 steps"):
        rnn.BiSequencerLM(rnn.GRU(4, 3))([torch.ones(4)])
