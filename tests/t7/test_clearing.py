"""What clear_state promises, judged by what Torch7 recorded: as constructed, references survive, nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import clearstate as cs
from clearstate import catalog
from clearstate.formats import t7
from clearstate.formats.t7 import Function, Object, Storage, Table, Tensor
from clearstate.formats.t7.codec.objects import Value
from clearstate.formats.t7.meaning import classes
from clearstate.formats.t7.meaning.survey import survey
from clearstate.roles import Role
from tests.recordings import CASES, DIGITS, PACKS, case, names
from tests.t7.graphs import storages, tensors

EVERY = names([*CASES, *PACKS])
FIRST_ELEMENT_WRITTEN = {"_ones", "output_tensor", "total_weight_tensor", "target", "gradInput"}
NEVER_RESIZED = {"_norm", "_scale", "inShape", "outShape"}
NO_METHOD = ("Collapse-", "MapTable-", "WhiteNoise-")
"""Cases of classes whose clearState returned nothing, so there is no ``after.t7``."""
CONSTRUCTED = [n for n in [*CASES, *PACKS] if n.startswith(("gModule", "packs/")) and (case(n) / "fresh.t7").is_file()]
"""Cases whose ``fresh.t7`` is the module; elsewhere it is the input."""
CHOSEN_BY_USE = {"rho", "shouldScaleGradByFreq", "constant_scalar"}
"""Settings that a first forward fills in; no buffer depends on them."""


def before(name: str) -> Value:
    return t7.load(case(name) / "before.t7")


def side_by_side(*roots: Value) -> Iterator[tuple[str, tuple[Value, ...]]]:
    """Each place of the first graph, by path, with what the others have at the same path; the catalog is not asked."""
    stack: list[tuple[str, tuple[Value, ...]]] = [("", roots)]
    seen = set()
    while stack:
        path, values = stack.pop()
        yield path, values
        first = values[0]
        if not isinstance(first, Object | Table) or id(first) in seen:
            continue
        seen.add(id(first))
        tables = [v.fields if isinstance(v, Object) else v if isinstance(v, Table) else Table() for v in values]
        stack += [
            (f"{path}.{key}", tuple(t.get(key) for t in tables)) for key in tables[0] if isinstance(key, str | float)
        ]


def last(path: object) -> str:
    return str(path).rpartition(".")[2].partition("[")[0]


def filled(value: Value) -> bool:
    return isinstance(value, Tensor) and value.numel > 0


def tensors_in(value: Value) -> list[Tensor]:
    return [v for _, (v,) in side_by_side(value) if filled(v)]


def contents(tensor: Tensor) -> tuple[tuple[int, ...], bytes]:
    return tensor.size, tensor.numpy().tobytes()


def full(typename: str = "torch.DoubleTensor", count: int = 4) -> Tensor:
    return Tensor.of(np.full(count, 7), typename)


# Every class that Torch7 recorded.


@pytest.mark.parametrize("name", EVERY)
def test_no_tensor_that_work_left_stays(name: str) -> None:
    found = survey(cs.clear_state(before(name)))
    assert found.undeclared == {}
    for piece in found.pieces:
        if not isinstance(piece.value, Tensor | Storage):
            continue
        assert piece.role is not Role.UNKNOWN, str(piece.path)
        if piece.role is Role.TRANSIENT and isinstance(piece.value, Tensor) and piece.value.numel:
            field = last(piece.path)
            one = field in FIRST_ELEMENT_WRITTEN and piece.value.numel == 1
            assert one or (field in NEVER_RESIZED and not piece.value.numpy().any()), str(piece.path)


@pytest.mark.parametrize("name", EVERY)
def test_the_model_is_bit_for_bit_what_it_was(name: str) -> None:
    old = before(name)
    cleared = cs.clear_state(before(name))
    assert t7.compare(old, cleared) == []
    recorded = t7.load(case(name) / "io.t7")
    kept = {contents(t) for t in tensors_in(cleared)}
    derived = name.startswith("WeightNorm-")  # its `gradV` is made of the wrapped layer's gradient when asked for
    for field in ("parameters",) if derived else ("parameters", "gradParameters"):
        for tensor in (recorded.get(field) or Table()).values():
            if filled(tensor):
                assert contents(tensor) in kept


@pytest.mark.parametrize("name", names(n for n in [*CASES, *PACKS] if not n.startswith(NO_METHOD)))
def test_what_torch7_keeps_of_the_model_is_kept_and_what_it_empties_is_empty(name: str) -> None:
    theirs = t7.load(case(name) / "after.t7")
    ours = cs.clear_state(before(name))
    assert t7.compare(theirs, ours) == []
    for path, (was, cleared_by_torch7, cleared) in side_by_side(before(name), theirs, ours):
        if filled(was) and not filled(cleared_by_torch7):
            assert not filled(cleared), path


@pytest.mark.parametrize("name", names(CONSTRUCTED))
def test_every_field_is_as_the_constructor_left_it(name: str) -> None:
    for path, (fresh, cleared) in side_by_side(t7.load(case(name) / "fresh.t7"), cs.clear_state(before(name))):
        if last(path) in ("output", "gradInput") and not filled(cleared):
            continue  # a constructor may run forward, or size its output; the next forward does so again
        assert type(fresh) is type(cleared), path
        if isinstance(fresh, Tensor):
            assert (fresh.typename, fresh.size) == (cleared.typename, cleared.size), path
        elif isinstance(fresh, Storage):
            made = [v if v < 2**31 else 0 for v in fresh.numpy().tolist()]  # Torch7 leaves memory as it was there
            assert made == cleared.numpy().tolist(), path
        elif isinstance(fresh, Object):
            assert {str(k) for k in fresh.fields} == {str(k) for k in cleared.fields} - (
                CHOSEN_BY_USE - {"rho"} - fresh.fields.keys()
            ), path
        elif isinstance(fresh, Table):
            assert len(fresh) == len(cleared), path
        elif last(path) not in CHOSEN_BY_USE:
            assert fresh == cleared, path


@pytest.mark.parametrize("name", EVERY)
def test_a_second_call_changes_nothing(name: str) -> None:
    cleared = cs.clear_state(before(name))
    once = t7.dumps(cleared)
    assert t7.not_cleared(cleared) == []
    assert cs.clear_state(cleared) is cleared
    assert t7.dumps(cleared) == once
    assert cs.inspect(cleared).by_role().get(Role.SLACK) is None


# References survive.


def test_the_caller_s_input_that_an_output_aliases_is_not_touched() -> None:
    image = full()
    net = Object("nn.Identity", Table(output=image, gradInput=Table.of([image])))
    root = cs.clear_state(Table(net=net, image=image))
    assert root["image"] is image
    assert image.numpy().tolist() == [7.0] * 4
    assert net["output"] is not image
    assert net["output"].numel == 0


def test_a_table_of_the_caller_that_an_output_aliases_is_not_touched() -> None:
    pair = Table.of([full(), full()])
    root = cs.clear_state(Table(net=Object("nn.ConcatTable", Table(output=pair)), pair=pair))
    assert [t.numel for t in root["pair"].array()] == [4, 4]
    assert len(root["net"]["output"]) == 0


def test_a_storage_that_an_output_shares_with_the_caller_s_tensor_stays_whole() -> None:
    image = full(count=6)
    window = Tensor(image.typename, (2,), (1,), 2, image.storage)
    root = cs.clear_state(Table(net=Object("nn.Narrow", Table(output=window)), image=image))
    assert root["image"].numpy().tolist() == [7.0] * 6
    assert window.storage is image.storage


def test_parameters_that_transient_fields_alias_stay() -> None:
    weight, bias = full(), full(count=2)
    weight_view = Tensor(weight.typename, (2, 2), (2, 1), 0, weight.storage)
    net = Object("nn.CMul", Table(_weight=weight_view, output=weight, weight=weight, bias=bias, _expand=bias))
    cs.clear_state(net)
    assert net["weight"] is weight
    assert net["bias"] is bias
    assert weight.numpy().tolist() == [7.0] * 4
    assert set(net.state) == {"output", "weight", "bias"}


def test_shared_parameters_stay_shared_in_memory_and_in_the_file() -> None:
    weight, storage = full(), full(count=8)
    views = [Tensor(weight.typename, (4,), (1,), offset, storage.storage) for offset in (0, 2)]
    nets = [Object("nn.Linear", Table(weight=weight, bias=view, output=full())) for view in views]
    root = Object("nn.Sequential", Table(modules=Table.of([*nets, nets[0]]), output=nets[1]["output"]))
    cs.clear_state(root)
    for net in (root, t7.loads(t7.dumps(root))):
        first, second, again = net["modules"].array()
        assert first is again
        assert first["weight"] is second["weight"]
        assert first["bias"].storage is second["bias"].storage
        assert second["bias"].offset - first["bias"].offset == 2
        assert len(first["bias"].storage) == 6


# Models are found wherever they are.


def test_a_model_in_a_table_is_found_and_the_optimizer_s_state_goes() -> None:
    model = Object("nn.Linear", Table(weight=full(), gradWeight=full(), output=full()))
    state = Table(learningRate=0.1, evalCounter=3.0, dfdx=full())
    root = cs.clear_state(Table(model=model, opt=state, epoch=12.0))
    assert model["output"].numel == 0
    assert filled(model["weight"])
    assert filled(model["gradWeight"])
    assert (root["epoch"], root["opt"]) == (12.0, state)
    assert dict(state) == {"learningRate": 0.1, "evalCounter": 3.0}


def test_a_class_nobody_declared_is_cleared_by_the_names_nn_uses_and_reported() -> None:
    def build() -> Object:
        fields = {name: full() for name in ("output", "gradInput", "buffer", "weight", "scores")}
        return Object("my.Attention", Table(fields))

    net = cs.clear_state(build())
    assert {name for name, value in net.state.items() if filled(value)} == {"weight", "scores"}
    rule, kept = cs.inspect(net).notes
    assert "my.Attention is not in the catalog" in rule
    assert "my.Attention: scores" in kept
    (unknown,) = cs.inspect(net).select(Role.UNKNOWN)
    assert (unknown.path, unknown.bytes) == ("scores", 32)


def test_one_line_makes_a_class_of_one_s_own_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.names()
    for part in ("_own", "_resolved"):
        monkeypatch.setattr(classes, part, dict(getattr(classes, part)))
    catalog.register("my.Attention", transient="scores mask", parameter="query")
    net = Object("my.Attention", Table(scores=full(), query=full(), mask=Table.of([full()]), output=full()))
    cs.clear_state(net)
    assert {name for name, value in net.state.items() if filled(value)} == {"query"}
    assert len(net["mask"]) == 0
    assert cs.inspect(net).notes == ()


# What is dropped is chosen.


def trained() -> Object:
    fields = Table(weight=full(), gradWeight=full(), output=full(), reset=Function(b"\x1bLJ"))
    return Object("nn.Linear", Table(fields, _type="torch.DoubleTensor"))


def test_gradients_and_code_stay_unless_they_are_dropped() -> None:
    net = cs.clear_state(trained())
    assert (net["gradWeight"].numel, type(net["reset"])) == (4, Function)
    net = cs.clear_state(trained(), drop=["gradient"])
    assert (net["gradWeight"].numel, net["weight"].numel, type(net["reset"])) == (0, 4, Function)
    net = cs.clear_state(trained(), drop=["code"])
    assert (net["gradWeight"].numel, "reset" in net) == (4, False)


def test_a_role_that_is_kept_is_not_touched() -> None:
    net = cs.clear_state(trained(), keep=["transient"])
    assert net["output"].numpy().tolist() == [7.0] * 4
    root = Table(net=trained(), opt=Table(dfdx=full()))
    cs.clear_state(root, keep=["optimizer"])
    assert filled(root["opt"]["dfdx"])
    assert not filled(root["net"]["output"])
    wide = full(count=9)
    view = Tensor(wide.typename, (2,), (1,), 3, wide.storage)
    net = cs.clear_state(Object("nn.Linear", Table(weight=view)), keep=["slack"])
    assert len(net["weight"].storage) == 9


def test_the_model_itself_cannot_be_dropped() -> None:
    for role in ("parameter", "buffer", "constant", "metadata", "unknown"):
        with pytest.raises(ValueError, match="part of the model"):
            cs.clear_state(trained(), drop=[role])
    with pytest.raises(ValueError, match="no role"):
        cs.clear_state(trained(), drop=["weights"])


# Bytes that no tensor sees.


def test_bytes_that_no_tensor_sees_go() -> None:
    flat = Tensor.of(np.arange(100.0))
    weight = Tensor(flat.typename, (2, 3), (10, 2), 5, flat.storage)
    net = cs.clear_state(Object("nn.Linear", Table(weight=weight)))
    assert net["weight"] is weight
    assert weight.numpy().tolist() == [[5.0, 7.0, 9.0], [15.0, 17.0, 19.0]]
    assert weight.storage is not None
    assert weight.storage.numpy().tolist() == [5.0, 7.0, 9.0, 15.0, 17.0, 19.0]


def test_what_a_flattened_net_s_part_drags_along_goes() -> None:
    flat = Tensor.of(np.arange(1000.0))
    part = Object("nn.Linear", Table(weight=Tensor(flat.typename, (3, 2), (2, 1), 600, flat.storage)))
    part["bias"] = Tensor(flat.typename, (3,), (1,), 606, flat.storage)
    assert len(t7.dumps(part)) > 8000
    assert len(t7.dumps(cs.clear_state(part))) < 600
    assert part["weight"].storage is part["bias"].storage
    assert part["bias"].numpy().tolist() == [606.0, 607.0, 608.0]


@st.composite
def views_of_one_storage(draw: st.DrawFn) -> list[Tensor]:
    storage = draw(storages("torch.DoubleStorage"))
    numbered = Storage.of("torch.DoubleStorage", np.arange(float(len(storage))))
    return draw(st.lists(tensors(numbered), min_size=1, max_size=5))


@given(views_of_one_storage())
def test_overlapping_views_overlap_in_the_same_elements(views: list[Tensor]) -> None:
    old = [view.numpy().copy() for view in views]
    storage = views[0].storage
    assert storage is not None
    seen = len(set(np.concatenate([x.ravel() for x in old])))
    model = Object("nn.Linear", Table(weight=views[0], parts=Table.of(views[1:])))
    cs.clear_state(model)
    assert t7.not_cleared(model) == []
    new = [view.storage for view in views]
    assert all(s is new[0] for s in new)
    for view, values in zip(views, old, strict=True):
        assert np.array_equal(view.numpy(), values)  # every element of the storage was another number
    assert new[0] is not None
    kept = new[0].numpy().tolist()
    assert len(kept) == len(set(kept))  # so equal numbers are still one element
    assert seen <= len(kept) <= len(storage)
    again = t7.loads(t7.dumps(model))
    assert np.array_equal(again["weight"].numpy(), old[0])


@given(st.integers(0, 40), st.integers(1, 6), st.integers(1, 5), st.integers(1, 7))
def test_a_view_alone_keeps_no_more_than_its_elements(offset: int, rows: int, columns: int, gap: int) -> None:
    flat = Tensor.of(np.arange(200.0))
    view = Tensor(flat.typename, (rows, columns), (columns + gap, 1), offset, flat.storage)
    values = view.numpy().copy()
    cs.clear_state(Object("nn.Linear", Table(weight=view)))
    assert view.storage is not None
    assert len(view.storage) == rows * columns
    assert np.array_equal(view.numpy(), values)


# A real file.


def test_a_cleared_net_is_not_larger_than_torch7_s_own(tmp_path: Path) -> None:
    net = DIGITS / "digits.t7"
    done = cs.clear_file(net, tmp_path / "small.t7")
    size = (tmp_path / "small.t7").stat().st_size
    assert size == done.after.size
    assert size <= (DIGITS / "digits-torch7-clearState.t7").stat().st_size
    assert done.after.by_role().keys() <= {Role.PARAMETER, Role.BUFFER, Role.CONSTANT, Role.GRADIENT, Role.METADATA}
    assert cs.verify(net, tmp_path / "small.t7")
    assert cs.verify(DIGITS / "digits-torch7-clearState.t7", tmp_path / "small.t7")


def test_without_gradients_hardly_more_than_the_parameters_is_left(tmp_path: Path) -> None:
    done = cs.clear_file(DIGITS / "digits.t7", tmp_path / "small.t7", drop="gradient")
    roles = done.after.by_role()
    assert Role.GRADIENT not in roles
    assert roles[Role.PARAMETER] == done.before.by_role()[Role.PARAMETER]
    assert done.after.size < 165_000
    assert done.after.size - roles[Role.PARAMETER] - roles.get(Role.BUFFER, 0) < 10_000


def test_a_changed_weight_is_named_by_its_path() -> None:
    old, new = t7.load(DIGITS / "digits.t7"), cs.clear_state(t7.load(DIGITS / "digits.t7"))
    assert cs.verify(old, new)
    path, layer = next((p, v) for p, (v,) in side_by_side(new) if isinstance(v, Object) and filled(v.get("weight")))
    changed: Any = layer["weight"].numpy().copy()
    changed.flat[0] += 1
    layer["weight"] = Tensor.of(changed, layer["weight"].typename)
    verdict = cs.verify(old, new)
    assert not verdict
    (difference,) = verdict.differences
    index = int(float(path.rpartition(".modules.")[2]))
    assert difference.path == f"modules[{index}].weight"
    assert difference.what.startswith(f"1 of {changed.size} elements differ, by at most 1")
