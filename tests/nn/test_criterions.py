"""Criterions where no recording goes: classes without one, edges, targets of every form, what goes to files."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live


def doubles(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(size)))


def both(criterion: Any, input: Any, target: Any = None) -> tuple[float, Any]:
    """The loss and the gradient, in the protocol, which plain autograd agrees with."""
    loss, grad = criterion.forward(input, target), criterion.backward(input, target)
    if isinstance(input, Tensor):
        leaf = input.clone().requires_grad_()
        criterion(leaf, target).backward()
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad, grad)
    return loss, grad


@pytest.mark.parametrize("average", [True, False])
def test_smooth_l1_is_quadratic_near_and_linear_far(average: bool) -> None:
    x, y = torch.tensor([0.0, 0.5, 3.0, -3.0, 1.0]), torch.zeros(5)
    loss, grad = both(nn.SmoothL1Criterion(average), x, y)
    n = 5 if average else 1
    assert loss == pytest.approx((0.125 + 2.5 + 2.5 + 0.5) / n)
    assert grad.tolist() == pytest.approx([0, 0.5 / n, 1 / n, -1 / n, 1 / n])


@pytest.mark.parametrize(
    "criterion",
    [
        nn.AbsCriterion(),
        nn.MSECriterion(),
        nn.WeightedMSECriterion(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
        nn.SmoothL1Criterion(),
        nn.MarginCriterion(),
        nn.SoftMarginCriterion(),
    ],
    ids=lambda c: c.typename,
)
def test_a_target_of_another_shape_is_taken_element_by_element_however_it_lies_in_memory(criterion: Any) -> None:
    x, target = torch.linspace(-2, 2, 6), torch.tensor([[1.0, -1.0, 1.0], [1.0, -1.0, -1.0]]).t()
    lined = target.contiguous().flatten()
    assert both(criterion, x, target)[0] == both(criterion, x, lined)[0]


def test_the_absolute_difference_has_torch7s_gradient_where_it_is_zero() -> None:
    assert both(nn.AbsCriterion(False), torch.tensor([1.0, 2.0, 0.0]), torch.ones(3))[1].tolist() == [1, 1, -1]


def test_l1_cost_sums_absolute_values_without_a_target() -> None:
    loss, grad = both(nn.L1Cost(), torch.tensor([1.0, -5.0, 0.0]))
    assert (loss, grad.tolist()) == (6, [1, -1, 0])


def test_kullback_leibler_counts_only_targets_above_zero() -> None:
    criterion = nn.DistKLDivCriterion()
    p, x = torch.tensor([[0.0, 0.25, 0.75]]), torch.tensor([[-7.0, -1.0, -2.0]])
    loss, grad = both(criterion, x, p)
    assert loss == pytest.approx((0.25 * (math.log(0.25) + 1) + 0.75 * (math.log(0.75) + 2)) / 3)
    assert grad.flatten().tolist() == pytest.approx([0, -0.25 / 3, -0.25])
    with pytest.raises(ValueError, match="first dimension is 1, got a tensor of 2x3"):
        criterion(x, torch.ones(2, 3))


def multilabel_by_hand(input: Tensor, target: Tensor) -> float:
    total = 0.0
    for scores, due in zip(input.tolist(), target.tolist(), strict=True):
        classes = due[: due.index(-1)] if -1 in due else due
        others = [d for d in range(len(scores)) if d not in classes]
        total += sum(max(0, 1 - scores[c] + scores[d]) for c in classes for d in others) / len(scores)
    return total


def test_multi_label_margin_compares_each_class_due_with_each_other() -> None:
    x, due = doubles(3, 5), torch.tensor([[1, 3, -1, 2, 0], [4, -1, -1, -1, -1], [-1, 0, 1, 2, 3]])
    criterion = nn.MultiLabelMarginCriterion()
    criterion.size_average = False
    loss, _ = both(criterion, x, due)
    assert loss == pytest.approx(multilabel_by_hand(x, due))
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    assert compiled(x, due).item() == pytest.approx(loss)
    criterion.size_average = True
    assert both(criterion, x[0], due[0])[0] == pytest.approx(multilabel_by_hand(x[:1], due[:1]))
    with pytest.raises(ValueError, match="classes from 0 to 4, got 5"):
        criterion(x, due + 1)


@pytest.mark.parametrize("average", [True, False])
def test_weighted_classes_count_by_their_weight_and_ignored_ones_not(average: bool) -> None:
    x, weights = doubles(4, 3).log_softmax(1), torch.tensor([1.0, 0.5, 2.0], dtype=torch.float64)
    criterion = nn.ClassNLLCriterion(weights, average, ignore_index=1)
    due = torch.tensor([0, 1, 2, 2])
    loss, grad = both(criterion, x, due)
    total = 5.0 if average else 1.0
    assert loss == pytest.approx(-(x[0, 0] + 2 * x[2, 2] + 2 * x[3, 2]).item() / total)
    assert grad[1].tolist() == [0, 0, 0]
    assert grad[3].tolist() == pytest.approx([0, 0, -2 / total])


def test_a_batch_of_ignored_classes_has_no_loss() -> None:
    loss, grad = both(nn.ClassNLLCriterion(ignore_index=-1), doubles(2, 3), torch.tensor([-1, -1]))
    assert (loss, grad.eq(0).all().item()) == (0, True)


@pytest.mark.parametrize("python, lua", [(-100, -100), (4, 5), (0, 1), (-1, -1)])
def test_files_count_the_ignored_class_from_1(python: int, lua: int) -> None:
    graph = to_graph(nn.ClassNLLCriterion(ignore_index=python))
    assert graph.state["ignoreIndex"] == lua
    assert to_live(graph).ignore_index == python


def test_torch7s_ignored_class_0_is_minus_1_and_stays_0_in_files() -> None:
    graph = to_graph(nn.ClassNLLCriterion())
    graph.state["ignoreIndex"] = 0.0
    read = to_live(graph)
    assert read.ignore_index == -1
    assert to_graph(read).state["ignoreIndex"] == 0


def test_a_class_may_be_a_number_or_any_type_of_tensor() -> None:
    x = doubles(3).log_softmax(0)
    for due in (2, torch.tensor([2]), torch.tensor([2.0]), torch.tensor(2)):
        assert nn.ClassNLLCriterion().forward(x, due) == pytest.approx(-x[2].item())
        assert nn.CrossEntropyCriterion().forward(x, due) == pytest.approx(-x[2].item())
        assert nn.MultiMarginCriterion()(x, due).item() == pytest.approx(nn.MultiMarginCriterion()(x, 2).item())


@pytest.mark.parametrize(
    "criterion",
    [nn.ClassNLLCriterion(), nn.CrossEntropyCriterion(), nn.MultiMarginCriterion(), nn.ClassSimplexCriterion(3)],
)
def test_criterions_of_classes_refuse_what_is_no_class(criterion: nn.Criterion) -> None:
    with pytest.raises(ValueError, match="classes from 0 to 2, got 3"):
        criterion(torch.ones(2, 3), torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="expected a "):
        criterion(torch.ones(2, 3), torch.tensor([0, 1, 2]))


def test_places_of_a_picture_are_classified_as_samples_are() -> None:
    x, due, weights = doubles(2, 3, 4, 5), torch.randint(3, (2, 4, 5)), torch.tensor([1.0, 2, 3]).double()
    flat = x.permute(0, 2, 3, 1).reshape(-1, 3)
    for average in (True, False):
        spatial, plain = nn.SpatialClassNLLCriterion(weights, average), nn.ClassNLLCriterion(weights, average)
        assert both(spatial, x, due)[0] == pytest.approx(plain.forward(flat, due.reshape(-1)))
    with pytest.raises(ValueError, match="dimension 1 is 4"):
        nn.SpatialClassNLLCriterion()(x, due.transpose(1, 2))


def test_cross_entropy_drops_dimensions_of_size_1() -> None:
    x, due = doubles(4, 3, 1, 1), torch.tensor([[0], [1], [2], [0]])
    loss, grad = both(nn.CrossEntropyCriterion(), x, due)
    assert loss == pytest.approx(torch.nn.functional.cross_entropy(x[..., 0, 0], due[:, 0]).item())
    assert grad.shape == x.shape


def test_cross_entropy_averages_as_its_part_does() -> None:
    criterion, x, due = nn.CrossEntropyCriterion(), doubles(4, 3), torch.tensor([0, 1, 2, 0])
    mean = criterion.forward(x, due)
    criterion.size_average = False
    assert criterion.forward(x, due) == pytest.approx(4 * mean)
    state = to_graph(criterion).state
    assert (state["sizeAverage"], state["oldSizeAverage"], state["nll"].state["sizeAverage"]) == (False, False, False)
    assert to_live(to_graph(criterion)).size_average is False


def test_corners_of_the_simplex_are_of_length_1_and_equally_far() -> None:
    for n in (2, 3, 10):
        corners = nn.ClassSimplexCriterion(n).double().simplex
        torch.testing.assert_close(corners.norm(dim=1).float(), torch.ones(n))
        apart = torch.cdist(corners, corners)[~torch.eye(n, dtype=torch.bool)]
        torch.testing.assert_close(apart.float(), apart[:1].float().expand_as(apart))
    with pytest.raises(ValueError, match="2 classes at least, not 1"):
        nn.ClassSimplexCriterion(1)


@pytest.mark.parametrize("y", [1, -1])
def test_losses_of_a_distance_pull_together_or_push_apart_to_the_margin(y: int) -> None:
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0])
    for margin, due in ((2, 3 if y == 1 else 0), (5, 3 if y == 1 else 2)):
        loss, grad = both(nn.L1HingeEmbeddingCriterion(margin), [a, b], y)
        sign = 0 if due == 0 else y
        assert (loss, grad[0].tolist(), grad[1].tolist()) == (due, [sign, -sign], [-sign, sign])
    hinge = nn.HingeEmbeddingCriterion(2)
    assert hinge.forward(torch.tensor([0.5]), y) == (0.5 if y == 1 else 1.5)


def test_hinges_have_torch7s_gradient_at_the_margin() -> None:
    y = torch.tensor([-1.0, -1.0, -1.0])
    hinge = nn.HingeEmbeddingCriterion(1)
    hinge.size_average = False
    assert both(hinge, torch.tensor([0.5, 1.0, 1.5]), y)[1].tolist() == [-1, -1, 0]
    ranking = nn.MarginRankingCriterion(1)
    assert both(ranking, [torch.tensor([1.0]), torch.tensor([0.0])], 1)[1][0].tolist() == [-1]
    margin = nn.MarginCriterion(1)
    assert both(margin, torch.tensor([1.0]), torch.tensor([1.0]))[1].tolist() == [0]


def test_cosine_embedding_in_batches_is_the_mean_of_its_pairs() -> None:
    a, b, y = doubles(6, 4), doubles(6, 4).flip(0), torch.tensor([1.0, -1, 1, -1, -1, 1]).double()
    criterion = nn.CosineEmbeddingCriterion(0.1)
    loss, grad = both(criterion, [a, b], y)
    leaf = a.clone().requires_grad_()
    criterion([leaf, b], y).backward()
    torch.testing.assert_close(leaf.grad, grad[0])
    alone = [both(criterion, [a[i], b[i]], y[i].item()) for i in range(6)]
    assert loss == pytest.approx(sum(part for part, _ in alone) / 6)
    cosines = torch.cosine_similarity(a, b)
    due = torch.where(y == 1, 1 - cosines, (cosines - 0.1).clamp(min=0))
    assert loss == pytest.approx(due.mean().item())


def test_ranking_in_batches_is_the_mean_of_its_pairs() -> None:
    a, b, y = doubles(5), doubles(5).flip(0), torch.tensor([1.0, -1, 1, 1, -1]).double()
    criterion = nn.MarginRankingCriterion(0.5)
    loss, _ = both(criterion, [a, b], y)
    assert loss == pytest.approx(sum(max(0, 0.5 - t * (p - q)) for p, q, t in zip(a, b, y, strict=True)).item() / 5)
    criterion.size_average = False
    assert both(criterion, [a, b], y)[0] == pytest.approx(5 * loss)


@pytest.mark.parametrize("p", [1, 2])
def test_multi_margin_weighs_each_class_due(p: int) -> None:
    x, due, weights = doubles(3, 4), [2, 0, 3], [1.0, 2.0, 3.0, 4.0]
    criterion = nn.MultiMarginCriterion(p, torch.tensor(weights).double(), 0.7)
    by_hand = sum(
        weights[c] * max(0.0, 0.7 - row[c] + row[d]) ** p
        for row, c in zip(x.tolist(), due, strict=True)
        for d in range(4)
        if d != c
    )
    assert both(criterion, x, torch.tensor(due))[0] == pytest.approx(by_hand / 12)
    with pytest.raises(ValueError, match="p is 1 or 2, not 3"):
        nn.MultiMarginCriterion(3)


def test_binary_losses_weigh_each_element_of_a_sample() -> None:
    x, y, weights = doubles(4, 3), torch.randint(2, (4, 3)).double(), torch.tensor([1.0, 2, 3]).double()
    losses = torch.nn.functional.binary_cross_entropy_with_logits(x, y, reduction="none") * weights
    for average in (True, False):
        due = (losses.mean() if average else losses.sum()).item()
        assert both(nn.MultiLabelSoftMarginCriterion(weights, average), x, y)[0] == pytest.approx(due)
        assert both(nn.BCECriterion(weights, average), x.sigmoid(), y)[0] == pytest.approx(due)
    assert both(nn.BCECriterion(), torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0]))[0] == pytest.approx(0, abs=1e-6)


def test_soft_margin_is_finite_for_scores_far_out() -> None:
    loss, grad = both(nn.SoftMarginCriterion(), torch.tensor([-2000.0]), torch.ones(1))
    assert (loss, grad.tolist()) == (2000, [-1])


def test_the_target_is_cropped_to_its_middle() -> None:
    target = torch.arange(30.0).view(1, 1, 5, 6)
    assert nn.SpatialAutoCropMSECriterion().forward(target[..., 1:4, 1:5], target) == 0
    with pytest.raises(ValueError, match="no smaller than the input"):
        nn.SpatialAutoCropMSECriterion()(torch.ones(1, 3, 3), torch.ones(1, 2, 3))


def test_criterions_of_criterions_add_up_weighted_losses() -> None:
    x, y = doubles(4), doubles(4).flip(0)
    multi = nn.MultiCriterion().add(nn.MSECriterion(), 0.5).add(nn.AbsCriterion())
    due = 0.5 * (x - y).square().mean() + (x - y).abs().mean()
    assert both(multi, x, y)[0] == pytest.approx(due.item())
    parallel = nn.ParallelCriterion(True).add(nn.MSECriterion(), 0.5).add(nn.AbsCriterion())
    assert parallel.forward([x, x], y) == pytest.approx(due.item())
    assert parallel[1].output == pytest.approx((x - y).abs().mean().item())
    for criterion, inputs in ((multi, x), (parallel, [x, x])):
        state = to_graph(criterion).state
        assert [c.typename for c in state["criterions"].array()] == ["nn.MSECriterion", "nn.AbsCriterion"]
        assert "modules" not in state
        read = to_live(to_graph(criterion))
        assert read.weights == [0.5, 1]
        assert read.forward(inputs, y) == pytest.approx(due.item())
        assert read.clear_state()[0].grad_input.numel() == 0
    weights = to_graph(multi).state["weights"]
    assert isinstance(weights, t7.Storage)
    assert weights.typename == "torch.DoubleStorage"


def test_criterions_of_criterions_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="MultiCriterion has no criterion: add one"):
        nn.MultiCriterion()(torch.ones(1), torch.ones(1))
    parallel = nn.ParallelCriterion().add(nn.MSECriterion())
    with pytest.raises(ValueError, match="table of 1, got a table of 2"):
        parallel([torch.ones(1), torch.ones(1)], [torch.ones(1)])
    with pytest.raises(TypeError, match="table of 1, got a tensor"):
        parallel([torch.ones(1)], torch.ones(1))


@pytest.mark.parametrize("criterion", [nn.MSECriterion(), nn.AbsCriterion(), nn.BCECriterion(), nn.MarginCriterion()])
def test_targets_of_another_size_are_refused(criterion: nn.Criterion) -> None:
    with pytest.raises(ValueError, match=r"as many elements as the input \(a tensor of 3\), got a tensor of 4"):
        criterion(torch.ones(3), torch.ones(4))
    with pytest.raises(TypeError, match="expected a tensor, got NoneType"):
        criterion(torch.ones(3), None)


def test_class_weights_go_with_the_criterion_and_to_files() -> None:
    weights = torch.tensor([1.0, 2.0])
    for criterion in (nn.ClassNLLCriterion(weights), nn.BCECriterion(weights), nn.MultiMarginCriterion(1, weights)):
        moved = criterion.double()
        assert moved.weights is not None
        assert moved.weights.dtype is torch.float64
        assert to_live(to_graph(moved)).weights.tolist() == [1, 2]
        assert "weights" not in to_graph(type(criterion)()).state
    with pytest.raises(ValueError, match="weights for 2 classes, the input is a tensor of 1x3"):
        nn.ClassNLLCriterion(weights)(torch.ones(1, 3), torch.tensor([0]))


class Log:
    """Notes what a trainer's hooks were given."""

    def __init__(self) -> None:
        self.examples: list[Any] = []
        self.errors: list[tuple[int, float]] = []


def test_the_trainer_steps_after_each_example_as_torch7_does() -> None:
    net, log = nn.Linear(2, 1).double(), Log()
    data = [(doubles(2), doubles(1)), (doubles(2) * 2, doubles(1) - 1), (-doubles(2), doubles(1))]
    weight, bias = net.weight.detach().clone(), net.bias.detach().clone()  # type: ignore[union-attr]
    trainer = nn.StochasticGradient(net, nn.MSECriterion())
    trainer.shuffle_indices, trainer.verbose, trainer.max_iteration = False, False, 2
    trainer.learning_rate, trainer.learning_rate_decay = 0.1, 0.5
    trainer.hook_example = lambda _, example: log.examples.append(example)
    trainer.hook_iteration = lambda _, iteration, error: log.errors.append((iteration, error))
    trainer.train(data)
    errors = []
    for rate in (0.1, 0.1 / (1 + 2 * 0.5)):
        total = 0.0
        for x, y in data:
            away = weight @ x + bias - y
            total += away.square().item()
            weight, bias = weight - rate * 2 * away * x, bias - rate * 2 * away
        errors.append(total / 3)
    torch.testing.assert_close(net.weight.detach(), weight)
    torch.testing.assert_close(net.bias.detach(), bias)  # type: ignore[union-attr]
    assert [i for i, _ in log.errors] == [1, 2]
    assert [e for _, e in log.errors] == pytest.approx(errors)
    assert log.examples == data * 2
    assert net.weight.grad is None


def test_a_trainer_in_a_file_is_read_with_its_net_and_written_back() -> None:
    trainer = nn.StochasticGradient(nn.Linear(2, 1), nn.MSECriterion())
    trainer.learning_rate_decay = 0.5
    graph = to_graph(trainer)
    hook = t7.Table()
    graph.state["hookExample"] = hook
    read = to_live(graph)
    assert (type(read), read.learning_rate_decay, read.max_iteration) == (nn.StochasticGradient, 0.5, 25)
    assert read.module.weight.equal(trainer.module.weight)
    assert read.hook_example is None
    state = to_graph(read).state
    assert {"learningRate", "shuffleIndices", "verbose", "criterion", "module", "hookExample"} <= set(state)


def test_a_trainer_of_before_torch7_had_all_its_settings_is_read_and_trains_as_lua_would() -> None:
    graph = to_graph(nn.StochasticGradient(nn.Linear(2, 1), nn.MSECriterion()))
    for name in ("verbose", "shuffleIndices"):
        del graph.state[name]
    read = to_live(graph)
    assert str(read) == "nn.StochasticGradient"
    assert set(to_graph(read).state) == set(graph.state)
    log, data = Log(), [(torch.full((2,), float(i)), torch.zeros(1)) for i in range(5)]
    read.max_iteration, read.hook_example = 1, lambda _, example: log.examples.append(example)
    read.train(data)
    assert log.examples == data
