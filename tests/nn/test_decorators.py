"""Modules around modules, between types and layouts, and criterions in nets: what Torch7's recordings do not show."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate as cs
from clearstate import nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises


def roundtrip(net: Any, folder: Path) -> Any:
    cs.save(net, folder / "net.t7")
    return cs.load(folder / "net.t7")


class Pairs(nn.Module):
    """A batch of vectors in, a batch of their outer products out."""

    def update_output(self, input: Tensor) -> Tensor:
        return input.unsqueeze(2) * input.unsqueeze(1)


def test_decorators_print_what_they_decorate() -> None:
    net = nn.Sequential().add(nn.Tanh())
    assert str(nn.Decorator(net)) == "nn.Decorator @ " + str(net)
    assert str(nn.Bottle(nn.Linear(4, 3))) == "nn.Bottle @ nn.Linear(4 -> 3)"
    assert str(nn.NaN(nn.Tanh(), 3)) == "nn.NaN(3) @ nn.Tanh"
    assert str(nn.WeightNorm(nn.Linear(4, 3))) == "nn.WeightNorm @ nn.Linear(4 -> 3)"
    assert str(nn.GPU(nn.Tanh(), 1)) == "nn.GPU(2) @ nn.Tanh"


@pytest.mark.parametrize("shape", [(2, 4), (5, 2, 4), (3, 5, 2, 4)])
def test_bottle_treats_all_dimensions_but_the_last_as_a_batch(shape: tuple[int, ...]) -> None:
    net: Any = nn.Bottle(nn.Linear(4, 3))
    x = torch.randn(shape)
    torch.testing.assert_close(net(x), x @ net[0].weight.t() + net[0].bias)


def test_bottle_takes_modules_that_give_more_dimensions_than_they_take() -> None:
    x = torch.randn(3, 5, 4)
    net = nn.Bottle(Pairs(), 2, 3)
    torch.testing.assert_close(net(x), x.unsqueeze(3) * x.unsqueeze(2))
    with pytest.raises(ValueError, match="to give 2 dimensions, got a tensor of 15x4x4"):
        nn.Bottle(Pairs())(x)


def test_bottle_is_written_with_all_that_torch7_makes() -> None:
    state = to_graph(nn.Bottle(nn.Linear(4, 3), 2, 3)).state
    assert (state["nInputDim"], state["nOutputDim"], state["dimDelta"]) == (2, 3, -1)
    assert (state["inShape"].size, state["outShape"].size) == ((2,), (3,))


@pytest.mark.parametrize("output_dim", [0, 1])
def test_weight_norm_has_lengths_of_their_own_along_any_dimension(output_dim: int) -> None:
    inner = nn.Linear(4, 3).double()
    net: Any = nn.WeightNorm(inner, output_dim)
    x = torch.randn(5, 4, dtype=torch.float64)
    v = net.v if output_dim == 0 else net.v.t()
    norm = (v.pow(2).sum(1 - output_dim, keepdim=True) + 1e-4).sqrt()
    weight = v / norm * (net.g if output_dim == 0 else net.g.t())
    torch.testing.assert_close(net(x), x @ weight.t() + net.bias)
    assert {name for name, _ in net.named_parameters()} == {"v", "g", "bias"}
    assert torch.autograd.gradcheck(
        lambda v, g: torch.func.functional_call(net, {"v": v, "g": g}, (x,)), (net.v, net.g)
    )


def test_weight_norm_trains_and_goes_through_copies_and_files(tmp_path: Path) -> None:
    net = nn.Sequential().add(nn.WeightNorm(nn.Linear(4, 3)))
    x = torch.randn(5, 4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    before = net(x).pow(2).sum().item()
    for _ in range(5):
        optimizer.zero_grad()
        net(x).pow(2).sum().backward()
        optimizer.step()
    assert net(x).pow(2).sum().item() < before
    for again in (copy.deepcopy(net), roundtrip(net, tmp_path)):
        torch.testing.assert_close(again(x), net(x))
        assert len(list(again.parameters())) == 3


def test_weight_norm_is_written_as_torch7_writes_it() -> None:
    graph = to_graph(nn.WeightNorm(nn.Linear(4, 3)))
    state = graph.state
    inner = state["modules"][1].state
    assert not {"weight", "gradWeight"} & (set(state) | set(inner))
    assert state["bias"] is inner["bias"]
    assert state["gradBias"] is inner["gradBias"]
    assert [state[name].numpy().tolist() for name in ("viewIn", "viewOut", "weightSize")] == [[3, 4]] * 3
    assert {name: state[name].size for name in ("v", "g", "gradV", "gradG")} == {
        "v": (3, 4),
        "g": (3, 1),
        "gradV": (3, 4),
        "gradG": (3, 1),
    }
    assert (state["outputDim"], state["otherDims"]) == (1, 4)
    assert state["_norm"].numel == state["_scale"].numel == 3


@pytest.mark.parametrize("call", ["plain", "protocol"])
def test_nan_says_where_nans_come_from(call: str) -> None:
    net: Any = nn.NaN(nn.Linear(2, 2), "first")
    run = net if call == "plain" else net.forward
    with pytest.raises(ValueError, match=r"NaN found in input of module: nn\.NaN\(first\) @ nn\.Linear\(2 -> 2\)"):
        run(torch.tensor([[0.0, torch.nan]]))
    with torch.no_grad():
        net[0].bias.fill_(torch.nan)
    with pytest.raises(ValueError, match="NaN found in parameters"):
        run(torch.ones(1, 2))
    with pytest.raises(ValueError, match="NaN found in output"):
        root = nn.NaN(Root())
        (root if call == "plain" else root.forward)(-torch.ones(2))


class Root(nn.Module):
    """The square root, whose gradient at 0 is infinite."""

    def update_output(self, input: Tensor) -> Tensor:
        return input.sqrt()


def test_nan_finds_nans_that_come_about_on_the_way_back() -> None:
    net = nn.NaN(Root())
    x = torch.zeros(2)
    net.forward(x)
    with pytest.raises(ValueError, match="NaN found in gradInput"):
        net.backward(x, torch.zeros(2))
    with pytest.raises(ValueError, match="NaN found in gradOutput"):
        net.backward(x, torch.tensor([0.0, torch.nan]))
    leaf = torch.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match="NaN found in gradInput"):
        (net(leaf) * 0).sum().backward()


def test_nan_leaves_good_numbers_and_gradients_as_they_are() -> None:
    net: Any = nn.Sequential().add(nn.NaN(nn.Linear(3, 2)))
    x = torch.randn(4, 3)
    assert torch.equal(net(x), net[0][0](x))
    net.zero_grad_parameters()
    net.forward(x)
    grad = net.backward(x, torch.ones(4, 2))
    torch.testing.assert_close(grad, torch.ones(4, 2) @ net[0][0].weight)
    torch.testing.assert_close(net[0][0].weight.grad, torch.ones(2, 4) @ x)


def test_profile_counts_prints_and_starts_anew(capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.Profile(nn.Tanh(), 3, "squash")
    x = torch.ones(2)
    for _ in range(2):
        net.forward(x)
        net.backward(x, x)
    assert (net.num_fwds, net.num_bwds) == (2, 2)
    assert net.summed_fwd_time > 0
    assert net.summed_bwd_time > 0
    net.forward(x)
    net.backward(x, x)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" took ")[0] for line in lines] == ["squash", "squash"]
    assert lines[0].endswith("for 3 forward passes")
    assert lines[1].endswith("for 3 backward passes")
    assert (net.num_fwds, net.num_bwds) == (0, 0)
    net.forward(x)
    assert net.clear_state().num_fwds == 0


def test_profile_is_written_with_its_module_twice_and_a_timer(tmp_path: Path) -> None:
    net = nn.Profile(nn.Tanh())
    state = to_graph(net).state
    assert state["module"] is state["modules"][1]
    assert state["timer"].typename == "torch.Timer"
    assert (state["name"], state["print_interval"]) == ("nn.Tanh", 100)
    assert [state[n] for n in ("numFwds", "numBwds", "summedFwdTime", "summedBwdTime")] == [0] * 4
    again = roundtrip(net.float(), tmp_path)
    assert again.forward(torch.zeros(2)).tolist() == [0, 0]
    assert again.num_fwds == 1
    assert again.clear_state().num_fwds == 0


def test_print_size_prints_sizes_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    net = nn.PrintSize("here")
    x = torch.ones(2, 3)
    assert net.forward(x).tolist() == x.tolist()
    assert net.backward(x, x * 2).tolist() == [[2, 2, 2], [2, 2, 2]]
    assert capsys.readouterr().out.splitlines() == ["here:input 2x3", "here:gradOutput 2x3"]


def test_zero_grad_stops_the_gradient_of_tables_too() -> None:
    net = nn.ZeroGrad()
    input = [torch.ones(2), torch.ones(3)]
    net.forward(input)
    assert [g.tolist() for g in net.backward(input, [torch.ones(2), torch.ones(3)])] == [[0, 0], [0, 0, 0]]


def test_copy_converts_there_and_its_gradient_back() -> None:
    net = nn.Copy("torch.DoubleTensor", "torch.FloatTensor")
    x = torch.ones(2, dtype=torch.float64)
    assert net.forward(x).dtype is torch.float32
    assert net.backward(x, torch.ones(2)).dtype is torch.float64
    assert net.clear_state()(x).dtype is torch.float32
    with pytest.raises(ValueError, match=r"'torch\.FlotTensor' is no Torch7 tensor class"):
        nn.Copy("torch.FlotTensor")


def test_copy_follows_the_type_of_the_net_unless_told_not_to() -> None:
    x = torch.ones(2)
    assert nn.Copy("torch.FloatTensor", "torch.FloatTensor").double()(x).dtype is torch.float64
    assert nn.Copy("torch.FloatTensor", "torch.FloatTensor", False, True).double()(x).dtype is torch.float32


def test_copy_keeps_both_types_in_a_file(tmp_path: Path) -> None:
    net = nn.Copy("torch.DoubleTensor", "torch.FloatTensor", True, True)
    x = torch.ones(2, dtype=torch.float64)
    for _ in ("fresh", "used", "cleared"):
        state = to_graph(net).state
        assert (state["gradInput"].typename, state["output"].typename) == ("torch.DoubleTensor", "torch.FloatTensor")
        assert roundtrip(net, tmp_path)(x).dtype is torch.float32
        if net.output.numel():
            net.clear_state()
        net.forward(x)
        net.backward(x, x)


def test_dont_cast_keeps_the_type_inside_and_gives_the_type_around() -> None:
    net: Any = nn.Sequential().add(nn.DontCast(nn.Linear(4, 3).float(), True)).double()
    x = torch.randn(2, 4, dtype=torch.float64)
    assert net[0][0].weight.dtype is torch.float32
    due = net[0][0](x.float())
    assert torch.equal(net.forward(x), due.double())
    assert net.backward(x, torch.ones(2, 3, dtype=torch.float64)).dtype is torch.float64
    net.clear_state()
    assert net(x).dtype is torch.float64
    bare = nn.DontCast(nn.Tanh())
    assert bare(x).dtype is torch.float64


def test_gpu_only_calls_its_module_on_the_cpu_and_is_written_with_its_header() -> None:
    net = nn.GPU(nn.Linear(4, 3), 1)
    x = torch.randn(2, 4)
    assert torch.equal(net(x), net[0](x))
    graph = to_graph(net)
    assert graph.header.array() == ["torch.FloatTensor", 2.0]
    assert (graph.state["device"], graph.state["outdevice"]) == (2, 2)
    again = to_live(graph)
    assert (again.device, again.outdevice) == (1, 1)
    assert torch.equal(again(x), net(x))
    with pytest.raises(TypeError, match="takes the number of a device"):
        nn.GPU(nn.Tanh(), "cuda")  # type: ignore[arg-type]


X = torch.arange(24.0).view(2, 3, 4)


@pytest.mark.parametrize(
    "before, after, input, due",
    [
        ("bct", "btc", X, X.transpose(1, 2)),
        ("bct", "tcb", X, X.permute(2, 1, 0)),
        ("bct", "cbt", X, X.transpose(0, 1)),
        ("bct", "bf", X, X.reshape(2, 12)),
        ("cbt", "bf", X, X.transpose(0, 1).reshape(3, 8)),
        ("ctb", "bf", X, X.transpose(0, 2).reshape(4, 6)),
        ("ct", "f", X, X.reshape(2, 12)),
        ("ct", "f", X[0], X[0].reshape(12)),
        ("ct", "tc", X[0], X[0].t()),
        ("cbt", "tbc", X[:, 0], X[:, 0].t()),
        ("b", "bf", X[0, 0], X[0, 0].view(4, 1)),
        ("b", "bt", X[0, 0], X[0, 0].view(4, 1)),
        ("bt", "b", X[0], X[0, :, 0]),
        ("tb", "b", X[0], X[0, 0]),
        ("bf", "b", X[0, :, :1], X[0, :, 0]),
        ("fb", "bf", X[0], X[0].t()),
        (None, None, X.double(), X),
        ("bct", "bct", X.long(), X),
    ],
)
def test_convert_brings_a_layout_to_another(before: str | None, after: str | None, input: Tensor, due: Tensor) -> None:
    net = nn.Convert(before, after)
    got = net.forward(input)
    assert got.dtype is torch.float32
    assert torch.equal(got, due)
    if input.is_floating_point() and input.numel() == due.numel():
        assert torch.equal(net.backward(input, got), input)
    assert torch.equal(to_live(to_graph(net))(input), due)


@pytest.mark.parametrize(
    "before, after, input, message",
    [
        ("bt", "bf", X[0], "no conversion of shape bt to bf"),
        ("bct", "b", X, "no conversion of shape bct to b"),
        ("bf", "b", X[0], "expected one feature"),
        ("bct", "btc", X[0, 0], "expected a tensor of 3 dimensions"),
    ],
)
def test_convert_refuses_layouts_it_cannot_bring_together(before: str, after: str, input: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nn.Convert(before, after)(input)


def test_convert_is_written_with_its_letters_and_places() -> None:
    state = to_graph(nn.Convert("ctb", "bf")).state
    assert (state["inputShape"], state["outputShape"]) == ("ctb", "bf")
    assert (state["inputBatchDim"], state["outputBatchDim"]) == (3, 1)
    assert (state["nInputDim"], state["nOutputDim"]) == (3, 2)
    assert "transposition" not in state
    assert len(state["modules"]) == 0
    with pytest.raises(ValueError, match="both shapes are b"):
        nn.Convert("b*", "bf")
    with pytest.raises(ValueError, match="takes an input shape"):
        nn.Convert(None, "bf")


@pytest.mark.parametrize("shape", [(4,), (5, 4)])
def test_maxout_takes_the_largest_of_its_maps(shape: tuple[int, ...]) -> None:
    net: Any = nn.Maxout(4, 3, 2)
    x = torch.randn(shape)
    maps = (x @ net[0].weight.t() + net[0].bias).view(*shape[:-1], 2, 3)
    torch.testing.assert_close(net(x), maps.amax(-2))
    preprocessed = nn.Maxout(4, 3, 2, nn.Tanh())
    assert [child.typename for child in preprocessed] == ["nn.Linear", "nn.View", "nn.Tanh", "nn.Max"]


@pytest.mark.parametrize("inplace", [False, True])
def test_crelu_gives_both_signs_and_never_changes_its_input(inplace: bool) -> None:
    x = torch.randn(2, 3, 4)
    kept = x.clone()
    net = nn.CReLU(2, inplace)
    due = torch.cat([x.clamp(min=0), (-x).clamp(min=0)], 1)
    assert torch.equal(net(x), due)
    assert torch.equal(net(x[0]), due[0])
    assert torch.equal(net.forward(x), due)
    assert torch.equal(net.backward(x, torch.ones_like(due)), x.sign())
    assert torch.equal(x, kept)
    assert str(net) == "CReLU()"


def test_criterion_table_gives_the_loss_and_the_gradient_of_its_input_alone() -> None:
    net = nn.CriterionTable(nn.MSECriterion())
    input = [torch.tensor([1.0, 3.0]), torch.zeros(2)]
    assert net.forward(input) == 5
    grads = net.backward(input, torch.tensor(1.0))
    assert [g.tolist() for g in grads] == [[1, 3]]
    target = torch.zeros(2, requires_grad=True)
    leaf = input[0].clone().requires_grad_()
    net([leaf, target]).backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [1, 3]
    assert target.grad is None or not target.grad.any()


@pytest.mark.parametrize("grad", [None, 0.5, torch.tensor([7.0]), []], ids=["none", "number", "tensor", "table"])
def test_the_gradient_of_a_criterion_table_is_that_of_its_loss_whatever_comes_from_behind(grad: Any) -> None:
    net, input = nn.CriterionTable(nn.MSECriterion()), [torch.tensor([1.0, 3.0]), torch.zeros(2)]
    net.forward(input)
    assert [g.tolist() for g in net.backward(input, grad)] == [[1, 3]]
    if not isinstance(grad, list):
        outer = nn.Sequential().add(net)
        outer.forward(input)
        assert outer.backward(input, grad)[0].tolist() == [1, 3]
    leaf = input[0].clone().requires_grad_()
    (0.5 * net([leaf, input[1]])).backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [0.5, 1.5]


def test_a_criterion_table_takes_the_input_alone_where_the_criterion_has_no_target() -> None:
    net, input = nn.CriterionTable(nn.L1Cost()), [torch.tensor([1.0, -3.0])]
    assert net.forward(input) == 4
    assert net.backward(input)[0].tolist() == [1, -1]
    with pytest.raises(ValueError, match="expected a table of 2, got a table of 3"):
        net.forward(input * 3)
    with pytest.raises(TypeError, match="expected a table of 2, got a tensor of 2"):
        net.forward(input[0])


def test_a_criterion_table_in_a_file_holds_the_very_gradient_that_torch7_fills() -> None:
    net, input = nn.CriterionTable(nn.MSECriterion()), [torch.ones(3), torch.zeros(3)]
    for step in (lambda: None, lambda: net.forward(input), lambda: net.backward(input), net.clear_state):
        step()
        for graph in (to_graph(net), to_graph(to_live(to_graph(net)))):
            assert len(graph["gradInput"]) == 1
            assert graph["gradInput"][1] is graph["criterion"]["gradInput"]
    outer = to_graph(nn.CriterionTable(nn.ModuleCriterion(nn.MSECriterion())))
    assert (len(outer["gradInput"]), "gradInput" in outer["criterion"]) == (0, False)


def test_a_net_that_ends_in_its_loss_trains_without_a_gradient_given() -> None:
    main = nn.Sequential().add(nn.Linear(5, 3)).double()
    net = nn.Sequential().add(nn.ParallelTable().add(main).add(nn.Identity())).add(nn.CriterionTable(nn.MSECriterion()))
    x, y = torch.ones(5, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    first = float(net.forward([x, y]))
    for _ in range(20):
        net.forward([x, y])
        net.zero_grad_parameters()
        net.backward([x, y])
        net.update_parameters(0.05)
    assert net.forward([x, y]) < 0.1 * first
    with pytest.raises(ValueError, match="grad_output has 0 tensors, the output has 1"):
        main.backward(main.forward(x))


def test_module_criterion_sends_input_and_target_through_modules_first() -> None:
    loss = nn.ModuleCriterion(nn.MSECriterion(), nn.Tanh(), nn.Tanh())
    x, y = torch.randn(3), torch.randn(3)
    leaf = x.clone().requires_grad_()
    due = (leaf.tanh() - y.tanh()).pow(2).mean()
    (grad,) = torch.autograd.grad(due, leaf)
    assert loss.forward(x, y) == pytest.approx(due.item())
    torch.testing.assert_close(loss.backward(x, y), grad)
    again = to_live(to_graph(loss))
    assert again.forward(x, y) == pytest.approx(due.item())
    assert loss.clear_state().forward(x, y) == pytest.approx(due.item())


def test_module_criterion_leaves_its_target_module_in_its_type_if_told_so() -> None:
    loss = nn.ModuleCriterion(nn.MSECriterion(), nn.Linear(2, 2), nn.Linear(2, 2), False).double()
    assert loss.input_module is not None
    assert loss.target_module is not None
    assert next(loss.input_module.parameters()).dtype is torch.float64
    assert next(loss.target_module.parameters()).dtype is torch.float32


@pytest.mark.parametrize(
    "kind", ["Bottle", "WeightNorm", "CReLU", "Maxout", "Convert", "DontCast", "ZeroGrad", "Profile"]
)
def test_modules_around_modules_compile_without_a_break(kind: str) -> None:
    make: dict[str, Callable[[], nn.Module]] = {
        "Bottle": lambda: nn.Bottle(nn.Linear(4, 3)),
        "WeightNorm": lambda: nn.WeightNorm(nn.Linear(4, 3)),
        "CReLU": lambda: nn.CReLU(1),
        "Maxout": lambda: nn.Maxout(4, 3, 2),
        "Convert": lambda: nn.Convert("bf", "fb"),
        "DontCast": lambda: nn.DontCast(nn.Linear(4, 3), True),
        "ZeroGrad": nn.ZeroGrad,
        "Profile": lambda: nn.Profile(nn.Linear(4, 3)),
    }
    net, x = make[kind](), torch.randn(2, 4)
    torch._dynamo.reset()  # its limit of compilations is for all tests together
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), net(x))


def test_a_file_of_an_older_weight_norm_with_its_weight_gives_the_weight_of_v_and_g() -> None:
    net = nn.WeightNorm(nn.Linear(4, 3))
    graph = to_graph(net)
    stale = t7.Tensor.of(torch.zeros(3, 4).numpy(), "torch.FloatTensor")
    for state in (graph.state, graph.state["modules"][1].state):
        state["weight"] = state["gradWeight"] = stale
    again = to_live(graph)
    x = torch.randn(2, 4)
    torch.testing.assert_close(again(x), net(x))
    assert "weight" not in to_graph(again).state
    assert len(list(again.parameters())) == 3


def test_weight_norm_over_a_convolution_keeps_the_weights_shape_in_its_gradient_as_torch7_does() -> None:
    state = to_graph(nn.WeightNorm(nn.SpatialConvolution(3, 4, 2, 2))).state
    assert (state["v"].size, state["gradV"].size) == ((4, 12), (4, 3, 2, 2))
    again = to_live(to_graph(nn.WeightNorm(nn.Linear(4, 3), 1)))
    assert again.v.grad.shape == again.v.shape == (4, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Decorator(nn.Linear(4, 3)),
        lambda: nn.GPU(nn.Linear(4, 3), 0),
        lambda: nn.Profile(nn.Linear(4, 3), 10**6),
        lambda: nn.WeightNorm(nn.Linear(4, 3), 1),
        lambda: nn.Convert("bf", "fb"),
        lambda: nn.Maxout(4, 3, 2),
        lambda: nn.DontCast(nn.Linear(4, 3).double(), True),
        nn.PrintSize,
    ],
)
def test_modules_without_a_recording_keep_the_promises(make: Callable[[], nn.Module]) -> None:
    net, input = make().double(), torch.randn(2, 4, dtype=torch.float64)
    check_promises(net, input)
    check_io(net, input)
    check_gradients(net, input)


def test_criterion_table_keeps_the_promises() -> None:
    net, input = nn.CriterionTable(nn.MSECriterion()), [torch.randn(3), torch.randn(3)]
    check_promises(net, input)
    check_io(net, input)
