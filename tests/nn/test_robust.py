"""What a net goes through in people's hands: it keeps its promises, or says in words what is wrong."""

from __future__ import annotations

import copy
import io
import pickle
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.errors import ClearstateError
from clearstate.formats import t7
from clearstate.nn.declarations.fields import index, plain
from clearstate.nn.protocol.ownership import tensors
from clearstate.nn.t7.files import to_graph, to_live


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


class KeepsItsInput(nn.Module):
    """As people carry layers over from Torch7: what comes is kept as it is."""

    transient = ("cache",)

    def update_output(self, input: torch.Tensor) -> Any:
        self.cache = input
        self.output = input
        return self.output


class KeepsAGraph(nn.Module):
    transient = ("attention", "scaled")

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.scaled = self.weight * 2

    def update_output(self, input: torch.Tensor) -> torch.Tensor:
        self.attention = input * self.weight
        return self.attention + 1


@pytest.mark.parametrize("way", ["called", "forward", "forward without grad"])
def test_a_layer_that_assigns_its_input_to_output_never_empties_or_converts_it(way: str) -> None:
    layer, x = KeepsItsInput(), torch.ones(3)
    with torch.set_grad_enabled(way != "forward without grad"):
        layer(x) if way == "called" else layer.forward(x)
        layer.forward(torch.zeros(5))
    layer(x) if way == "called" else layer.forward(x)
    layer.double()
    layer.clear_state()
    assert torch.equal(x, torch.ones(3))
    assert x.dtype == torch.float32


def test_a_tensor_given_to_a_constructor_is_never_emptied() -> None:
    class Takes(KeepsItsInput):
        def __init__(self, given: torch.Tensor) -> None:
            super().__init__()
            self.cache = given

    given = torch.ones(3)
    Takes(given).clear_state()
    assert given.shape == (3,)


def test_a_layer_that_assigns_output_itself_fills_the_object_that_was_held() -> None:
    layer = KeepsItsInput()
    held = layer.forward(torch.ones(3))
    assert layer.forward(torch.zeros(2)) is held
    layer.clear_state()
    assert held.numel() == 0
    assert layer.forward(torch.ones(3)) is held


def test_what_nobody_holds_is_freed_and_what_somebody_holds_is_emptied_and_filled_again() -> None:
    net: Any = nn.Sequential(nn.Linear(3, 3), nn.ConcatTable().add(nn.Identity()).add(nn.Tanh()), nn.CAddTable())
    x = torch.randn(2, 3)
    for _ in range(2):
        net.backward(x, torch.ones_like(net.forward(x)))
        first, table, of_table = net[0].output, net[1].output, net[2].grad_input[1]
        ids = [id(first), id(table), id(of_table)]
        unheld = [weakref.ref(net[1].grad_input), weakref.ref(net[1][1].output), weakref.ref(net[1].output[0])]
        net.clear_state()
        assert [ref() for ref in unheld[:2]] == [None, None]
        assert (first.numel(), table, of_table.numel()) == (0, [], 0)
        net.backward(x, torch.ones_like(net.forward(x)))
        assert [id(net[0].output), id(net[1].output), id(net[2].grad_input[1])] == ids
        assert (first.shape, len(table), of_table.shape) == ((2, 3), 2, (2, 3))


@pytest.mark.parametrize(
    "made",
    [
        copy.deepcopy,
        lambda module: pickle.loads(pickle.dumps(module)),
        lambda module: to_live(to_graph(module)),
        nn.Sequential.double,
    ],
    ids=["deepcopy", "pickle", "t7", "double"],
)
def test_outputs_that_nobody_asked_for_go_along_into_copies_files_and_other_types(made: Any) -> None:
    branches = nn.ConcatTable().add(nn.Identity()).add(nn.Tanh())
    model: Any = nn.Sequential(nn.Linear(3, 4), branches, nn.CAddTable())
    hidden = model[0](torch.ones(2, 3)).detach()
    model.forward(torch.ones(2, 3))
    other = made(model)
    for output, due in ((other[0].output, hidden), (other[1].output[1], hidden.tanh()), (other[1][0].output, hidden)):
        assert torch.equal(output, due.to(output.dtype))


class Remembers(nn.Module):
    """Goes on from its own last output, as a layer carried over from Torch7 may."""

    def update_output(self, input: torch.Tensor) -> torch.Tensor:
        last = self.output
        return input if last.shape != input.shape else last * 0.5 + input


def test_a_layer_that_goes_on_from_its_own_output_gives_the_same_alone_and_inside_a_net() -> None:
    alone, inside = Remembers(), nn.Sequential(nn.Identity(), Remembers())
    for due in (1.0, 1.5, 1.75, 1.875):
        assert (alone.forward(torch.ones(1)).item(), inside.forward(torch.ones(1)).item()) == (due, due)


def test_an_output_stays_until_it_is_written_again_or_cleared() -> None:
    model: Any = nn.Parallel(0, 0).add(nn.Linear(3, 3)).add(nn.Linear(3, 2))
    model.forward(torch.ones(2, 3))
    model.forward(torch.ones(1, 3))
    assert model[1].output.numel() == 2
    chain: Any = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    chain.forward(torch.ones(2, 3))
    with pytest.raises(ValueError, match="last dimension is 3"):
        chain.forward(torch.ones(2, 2))
    assert chain[1].output.shape == (2, 3)


def test_what_forward_returned_may_be_changed_before_backward() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    due = model.backward(torch.ones(2, 3), torch.ones_like(model.forward(torch.ones(2, 3)))).shape
    model.clear_state()
    for _ in range(2):
        model.forward(torch.ones(2, 3)).mul_(0.5)
        assert model.backward(torch.ones(2, 3), torch.ones(2, 3)).shape == due


def test_layers_that_convert_keep_their_type_under_another_default() -> None:
    torch.set_default_dtype(torch.float64)
    try:
        copying: Any = nn.Copy("torch.DoubleTensor", "torch.FloatTensor")
        for _ in range(2):
            assert copying.forward(torch.ones(2)).dtype is torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_output_of_a_module_that_two_nets_share_is_what_the_last_of_them_gave() -> None:
    shared: Any = nn.Tanh()
    first, second = nn.Sequential(nn.Identity(), shared), nn.Sequential(shared, nn.MulConstant(2))
    first.forward(torch.ones(2))
    second.forward(torch.zeros(3))
    assert torch.equal(shared.output, torch.zeros(3))
    first.forward(torch.ones(2))
    assert torch.equal(shared.output, torch.ones(2).tanh())
    second.clear_state()
    assert shared.output.numel() == 0
    assert torch.equal(first.output, torch.ones(2).tanh())


def test_what_is_asked_for_after_clearing_is_as_constructed() -> None:
    net: Any = nn.Sequential(nn.Linear(3, 3), nn.ConcatTable().add(nn.Identity()), nn.JoinTable(1))
    made = [(m.output, m.grad_input) for m in net.list_modules()]
    x = torch.randn(2, 3)
    net.backward(x, torch.ones_like(net.forward(x)))
    del made
    net.clear_state()
    assert [type(m.output) for m in net.list_modules()] == [
        torch.Tensor,
        torch.Tensor,
        list,
        torch.Tensor,
        torch.Tensor,
    ]
    assert net[0].output is net[0].output
    assert net[0].grad_input is not net[0].output
    assert not any(t.numel() for m in net.list_modules() for t in tensors([m.output, m.grad_input]))
    net.forward(x)
    assert net.clear_state().double()[0].output.dtype == torch.float64
    net.forward(x.double())
    assert net.clear_state()[0].output.dtype == torch.float64
    with pytest.raises(AttributeError):
        _ = nn.Linear.output


@pytest.mark.parametrize("name", ["output", "grad_input"])
def test_a_child_under_the_name_of_what_forward_keeps_is_refused_in_words(name: str) -> None:
    class Attention(nn.Module):
        def __init__(self, part: Any) -> None:
            super().__init__()
            setattr(self, name, part)

    for part in (torch.nn.Linear(3, 2), torch.nn.Parameter(torch.ones(2))):
        kind = type(part).__name__
        with pytest.raises(
            TypeError, match=rf"Attention\.{name} is what work leaves there: give this {kind} another name"
        ):
            Attention(part)


def test_clearing_keeps_the_type_of_what_it_empties_whatever_the_default_is(tmp_path: Path) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        net = nn.Sequential().add(nn.Linear(3, 3)).add(nn.Tanh()).add(nn.SplitTable(0)).float()
        net.forward(torch.randn(2, 3, dtype=torch.float32))
        net.clear_state()
        cs.save(net, tmp_path / "net.t7")
        assert net[1].output.dtype is torch.float32
        double = nn.Tanh()
        double.forward(torch.randn(2, dtype=torch.float64))
        assert double.clear_state().output.dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    tanh: Any = t7.load(tmp_path / "net.t7")["modules"][1]
    assert tanh["_type"] == "torch.FloatTensor"
    assert tanh["output"].typename == tanh["gradInput"].typename == "torch.FloatTensor"


def test_a_backward_that_fails_leaves_no_large_gradient_of_the_one_before() -> None:
    layer, x = nn.Linear(3, 2), torch.ones(30000, 3)
    layer.forward(x)
    held = layer.backward(x, torch.ones(30000, 2))
    with pytest.raises(ValueError, match="grad_output"):
        layer.backward(x, torch.ones(1, 5))
    assert held.numel(), "nothing was begun"
    with torch.no_grad():
        layer.weight.add_(1)  # what the tape has seen is no more
    with pytest.raises(RuntimeError, match=r"^nn\.Linear: its weight was changed in place since the last forward"):
        layer.backward(x, torch.ones(30000, 2))
    assert not held.numel()
    assert layer.grad_input is held


@pytest.mark.parametrize("way", ["called", "forward", "cleared"])
def test_a_layer_that_keeps_a_graph_is_copied_and_saved_at_any_time(way: str) -> None:
    layer, x = KeepsAGraph(), torch.ones(2, 3)
    layer(x) if way == "called" else layer.forward(x)
    if way == "cleared":
        layer.clear_state()
    torch.save(layer, io.BytesIO())
    for other in (copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other.clear_state().forward(x), layer(x))
        assert other.backward(x, torch.ones(2, 3)).tolist() == torch.ones(2, 3).tolist()


def test_clearing_leaves_the_result_of_a_plain_call_and_its_graph_to_the_caller() -> None:
    class Squares(nn.Module):
        def update_output(self, input: torch.Tensor) -> Any:
            self.output = [input**2, input**3]
            return self.output

    layer, x = Squares(), torch.tensor([3.0], requires_grad=True)
    first, second = layer(x)
    layer.clear_state()
    (first * second).backward()
    assert x.grad is not None
    assert x.grad.item() == 5 * 3**4


def test_a_shallow_copy_has_an_output_of_its_own() -> None:
    layer = nn.Tanh()
    output = layer.forward(torch.ones(3))
    copy.copy(layer).forward(torch.zeros(2))
    assert output.shape == (3,)


def test_clearing_a_net_leaves_the_graph_of_whoever_took_its_output_for_input() -> None:
    first, second, x = net(), nn.Linear(2, 1), torch.randn(5, 3)
    taken = first.forward(x)
    second.forward(taken)
    weight_grad = first.output.sum(0, keepdim=True)
    first.clear_state()
    second.backward(taken, torch.ones(5, 1))
    assert second.weight.grad is not None
    assert torch.allclose(second.weight.grad, weight_grad)


def test_no_memory_is_held_by_an_output_without_elements() -> None:
    class Nothing(nn.Module):
        def update_output(self, input: torch.Tensor) -> torch.Tensor:
            return (2 * input)[:0]

    layer = Nothing()
    layer.forward(torch.ones(1000))
    assert layer.clear_state().output.untyped_storage().nbytes() == 0


def test_an_error_that_a_layer_catches_does_not_spoil_going_back() -> None:
    class Refuses(nn.Module):
        def update_output(self, input: torch.Tensor) -> torch.Tensor:
            raise ValueError("no")

    class Either(nn.Container):
        def update_output(self, input: torch.Tensor) -> Any:
            try:
                return self.get(0)(input)
            except ValueError:
                return self.get(1)(input)

    either = Either().add(nn.Sequential(nn.Linear(3, 3), Refuses())).add(nn.Tanh())
    x = torch.randn(2, 3)
    either.forward(x)
    grad = either.backward(x, torch.ones(2, 3))
    assert torch.allclose(grad, 1 - x.tanh() ** 2)


def test_a_compiled_net_takes_batches_of_other_sizes() -> None:
    net = nn.Sequential().add(nn.SpatialConvolution(1, 3, 3, 3)).add(nn.SpatialBatchNormalization(3))
    net.add(nn.View(-1).set_num_input_dims(3)).add(nn.BatchNormalization(12)).add(nn.Linear(12, 2))
    compiled: Any = torch.compile(net, fullgraph=True, backend="eager")
    for training in (True, False):
        net.train(training)
        for size in (4, 6, 9):
            x = torch.rand(size, 1, 4, 4)
            torch.testing.assert_close(compiled(x), net(x))


def test_a_compiled_net_is_copied_and_pickled() -> None:
    made = net()
    made.compile(backend="eager")
    x = torch.randn(5, 3)
    made(x)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.allclose(other.forward(x), made(x))


def test_a_net_takes_an_input_made_in_inference_mode() -> None:
    made = net()
    with torch.inference_mode():
        x = torch.ones(5, 3)
        held = made.forward(x)
        made.clear_state()
    assert made.forward(x).shape == (5, 2)
    assert made.backward(x, torch.ones(5, 2)).shape == (5, 3)
    assert made.clear_state().output.numel() == held.numel() == 0


def test_replacing_a_module_by_one_that_holds_it_asks_about_it_once() -> None:
    made = net()
    first = made[0]
    made.replace(lambda m: nn.Sequential(m, nn.Dropout()) if isinstance(m, nn.Linear) else m)
    assert isinstance(made[0], nn.Sequential)
    assert made[0][0] is first
    assert made(torch.randn(5, 3)).shape == (5, 2)
    around = made.replace(lambda m: nn.Sequential(m) if m is made else m)
    assert list(around.children()) == [made]


def test_replacing_by_what_is_no_module_is_refused_and_changes_nothing() -> None:
    made = net()
    with pytest.raises(TypeError, match="Sequential became NoneType, not a module"):
        made.replace(lambda m: None)  # type: ignore[arg-type,return-value]
    assert made(torch.randn(5, 3)).shape == (5, 2)


def test_a_shared_module_is_replaced_by_one_module() -> None:
    shared = nn.Linear(3, 3)
    made = nn.Sequential(shared, shared)
    made.replace(lambda m: nn.Tanh() if m is shared else m)
    assert made[0] is made[1]
    assert isinstance(made[0], nn.Tanh)


def read(module: nn.Module, **fields: Any) -> Any:
    """The module, through a file in which these fields are something else (``None``: they are missing)."""
    obj: Any = to_graph(module)
    for name, value in fields.items():
        obj.state.pop(name, None)
        if value is not None:
            obj.state[name] = value
    return to_live(t7.loads(t7.dumps(obj)))


@pytest.mark.parametrize(
    "module, fields, message",
    [
        (nn.Linear(3, 2), {"weight": "abc"}, "nn.Linear in the file .* weight should be a tensor, and is 'abc'"),
        (nn.Linear(3, 2), {"bias": 3.0}, "bias should be a tensor, and is 3"),
        (nn.SpatialBatchNormalization(3), {"running_mean": t7.Table.of([1.0])}, "running_mean should be a tensor"),
        (nn.SpatialBatchNormalization(3), {"eps": "abc"}, "eps should be a number, and is 'abc'"),
        (nn.SpatialConvolution(3, 2, 3, 3), {"kW": 1e300}, "kW should be a whole number, and is 1e"),
        (nn.SpatialMaxPooling(2, 2), {"dH": t7.Table()}, "dH should be a whole number, and is a table of 0"),
        (nn.Select(0, 0), {"dimension": "one"}, "dimension should be a whole number, and is 'one'"),
        (nn.Reshape(3), {"size": t7.Table.of(["x"])}, "size should be whole numbers, and is a table of 1"),
        (nn.Sequential(nn.Tanh()), {"modules": 1.0}, "modules should be a table, and is 1"),
        (nn.Sequential(nn.Tanh()), {"modules": t7.Table({1.0: 5.0})}, "nn.Sequential in the file .* not a Module"),
        (
            nn.Sequential(nn.Tanh()),
            {"modules": t7.Table({1.0: to_graph(nn.Tanh()), 3.0: to_graph(nn.Tanh())})},
            "modules should be a table of 1 to 2, and has only 1 in a row",
        ),
        (nn.PartialLinear(3, 2), {"network": "abc"}, "nn.PartialLinear in the file"),
    ],
)
def test_a_file_that_lies_about_a_field_is_refused_when_read(
    module: nn.Module, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClearstateError, match=message):
        read(module, **fields)


@pytest.mark.parametrize(
    "module, fields, input, message",
    [
        (nn.Linear(3, 2), {"weight": None}, torch.ones(5, 3), "in 0 .nn.Linear.: .* file lacks weight"),
        (
            nn.Linear(3, 2),
            {"weight": t7.Tensor.of([1.0])},
            torch.ones(5, 3),
            "weight is a tensor of 1, and one of .x. is",
        ),
        (nn.Cosine(3, 2), {"weight": t7.Tensor.of([1.0])}, torch.ones(5, 3), "its fields do not go together"),
        (nn.LookupTable(4, 2), {"weight": None}, torch.tensor([0, 1]), "file lacks weight"),
    ],
)
@pytest.mark.parametrize("way", ["called", "forward"])
def test_a_net_whose_file_lacks_what_it_needs_says_so_when_called(
    module: nn.Module, fields: dict[str, Any], input: torch.Tensor, message: str, way: str
) -> None:
    made = nn.Sequential(read(module, **fields))
    with pytest.raises(ValueError, match=message):
        made(input) if way == "called" else made.forward(input)


def test_a_table_whose_keys_are_storages_is_read_as_it_is() -> None:
    table = t7.Table({t7.Storage.of("torch.LongStorage", [1]): 2.0})
    assert to_live(table) is table


def test_a_net_nested_too_deep_to_be_written_is_refused_in_words() -> None:
    made = nn.Sequential()
    for _ in range(2000):
        made = nn.Sequential(made)
    with pytest.raises(ClearstateError, match="nested too deep to be written"):
        to_graph(made)
    with pytest.raises(RecursionError):
        made.forward(torch.ones(1))
    assert nn.Tanh().forward(torch.zeros(1)).item() == 0


@pytest.mark.parametrize("input", [{"a": torch.ones(1), "b": torch.ones(1)}, torch.ones(2, 1), [torch.ones(1)], None])
def test_a_graph_of_two_inputs_refuses_what_is_no_table_of_two(input: Any) -> None:
    x, y = nn.Identity()(), nn.Identity()()
    made = nn.gModule([x, y], [nn.CAddTable()([x, y])])
    with pytest.raises((TypeError, ValueError), match="expected a table"):
        made(input)


def test_a_tensor_is_not_split_as_if_it_were_a_table() -> None:
    x = nn.Identity()()
    first, second = x.split(2)
    made = nn.gModule([x], [nn.CAddTable()([first, second])])
    with pytest.raises(TypeError, match="expected a table of 2, got a tensor of 2x3"):
        made(torch.ones(2, 3))


class Attention(nn.Module, typename="robust.Attention"):
    """A layer of a user's own, with all that one may hold."""

    fields = plain("heads options") | index("dimension")
    transient = ("scores",)

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.options = {"scale": 0.5, "names": ["a", "b"]}
        self.dimension = 0
        self.weight = torch.nn.Parameter(torch.randn(3))
        self.query_key = torch.nn.Parameter(torch.randn(3))
        self.register_buffer("running", torch.ones(3))
        self.inner = nn.Linear(3, 3)

    def update_output(self, input: torch.Tensor) -> Any:
        self.keep("scores", input * self.query_key)
        return self.inner(input * self.query_key * self.weight) + self.running


@pytest.mark.parametrize("state", ["fresh", "used", "cleared"])
def test_a_layer_of_ones_own_comes_back_from_a_file_whole(tmp_path: Path, state: str) -> None:
    layer, x = Attention(4), torch.randn(5, 3)
    if state != "fresh":
        layer.forward(x)
        layer.backward(x, torch.ones(5, 3))
    if state == "cleared":
        layer.clear_state()
    path = tmp_path / "layer.t7"
    cs.save({"model": nn.Sequential(layer), "tied": layer.inner}, path)
    read = cs.load(path)
    other = read["model"][0]
    assert (other.heads, other.options, other.dimension) == (4, layer.options, 0)
    assert [name for name, _ in other.named_parameters()] == [name for name, _ in layer.named_parameters()]
    assert [name for name, _ in other.named_buffers()] == ["running"]
    assert read["tied"] is other.inner
    for mine, theirs in zip(layer.parameters(), other.parameters(), strict=True):
        due = torch.zeros_like(mine) if mine.grad is None else mine.grad
        assert theirs.grad is not None
        assert torch.equal(theirs.grad, due)
    assert not other.extra
    assert torch.equal(other(x), layer(x))
    other.clear_state().forward(x)
    assert other.clear_state().output.numel() == 0
    assert not any(t.numel() for t in tensors(getattr(other, "scores", None)))


def test_a_file_keeps_the_lua_names_of_a_layer_of_ones_own() -> None:
    obj = t7.Object("robust.Attention", t7.Table(queryKey=t7.Tensor.of([2.0]), gradQueryKey=t7.Tensor.of([0.0])))
    live = to_live(obj)
    assert live.query_key.requires_grad
    written: Any = to_graph(live)
    assert {"queryKey", "gradQueryKey"} <= set(written.state)
    assert "query_key" not in written.state


def test_a_child_of_torch7s_class_keeps_its_parameters_under_a_name_of_ones_own(tmp_path: Path) -> None:
    class Scaled(nn.Linear, typename="robust.Scaled"):
        def update_output(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().update_output(input)

    layer, x = Scaled(3, 2), torch.randn(5, 3)
    cs.save(layer, tmp_path / "layer.t7")
    assert torch.equal(cs.load(tmp_path / "layer.t7")(x), layer(x))


def test_parametrized_weights_are_refused_by_a_file_with_what_to_do(tmp_path: Path) -> None:
    made = net()
    torch.nn.utils.parametrizations.weight_norm(made[0])
    with pytest.raises(TypeError, match="remove_parametrizations"):
        cs.save(made, tmp_path / "net.t7")
    torch.nn.utils.parametrize.remove_parametrizations(made[0], "weight")
    cs.save(made, tmp_path / "net.t7")
    x = torch.randn(5, 3)
    assert torch.allclose(cs.load(tmp_path / "net.t7")(x), made(x))


def test_sharing_with_a_net_of_another_structure_is_refused_and_shares_nothing() -> None:
    made, other = net(), nn.Sequential(nn.Linear(3, 4))
    place = made[0].weight
    assert isinstance(place, torch.Tensor)
    before = place.data_ptr()
    with pytest.raises(ValueError, match="one has 4 modules, the other 2"):
        made.share(other, "weight")
    assert place.data_ptr() == before


def test_flat_parameters_keep_those_that_are_one_number() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.scale = torch.nn.Parameter(torch.tensor(5.0))

        def update_output(self, input: torch.Tensor) -> torch.Tensor:
            return input * self.weight * self.scale

    layer = Scaled()
    flat, grads = layer.get_parameters()
    assert flat.tolist() == [1, 1, 1, 5]
    assert grads.shape == (4,)
    assert layer.scale.item() == 5
    flat.fill_(2)
    assert layer.scale.item() == 2
