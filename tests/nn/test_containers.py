"""Containers: their lists of children, what they print, and what Torch7's recordings do not show of them."""

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


def three() -> nn.Sequential:
    return nn.Sequential().add(nn.Linear(2, 2)).add(nn.Tanh()).add(nn.Identity())


def names(net: nn.Container) -> list[str]:
    return [type(child).__name__ for child in net]


def test_children_are_found_counted_and_walked_by_index() -> None:
    net = three()
    assert (len(net), net.size(), names(net)) == (3, 3, ["Linear", "Tanh", "Identity"])
    assert net[0] is net.get(0) is net[-3]
    assert net[2] is net[-1]
    assert bool(nn.Sequential())


@pytest.mark.parametrize("index", [3, -4])
def test_an_index_without_a_module_says_how_many_there_are(index: int) -> None:
    with pytest.raises(IndexError, match=rf"nn.Sequential has 3 modules: there is no index {index}"):
        three().get(index)
    with pytest.raises(IndexError):
        three()[index] = nn.Tanh()


def test_modules_are_inserted_replaced_and_removed_anywhere() -> None:
    net = three()
    assert net.insert(nn.Identity(), 0) is net
    assert names(net) == ["Identity", "Linear", "Tanh", "Identity"]
    net.insert(nn.Tanh())
    assert names(net)[-1] == "Tanh"
    assert type(net.remove()).__name__ == "Tanh"
    assert type(net.remove(1)).__name__ == "Linear"
    assert names(net) == ["Identity", "Tanh", "Identity"]
    del net[0]
    net[-1] = nn.Linear(2, 2)
    assert names(net) == ["Tanh", "Linear"]
    assert [name for name, _ in net.named_children()] == ["0", "1"]
    assert net(torch.ones(1, 2)).shape == (1, 2)


@pytest.mark.parametrize("index", [4, -5])
def test_inserting_beyond_the_ends_is_refused(index: int) -> None:
    net = three()
    with pytest.raises(IndexError, match=r"nn\.Sequential has 3 modules"):
        net.insert(nn.Tanh(), index)
    assert len(net) == 3


def test_a_container_of_containers_prints_as_torch7_prints_it() -> None:
    net = (
        nn.Sequential()
        .add(nn.ConcatTable().add(nn.Sequential().add(nn.Linear(4, 3)).add(nn.Tanh())).add(nn.Linear(4, 3)))
        .add(nn.ParallelTable().add(nn.Tanh()).add(nn.MapTable(nn.Tanh())))
    )
    assert str(net) == (
        "nn.Sequential {\n"
        "  [input -> (1) -> (2) -> output]\n"
        "  (1): nn.ConcatTable {\n"
        "    input\n"
        "      |`-> (1): nn.Sequential {\n"
        "      |      [input -> (1) -> (2) -> output]\n"
        "      |      (1): nn.Linear(4 -> 3)\n"
        "      |      (2): nn.Tanh\n"
        "      |    }\n"
        "       `-> (2): nn.Linear(4 -> 3)\n"
        "       ... -> output\n"
        "  }\n"
        "  (2): nn.ParallelTable {\n"
        "    input\n"
        "      |`-> (1): nn.Tanh\n"
        "       `-> (2): nn.MapTable {\n"
        "             nn.Tanh\n"
        "           }\n"
        "       ... -> output\n"
        "  }\n"
        "}"
    )


def test_a_module_of_several_lines_is_indented_in_a_map_table() -> None:
    assert str(nn.MapTable(nn.Sequential().add(nn.Tanh()))) == (
        "nn.MapTable {\n  nn.Sequential {\n          [input -> (1) -> output]\n          (1): nn.Tanh\n        }\n}"
    )
    assert str(nn.MapTable()) == "nn.MapTable { }"


@pytest.mark.parametrize("call", ["plain", "protocol"])
def test_an_error_inside_names_the_path_and_the_class_of_the_child_once(call: str) -> None:
    inner = nn.ParallelTable().add(nn.Identity()).add(nn.Linear(3, 2))
    net = nn.Sequential().add(nn.ConcatTable().add(nn.Identity()).add(nn.Identity())).add(inner)
    run = net if call == "plain" else net.forward
    with pytest.raises(ValueError, match=r"^in 1\.1 \(nn\.Linear\): expected a tensor whose last dimension is 3"):
        run(torch.ones(5, 4))
    with pytest.raises(ValueError, match=r"^in 1\.1 \(nn\.Linear\): expected"):  # and again: nothing is left over
        run(torch.ones(5, 4))
    assert run(torch.ones(5, 3))[1].shape == (5, 2)


class Window(nn.Module):
    """A cut of the input's last two dimensions."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.height, self.width = height, width

    def update_output(self, input: Tensor) -> Tensor:
        return input[..., : self.height, : self.width]


@pytest.mark.parametrize("sizes", [[(5, 5), (3, 3)], [(9, 9), (4, 6)], [(1, 8), (8, 1), (4, 4)]])
def test_depth_concat_centres_smaller_outputs_among_zeros(sizes: list[tuple[int, int]]) -> None:
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    net = nn.DepthConcat(1)
    for size in sizes:
        net.add(Window(*size))
    height, width = max(h for h, _ in sizes), max(w for _, w in sizes)
    due = torch.zeros(2, 3 * len(sizes), height, width, dtype=torch.float64)
    for i, (h, w) in enumerate(sizes):
        top, left = (height - h) // 2, (width - w) // 2
        due[:, 3 * i : 3 * i + 3, top : top + h, left : left + w] = x[..., :h, :w]
    assert torch.equal(net.forward(x), due)
    counted = torch.zeros_like(x)
    for h, w in sizes:
        counted[..., :h, :w] += 1
    assert torch.equal(net.backward(x, torch.ones_like(due)), counted)


@pytest.mark.parametrize("kind", [nn.Concat, nn.DepthConcat])
def test_what_joins_tensors_says_so_where_a_module_gives_a_table(kind: type[nn.Concat]) -> None:
    with pytest.raises(TypeError, match="expected a tensor, got a table of 2"):
        kind(0).add(nn.Identity())([torch.ones(2), torch.ones(2)])


def test_concat_adds_up_the_gradients_of_a_table_it_gives_to_each_module() -> None:
    net = nn.Concat(0).add(nn.SelectTable(0)).add(nn.CAddTable())
    a, b = torch.ones(2), torch.ones(2)
    assert net.forward([a, b]).tolist() == [1, 1, 2, 2]
    grads = net.backward([a, b], torch.tensor([1.0, 2.0, 10.0, 20.0]))
    assert [g.tolist() for g in grads] == [[11, 22], [10, 20]]


def test_parallel_uses_as_many_modules_as_there_are_slices() -> None:
    net: Any = nn.Parallel(0, 0).add(nn.Linear(4, 3)).add(nn.Linear(4, 2))
    x = torch.randn(1, 4)
    assert torch.equal(net(x), net[0](x[0]))
    with pytest.raises(ValueError, match="at most 2 slices along dimension 0"):
        net(torch.randn(3, 4))


def test_parallel_table_leaves_entries_without_a_module_out_and_gives_them_zero_gradients() -> None:
    net = nn.ParallelTable().add(nn.Identity())
    input = [torch.ones(2), torch.ones(3)]
    assert len(net.forward(input)) == 1
    grads = net.backward(input, [torch.ones(2)])
    assert [g.tolist() for g in grads] == [[1, 1], [0, 0, 0]]
    with pytest.raises(ValueError, match="expected a table of 1"):
        net([])


def test_map_table_trains_one_module_by_all_entries() -> None:
    net: Any = nn.MapTable(nn.Linear(3, 2).double())
    input = [torch.randn(4, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)]
    grad = [torch.randn(4, 2, dtype=torch.float64), torch.randn(2, 2, dtype=torch.float64)]
    net.zero_grad_parameters()
    net.forward(input)
    net.backward(input, grad)
    assert len(list(net.parameters())) == 2
    due = sum(g.t() @ x for g, x in zip(grad, input, strict=True))
    torch.testing.assert_close(net[0].weight.grad, due)


def test_clearing_a_map_table_drops_clones_and_loses_no_number() -> None:
    net = nn.MapTable(nn.Sequential().add(nn.Linear(3, 2)))
    input = [torch.randn(4, 3), torch.randn(3), torch.randn(1, 3)]
    before = [t.clone() for t in net.forward(input)]
    assert len(net) == 3
    assert len(net.clear_state()) == 1
    assert all(torch.equal(a, b) for a, b in zip(net.forward(input), before, strict=True))


def test_a_plain_call_of_a_map_table_makes_no_clones_and_agrees_with_the_protocol() -> None:
    net = nn.MapTable(nn.Linear(3, 2))
    input = [torch.randn(4, 3), torch.randn(3)]
    plain = net(input)
    assert len(net) == 1
    assert all(torch.equal(a, b) for a, b in zip(plain, net.forward(input), strict=True))


def test_map_table_is_resized_filled_and_emptied_as_asked() -> None:
    net = nn.MapTable(nn.Linear(3, 2))
    assert (len(net.resize(4)), len(net.resize(2)), len(net.resize(0))) == (4, 2, 1)
    with pytest.raises(ValueError, match=r"takes one module, and has nn\.Linear"):
        net.add(nn.Tanh())
    net.remove(0)
    with pytest.raises(ValueError, match="has no module"):
        net([torch.ones(3)])
    net.add(nn.Tanh())
    assert net([torch.zeros(2)])[0].tolist() == [0, 0]


def test_modules_of_a_map_table_that_shares_nothing_are_trained_each_for_itself_and_stay() -> None:
    net: Any = nn.MapTable(nn.Linear(3, 2), False).resize(2)
    assert len(list(net.parameters())) == 4
    with torch.no_grad():
        net[1].weight.zero_()
        net[1].bias.zero_()
    input = [torch.randn(3), torch.randn(3)]
    assert net.forward(input)[1].tolist() == [0, 0]
    net.clear_state()
    assert net.forward(input)[1].tolist() == [0, 0]


def test_a_map_table_is_copied_and_saved_in_every_state(tmp_path: Path) -> None:
    net = nn.MapTable(nn.Linear(3, 2))
    input = [torch.randn(3), torch.randn(3)]
    for state in ("fresh", "used", "cleared"):
        if state == "used":
            net.forward(input)
        if state == "cleared":
            net.clear_state()
        due = net(input)
        for again in (copy.deepcopy(net), roundtrip(net, tmp_path)):
            assert len(list(again.parameters())) == 2, state
            assert all(torch.equal(a, b) for a, b in zip(again(input), due, strict=True)), state
    net.forward(input)
    assert set(net.state_dict()) == {"0.weight", "0.bias"}
    net.load_state_dict(net.state_dict())


def roundtrip(net: Any, folder: Path) -> Any:
    cs.save(net, folder / "net.t7")
    return cs.load(folder / "net.t7")


def test_the_file_of_a_map_table_holds_its_module_under_both_of_torch7s_names() -> None:
    net = nn.MapTable(nn.Linear(3, 2))
    net.forward([torch.ones(3), torch.ones(3)])
    net.clear_state()
    state = to_graph(net).state
    assert state["module"] is state["modules"][1]
    assert len(state["modules"]) == 1
    assert state["sharedparams"].array() == ["weight", "bias", "gradWeight", "gradBias"]
    assert state["shared"] is True


@pytest.mark.parametrize(
    "net, fields",
    [
        (nn.Concat(1), {"dimension": 2.0}),
        (nn.DepthConcat(0), {"dimension": 1.0}),
        (nn.Parallel(0, 1), {"inputDimension": 1.0, "outputDimension": 2.0}),
    ],
    ids=["Concat", "DepthConcat", "Parallel"],
)
def test_dimensions_count_from_one_in_files(net: Any, fields: dict[str, Any]) -> None:
    graph = to_graph(net)
    assert {name: graph.state.get(name) for name in fields} == fields
    again = to_live(graph)
    assert {f.attribute: getattr(again, f.attribute) for f in net.fields.values()} == {
        f.attribute: getattr(net, f.attribute) for f in net.fields.values()
    }


@pytest.mark.parametrize("net", [nn.Concat(1), nn.DepthConcat(1), nn.Parallel(0, 1)], ids=str)
def test_an_old_container_s_field_size_does_not_hide_the_method_of_today(net: nn.Container) -> None:
    graph = to_graph(net.add(nn.Identity()))
    assert "size" not in graph
    graph["size"] = t7.Storage.of("torch.LongStorage", [2, 6])
    read = to_live(graph)
    assert read.size() == 1
    assert "size" not in to_graph(read)


def data_parallel(version: int = 3) -> t7.Object:
    """A file of a model copied to three GPUs, as cunn wrote it."""
    model = to_graph(nn.Linear(4, 3))
    gpus = t7.Table.of([2.0, 1.0, 3.0])
    state = t7.Table()
    state["modules"] = t7.Table.of([model] * (3 if version < 2 else 1))
    state["dimension"] = 1.0
    state["gpuAssignments"] = gpus
    state["typeStr"] = "torch.CudaTensor"
    state["flattenParams"] = True
    state["usenccl"] = False
    state["impl"] = t7.Object("nn.DataParallelTable.Basic", t7.Table(), version=1)
    return t7.Object("nn.DataParallelTable", state, version=version, header=gpus if version > 1 else None)


@pytest.mark.parametrize("version", [1, 3])
def test_a_model_copied_to_gpus_loads_as_the_one_model_and_is_written_as_one_copy(version: int, tmp_path: Path) -> None:
    net = to_live(data_parallel(version))
    assert len(net) == 1
    x = torch.randn(5, 4)
    assert torch.equal(net(x), net[0](x))
    assert str(net) == "DataParallelTable: 1 x nn.Linear(4 -> 3)"
    cs.save(net, tmp_path / "one.t7")
    graph = t7.load(tmp_path / "one.t7")
    assert isinstance(graph, t7.Object)
    assert graph.version == 3
    assert graph.header.array() == [2.0]
    assert graph.state["gpuAssignments"].array() == [2.0]
    assert len(graph.state["modules"]) == 1
    assert torch.equal(roundtrip(net, tmp_path)(x), net(x))


@pytest.mark.parametrize("kind", ["Concat", "DepthConcat", "ConcatTable", "MapTable", "Parallel", "ParallelTable"])
def test_containers_compile_without_a_break(kind: str) -> None:
    make: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
        "Concat": lambda: (nn.Concat(1).add(nn.Linear(4, 3)).add(nn.Linear(4, 2)), torch.randn(5, 4)),
        "DepthConcat": lambda: (nn.DepthConcat(1).add(Window(3, 3)).add(Window(2, 1)), torch.randn(1, 2, 4, 4)),
        "ConcatTable": lambda: (nn.ConcatTable().add(nn.Linear(4, 3)).add(nn.Identity()), torch.randn(5, 4)),
        "MapTable": lambda: (nn.MapTable(nn.Linear(4, 3)), [torch.randn(5, 4), torch.randn(2, 4)]),
        "Parallel": lambda: (nn.Parallel(0, 0).add(nn.Linear(4, 3)).add(nn.Linear(4, 2)), torch.randn(2, 4)),
        "ParallelTable": lambda: (nn.ParallelTable().add(nn.Tanh()).add(nn.Tanh()), [torch.randn(2), torch.randn(3)]),
    }
    net, input = make[kind]()
    torch._dynamo.reset()  # its limit of compilations is for all tests together
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    got, due = compiled(input), net(input)
    for a, b in zip(*((v if isinstance(v, list) else [v]) for v in (got, due)), strict=True):
        torch.testing.assert_close(a, b)


def doubles(*size: int) -> Tensor:
    return torch.randn(size, dtype=torch.float64)


@pytest.mark.parametrize(
    "make, input",
    [
        (lambda: nn.DepthConcat(1).add(nn.Linear(4, 3)).add(nn.Linear(4, 2)), doubles(2, 4)),
        (lambda: nn.DataParallelTable(0).add(nn.Linear(4, 3), [0, 1]), doubles(2, 4)),
        (lambda: nn.MapTable(nn.MapTable(nn.Linear(4, 3))), [[doubles(4)], [doubles(4), doubles(2, 4)]]),
        (lambda: nn.MapTable(nn.Linear(4, 3), False).resize(2), [doubles(4), doubles(2, 4)]),
    ],
)
def test_containers_without_a_recording_keep_the_promises(make: Callable[[], nn.Module], input: Any) -> None:
    net = make().double()
    check_promises(net, input)
    check_io(net, input)
    check_gradients(net, input)
