"""Tensors of object graphs go to another device or number type: all of them, sharing kept, and back; and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clearstate as cs
from clearstate.formats import t7
from clearstate.formats.t7 import Object, Storage, Table, Tensor
from clearstate.formats.t7.backends.pairs import objects, walk
from clearstate.formats.t7.backends.types import retype
from tests.recordings import CASES, DIGITS, FORMATS, case, paths
from tests.t7.graphs import graphs
from tests.t7.layers import layer, numbers


@pytest.mark.parametrize("element", ["Byte", "Char", "Short", "Int", "Long", "Half", "Float", "Double"])
def test_tensors_go_to_the_gpu_and_come_back(element: str) -> None:
    tensor = Tensor.of(np.array([1, 2, 3]), f"torch.{element}Tensor")
    one = Object("nn.Constant", Table(value=tensor, _type="torch.DoubleTensor"))
    old = t7.dumps(one)
    cs.convert(one, device="cuda")
    name = f"Cuda{'' if element == 'Float' else element}"
    assert (tensor.typename, tensor.storage.typename) == (f"torch.{name}Tensor", f"torch.{name}Storage")  # type: ignore[union-attr]
    cs.convert(one, device="cpu")
    assert t7.dumps(one) == old


def test_sizes_and_indices_outside_of_modules_stay_off_the_gpu_and_come_off_it() -> None:
    size = Storage.of("torch.LongStorage", [2, 3])
    labels = Tensor.of(np.array([1, 2]))
    whole = Table(net=Object("nn.View", Table(size=size, _type="torch.FloatTensor")), labels=labels, mean=numbers(2))
    cs.convert(whole, device="cuda")
    assert (size.typename, labels.typename) == ("torch.LongStorage", "torch.LongTensor")
    assert whole["mean"].typename == "torch.CudaTensor"
    size.typename, labels.typename = "torch.CudaLongStorage", "torch.CudaLongTensor"
    cs.convert(whole, device="cpu")
    assert (size.typename, labels.typename) == ("torch.LongStorage", "torch.LongTensor")


@pytest.mark.parametrize("dtype, numpy", [("float", "f4"), ("double", "f8"), ("half", "f2")])
def test_numbers_are_cast_and_memory_stays_shared(dtype: Any, numpy: str) -> None:
    flat = Storage.of("torch.DoubleStorage", np.arange(8) / 3)
    a = Tensor("torch.DoubleTensor", (2, 2), (2, 1), 0, flat)
    b = Tensor("torch.DoubleTensor", (6,), (1,), 2, flat)
    whole = Table.of([Object("nn.Linear", Table(weight=a, bias=b, _type="torch.DoubleTensor")), flat])
    cs.convert(whole, dtype=dtype)
    assert a.storage is b.storage is whole[2] is flat
    assert a.numpy().dtype == numpy
    assert np.array_equal(flat.numpy(), (np.arange(8) / 3).astype(numpy))
    assert whole[1]["_type"] == a.typename == f"torch.{dtype.capitalize()}Tensor"
    again = t7.loads(t7.dumps(whole))
    assert again[1]["weight"].storage is again[1]["bias"].storage is again[2]


def test_a_number_too_large_is_refused_by_its_path_and_nothing_changes() -> None:
    net = Object("nn.Sequential", Table(modules=Table.of([layer("cudnn.Tanh"), layer("nn.Add", bias=numbers(2))])))
    net["modules"][2]["bias"] = Tensor.of(np.array([1.0, 70000.0]))
    before = t7.dumps(net)
    with pytest.raises(cs.ClearstateError, match=r"modules\[2\]\.bias: 70000 is too large for half"):
        cs.convert(net, backend="nn", dtype="half")
    assert t7.dumps(net) == before
    net["modules"][2]["bias"] = Tensor.of(np.array([1.0, np.inf, np.nan]))
    cs.convert(net, backend="nn", dtype="half")
    assert str(net["modules"][2]["bias"].numpy().tolist()) == "[1.0, inf, nan]"


def test_a_gradient_that_was_never_set_does_not_matter() -> None:
    one = layer("nn.Add", bias=numbers(2), gradBias=Tensor.of(np.array([1e300, 2.0])))
    cs.convert(one, dtype="float")
    assert one["gradBias"].numpy().tolist() == [np.inf, 2.0]


def test_batch_normalization_of_cudnn_stays_float_in_a_net_of_halves() -> None:
    flat = Storage.of("torch.FloatStorage", [1, 2, 90000, 4])
    names = ("weight", "bias", "running_mean")
    fields = {name: Tensor("torch.FloatTensor", (1,), (1,), i + 1, flat) for i, name in enumerate(names)}
    norm = layer("nn.SpatialBatchNormalization", affine=True, eps=1e-5, **fields)
    other = layer("nn.Add", bias=Tensor("torch.FloatTensor", (1,), (1,), 0, Storage.of("torch.FloatStorage", [3])))
    cs.convert(Table.of([norm, other]), backend="cudnn", device="cuda", dtype="half")
    assert {norm[name].typename for name in names} | {norm["_type"]} == {"torch.CudaTensor"}
    assert norm["bias"].numpy().tolist() == [90000]
    assert (norm["output"].typename, norm["gradInput"].typename) == ("torch.CudaHalfTensor",) * 2
    assert (other["bias"].typename, other["_type"]) == ("torch.CudaHalfTensor", "torch.CudaHalfTensor")


def test_work_buffers_are_as_each_class_makes_them_on_a_device() -> None:
    lookup = layer("nn.LookupTable", weight=numbers(2, 2))
    pooling = layer("nn.SpatialMaxPooling", indices=Tensor("torch.LongTensor"), output=numbers(3))
    criterion = Object("nn.MSECriterion", Table(gradInput=numbers(3), output=2.0))
    net = Table.of([lookup, pooling, criterion])
    cs.convert(net, device="cuda", dtype="double")
    assert {lookup[n].typename for n in ("_sorted", "_indices", "_count", "_input")} == {"torch.CudaLongTensor"}
    assert (pooling["indices"].typename, pooling["output"].typename) == ("torch.LongTensor", "torch.CudaDoubleTensor")
    assert criterion["gradInput"].typename == "torch.CudaDoubleTensor"
    assert t7.not_cleared(net) == []
    cs.convert(net, device="cpu")
    assert "_sorted" not in lookup
    assert criterion["gradInput"].typename == "torch.DoubleTensor"
    assert t7.not_cleared(net) == []


@pytest.mark.parametrize("name", CASES)
def test_no_tensor_of_a_recorded_module_is_left_off_the_gpu_or_of_another_type(name: str) -> None:
    net = t7.load(case(name) / "before.t7")
    cs.convert(net, device="cuda", dtype="float")
    odd = {value.typename for value in _everything(net) if isinstance(value, Tensor)} - {"torch.CudaTensor"}
    whole = {f"torch.{cuda}{kind}Tensor" for kind in ("Long", "Int", "Byte") for cuda in ("", "Cuda")}
    assert odd <= whole | ({"torch.DoubleTensor"} if name.startswith(("DontCast", "Copy")) else set())
    cs.convert(net, device="cpu", dtype="double")
    assert t7.not_cleared(net) == []


def test_a_module_that_was_on_a_gpu_of_its_own_opens_without_one() -> None:
    inner = layer("nn.Add", bias=numbers(2))
    net = Object("nn.GPU", Table(_type="torch.CudaTensor", modules=Table.of([inner]), device=2.0))
    net.header = Table.of(["torch.CudaTensor", 2])
    net = t7.loads(t7.dumps(net))
    cs.convert(net, device="cpu")
    assert t7.loads(t7.dumps(net)).header.array() == ["torch.FloatTensor", 2]


def test_what_is_not_to_be_cast_keeps_its_type() -> None:
    inner = layer("nn.LookupTable", weight=numbers(2, 2))
    net = Object("nn.DontCast", Table(_type="torch.FloatTensor", modules=Table.of([inner]), castin=True))
    net["moduleType"] = "torch.FloatTensor"
    cs.convert(net, device="cuda", dtype="double")
    assert (inner["weight"].typename, inner["_type"]) == ("torch.FloatTensor", "torch.FloatTensor")
    assert net["moduleType"] == "torch.FloatTensor"
    inner["weight"].typename = net["moduleType"] = "torch.CudaTensor"
    cs.convert(net, device="cpu")
    assert (inner["weight"].typename, net["moduleType"]) == ("torch.FloatTensor", "torch.FloatTensor")


@given(graphs(), st.sampled_from(["cpu", "cuda", None]), st.sampled_from(["float", "double", None]))
@settings(max_examples=150, deadline=None)
def test_any_graph_keeps_its_sharing_and_a_second_time_changes_nothing(root: Any, device: Any, dtype: Any) -> None:
    before = structure(root)
    retype(root, device, dtype)
    assert structure(root) == before
    once = t7.dumps(root)
    assert retype(root, device, dtype) == {}
    assert t7.dumps(root) == once


def structure(root: Any) -> list[Any]:
    """What each thing in a graph is, and for tensors which storage they see where."""
    found: list[Any] = []
    known: dict[int, int] = {}
    for path, edge, _ in walk(root, work=True):
        value = edge.value
        geometry = (value.size, value.stride, value.offset) if isinstance(value, Tensor) else ()
        storage = value.storage if isinstance(value, Tensor) else value if isinstance(value, Storage) else None
        which = None if storage is None else known.setdefault(id(storage), len(known))
        found.append((str(path), type(value).__name__, geometry, which))
    return found


# Files.


@pytest.mark.parametrize("path", paths(FORMATS))
def test_every_variant_of_the_format_is_converted_in_its_own(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "x.t7"
    cs.convert_file(path, target, device="cuda", dtype="float")
    assert cs.inspect(target).kind == cs.inspect(path).kind
    found = [value for value in _everything(t7.load(target)) if isinstance(value, Tensor)]
    assert found
    assert not [t for t in found if t.typename in ("torch.DoubleTensor", "torch.FloatTensor", "torch.CudaDoubleTensor")]


def _everything(root: Any) -> list[Any]:
    return [edge.value for _, edge, _ in walk(root, work=True)]


def test_a_mapped_file_is_cast_as_it_is_written(tmp_path: Path) -> None:
    half, back = tmp_path / "half.t7", tmp_path / "back.t7"
    cs.convert_file(DIGITS / "digits.t7", half, backend="cudnn", device="cuda", dtype="half")
    done = cs.convert_file(half, back, backend="nn", device="cpu", dtype="float")
    assert done.size == (half.stat().st_size, back.stat().st_size)
    old, new = t7.load(DIGITS / "digits.t7"), t7.load(back)
    for path, obj in objects(old):
        for name, tensor in obj.fields.items():
            if isinstance(tensor, Tensor) and name in ("weight", "bias"):
                at = new if path is None else new["modules"][path.key]
                due = tensor.numpy()
                if "BatchNormalization" not in obj.typename:
                    due = due.astype("f2").astype("f4")
                assert np.array_equal(at[name].numpy(), due), path


def test_progress_is_told_in_bytes_up_to_the_end(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    cs.convert_file(
        DIGITS / "digits.t7", tmp_path / "x.t7", device="cuda", dtype="double", progress=lambda *at: told.append(at)
    )
    size = (DIGITS / "digits.t7").stat().st_size
    assert told == sorted(told)
    assert told[-1] == (size, size)


def test_nothing_is_written_where_a_layer_is_refused(tmp_path: Path) -> None:
    old, new = tmp_path / "old.t7", tmp_path / "new.t7"
    t7.save(layer("cudnn.LSTM", weight=numbers(3)), old)
    new.write_bytes(b"older")
    with pytest.raises(cs.CannotConvert, match="the model itself"):
        cs.convert_file(old, new, backend="nn")
    assert new.read_bytes() == b"older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.t7", "old.t7"]
    done = cs.convert_file(old, new, backend="nn", device="cuda", partial=True)
    assert [each.typename for each in done.left] == ["cudnn.LSTM"]
    assert t7.load(new)["weight"].typename == "torch.CudaTensor"


def test_what_is_written_is_compared_with_the_parameters_that_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clearstate.formats.t7.backends import types as backends_types

    old, new = tmp_path / "old.t7", tmp_path / "new.t7"
    t7.save(layer("nn.Linear", weight=numbers(3, 3), bias=numbers(3)), old)
    monkeypatch.setattr(backends_types, "_cast", np.zeros_like)
    with pytest.raises(cs.ClearstateError, match="weight: other numbers"):
        cs.convert_file(old, new, dtype="double")
    assert not new.exists()


def test_a_note_says_that_cudnn_and_halves_want_a_gpu(tmp_path: Path) -> None:
    old, new = tmp_path / "old.t7", tmp_path / "new.t7"
    t7.save(layer("nn.Tanh"), old)
    assert any("GPU" in note for note in cs.convert_file(old, new, backend="cudnn").notes)
    assert not cs.convert_file(old, new, backend="cudnn", device="cuda").notes
    assert any("only stores" in note for note in cs.convert_file(old, new, dtype="half").notes)
