"""The catalog knows every class of the recordings, says one thing of each field, and users add classes in one line."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearstate import catalog
from clearstate.formats import t7
from clearstate.formats.t7.codec.objects import Object, Storage, Table, Tensor, Value
from clearstate.formats.t7.meaning import classes
from clearstate.formats.t7.meaning.clearing import clear, not_cleared
from clearstate.formats.t7.meaning.comparing import compare
from clearstate.formats.t7.meaning.survey import survey
from clearstate.roles import DROPPED_BY_DEFAULT, Role
from tests.recordings import CASES, PACKS, PUBLIC, RECORDED, case, paths
from tests.recordings import names as of

NN = """
Abs AbsCriterion Add AddConstant BCECriterion BatchNormalization Bilinear CAddTable CAddTensorTable CDivTable
CMaxTable CMinTable CMul CMulTable CReLU CSubTable Clamp ClassNLLCriterion ClassSimplexCriterion Collapse Concat
ConcatTable Container Contiguous Copy Cosine CosineDistance CosineEmbeddingCriterion Criterion CriterionTable
CrossEntropyCriterion DepthConcat DistKLDivCriterion DistanceRatioCriterion DotProduct Dropout ELU Euclidean Exp
FeatureLPPooling FlattenTable GatedLinearUnit GradientReversal HardShrink HardTanh HingeEmbeddingCriterion
Identity Index IndexLinear JoinTable Kmeans L1Cost L1HingeEmbeddingCriterion L1Penalty LayerNormalization
LeakyReLU Linear LinearWeightNorm Log LogSigmoid LogSoftMax LookupTable MM MSECriterion MV MapTable
MarginCriterion MarginRankingCriterion MaskedSelect Max Maxout Mean Min MixtureTable Module Mul MulConstant
MultiCriterion MultiLabelMarginCriterion MultiLabelSoftMarginCriterion MultiMarginCriterion Narrow NarrowTable
Normalize OneHot PReLU Padding PairwiseDistance Parallel ParallelCriterion ParallelTable PartialLinear Power
PrintSize RReLU ReLU ReLU6 Replicate Reshape Select SelectTable Sequential Sigmoid SmoothL1Criterion
SoftMarginCriterion SoftMax SoftMin SoftPlus SoftShrink SoftSign SparseLinear SpatialAdaptiveAveragePooling
SpatialAdaptiveMaxPooling SpatialAutoCropMSECriterion SpatialAveragePooling SpatialBatchNormalization
SpatialClassNLLCriterion SpatialContrastiveNormalization SpatialConvolution SpatialConvolutionLocal
SpatialConvolutionMM SpatialConvolutionMap SpatialCrossMapLRN SpatialDepthWiseConvolution
SpatialDilatedConvolution SpatialDilatedMaxPooling SpatialDivisiveNormalization SpatialDropout
SpatialFractionalMaxPooling SpatialFullConvolution SpatialFullConvolutionMap SpatialLPPooling SpatialLogSoftMax
SpatialMaxPooling SpatialMaxUnpooling SpatialReflectionPadding SpatialReplicationPadding SpatialSoftMax
SpatialSubSampling SpatialSubtractiveNormalization SpatialUpSamplingBilinear SpatialUpSamplingNearest
SpatialZeroPadding SplitTable Sqrt Square Squeeze StochasticGradient Sum Tanh TanhShrink TemporalConvolution
TemporalDynamicKMaxPooling TemporalMaxPooling TemporalSubSampling Threshold Transpose Unsqueeze UpSampling View
VolumetricBatchNormalization VolumetricConvolution VolumetricDilatedConvolution VolumetricDilatedMaxPooling
VolumetricDropout VolumetricFractionalMaxPooling VolumetricFullConvolution VolumetricMaxPooling
VolumetricMaxUnpooling VolumetricReplicationPadding WeightedEuclidean WeightedMSECriterion WhiteNoise ZeroGrad
ZipTable ZipTableOneToMany
""".split()
"""All classes of nn at its last commit."""

ROOMS = [importlib.import_module(f"clearstate.formats.t7.catalog.{room}") for room in classes._ROOMS]
CRITERIONS = [name for name in CASES if "Criterion" in name or name.startswith("L1Cost")]
GRAPHS = [name for name in CASES if name.startswith("gModule")]
WILD = [path for path in PUBLIC if path.suffix in {".t7", ".net", ".arm"} and "deepmask" not in path.as_posix()]
DOUBLE = "torch.DoubleTensor"


@pytest.fixture
def own_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test declares is forgotten after it."""
    catalog.names()
    for part in ("_own", "_added", "_resolved"):
        monkeypatch.setattr(classes, part, dict(getattr(classes, part)))


def objects(root: Value) -> Iterator[Object]:
    return (piece.value for piece in survey(root).pieces if isinstance(piece.value, Object))


def full(*size: int) -> Tensor:
    """A tensor that work left."""
    count = 1
    for n in size:
        count *= n
    strides = [1] * len(size)
    return Tensor(DOUBLE, size, strides, 0, Storage.of("torch.DoubleStorage", [7.0] * count))


# What is declared.


@pytest.mark.parametrize("name", NN)
def test_every_class_of_nn_is_declared(name: str) -> None:
    assert catalog.lookup(f"nn.{name}") is not None


def test_every_class_of_the_recordings_is_declared() -> None:
    met = {value.typename for path in RECORDED if path.parent.name != "formats" for value in objects(t7.load(path))}
    assert len(met) > 150
    assert sorted(name for name in met if catalog.lookup(name) is None and not name.startswith("torch.")) == []


@pytest.mark.parametrize("name", of(PACKS))
def test_every_class_of_the_recordings_of_dpnn_and_rnn_is_declared(name: str) -> None:
    met = {value.typename for value in objects(t7.load(case(name) / "before.t7"))}
    assert sorted(name for name in met if catalog.lookup(name) is None) == []


def test_every_parent_is_declared() -> None:
    declared = set(catalog.names())
    parents = {name: classes._own[name].parent for name in declared}
    assert {name: parent for name, parent in parents.items() if parent is not None and parent not in declared} == {}
    assert all(classes.is_a(name, str(parent)) for name, parent in parents.items() if parent is not None)
    assert set(classes._added) <= declared


def test_every_class_is_declared_once(own_catalog: None, monkeypatch: pytest.MonkeyPatch) -> None:
    told: Counter[str] = Counter()
    register = classes.register

    def count(name: str, *args: Any, **words: Any) -> None:
        told[name] += 1
        register(name, *args, **words)

    monkeypatch.setattr(classes, "register", count)
    for room in ROOMS:
        importlib.reload(room)
    monkeypatch.undo()
    for room in ROOMS:
        room.register = register  # type: ignore[attr-defined]
    assert len(told) > 250
    assert [name for name, times in told.items() if times > 1] == []


def test_what_a_constructor_leaves_is_said_of_transient_fields_and_of_no_others() -> None:
    for name in catalog.names():
        entry = catalog.lookup(name)
        assert entry is not None
        assert set(entry.transient) == {field for field, role in entry.roles.items() if role is Role.TRANSIENT}, name


@pytest.mark.parametrize("name", of([*CASES, *PACKS]))
def test_no_tensor_of_a_recorded_module_is_of_unknown_role(name: str) -> None:
    for piece in survey(t7.load(case(name) / "before.t7")).pieces:
        if isinstance(piece.value, Tensor):
            assert piece.role is not Role.UNKNOWN, str(piece.path)
            assert piece.evidence == "declared", str(piece.path)


# What clearing leaves of the classes that nn's own recordings of constructors do not show.


@pytest.mark.parametrize("name", of([*CRITERIONS, *GRAPHS, *PACKS]))
def test_criterions_graphs_and_recurrent_nets_keep_no_work(name: str) -> None:
    net = t7.load(case(name) / "before.t7")
    assert clear(net) is net
    assert not_cleared(net) == []
    left = [piece for piece in survey(net).pieces if piece.role is Role.TRANSIENT and isinstance(piece.value, Tensor)]
    assert [str(piece.path) for piece in left if piece.value.numel > 1] == []
    assert compare(net, t7.load(case(name) / "after.t7")) == []


def test_a_class_criterion_is_left_able_to_run_in_torch7() -> None:
    loss = clear(t7.load(case("ClassNLLCriterion-1") / "before.t7"))
    numbers = {name: loss[name].numpy().tolist() for name in ("output_tensor", "total_weight_tensor", "target")}
    assert numbers == {"output_tensor": [0.0], "total_weight_tensor": [1.0], "target": [0]}
    assert loss["target"].typename == "torch.LongTensor"
    assert loss["output"] == 0


def test_a_criterion_table_still_gives_the_gradient_of_its_criterion() -> None:
    inner = Object("nn.MSECriterion", Table(output=2.0, gradInput=full(3), output_tensor=full(1)))
    table = Object("nn.CriterionTable", Table(gradInput=Table.of([inner["gradInput"]]), criterion=inner, output=2.0))
    clear(table)
    assert list(table["gradInput"]) == [1.0]
    assert table["gradInput"][1] is inner["gradInput"]
    assert (inner["gradInput"].size, "output_tensor" in inner, inner["output"]) == ((), False, 0.0)
    again = table["gradInput"]
    assert clear(table)["gradInput"] is again


def test_a_criterion_table_emptied_by_torch7_is_mended() -> None:
    inner = Object("nn.MSECriterion", Table(output=0.0, gradInput=Tensor(DOUBLE)))
    table = Object("nn.CriterionTable", Table(criterion=inner, gradInput=Table()))
    assert clear(table)["gradInput"].array() == [inner["gradInput"]]


def test_a_graph_of_several_outputs_returns_the_input_of_its_last_node() -> None:
    net = clear(t7.load(case("gModule-2") / "before.t7"))
    assert net["output"] is net["outnode"]["data"]["input"]
    assert len(net["output"]) == 0


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_is_as_constructed(name: str) -> None:
    net, fresh = (t7.load(case(name) / f"{state}.t7") for state in ("before", "fresh"))
    clear(net)
    assert ("output" in net, "gradInput" in net) == ("output" in fresh, "gradInput" in fresh)
    for nodes in ("forwardnodes", "backwardnodes"):
        ours, theirs = net[nodes].array(), fresh[nodes].array()
        assert [sorted(node["data"]) for node in ours] == [sorted(node["data"]) for node in theirs]
        assert all(len(node["data"].get("input", ())) == 0 for node in ours)


def test_node_data_goes_even_where_only_another_node_leads_to_it() -> None:
    child = Table(input=Table.of([full(4)]), gradOutput=Table.of([full(4)]), module=Object("nn.Identity", Table()))
    data = Table(mapindex=Table([(1.0, child), (child, 1.0)]), selectindex=1.0, input=Table.of([full(2)]))
    node = Object("nngraph.Node", Table(data=data))
    clear(node)
    assert sorted(child) == ["module"]
    assert (len(data["input"]), data["selectindex"], data["mapindex"][child]) == (0, 1.0, 1.0)


@pytest.mark.parametrize("field", ["outnode", "children"])
@pytest.mark.parametrize("value", [None, "children", 1.0, True, Table(), Object("nn.Identity", Table())], ids=str)
def test_a_graph_whose_last_node_is_not_as_nngraph_makes_it_is_cleared_all_the_same(field: str, value: Any) -> None:
    net: Any = t7.load(case("gModule-2") / "before.t7")
    fields = net.state if field == "outnode" else net["outnode"].state
    fields[field] = value
    if value is None:
        del fields[field]
    held = net["modules"].array()
    assert clear(net)["modules"].array() == held
    assert not any(len(module["output"].size) for module in held if isinstance(module["output"], t7.Tensor))


def test_the_author_s_source_path_goes_with_the_code() -> None:
    net = t7.load(case("gModule-1") / "before.t7")
    labels = [node["data"]["annotations"] for node in net["forwardnodes"].array()]
    clear(net)
    assert all("_debugLabel" in label for label in labels)
    clear(net, {*DROPPED_BY_DEFAULT, Role.CODE})
    assert [list(label) for label in labels] == [[]] * len(labels)


def test_clones_go_and_the_template_stays_wherever_it_stands() -> None:
    template, clone = (Object("nn.Linear", Table(weight=full(2), output=full(2))) for _ in range(2))
    net = Object(
        "nn.Recurrent",
        Table(sharedClones=Table([(1.0, clone), (2.0, template), (3.0, clone)]), recurrentModule=template, step=4.0),
    )
    clear(net)
    assert dict(net["sharedClones"]) == {2.0: template}
    assert (template["weight"].size, template["output"].size, net["step"]) == ((2,), (), 1.0)


def test_without_a_template_the_first_of_the_clones_stays() -> None:
    first, second = (Object("nn.Linear", Table(weight=full(2))) for _ in range(2))
    net = clear(Object("nn.DataParallelTable", Table(modules=Table.of([first, second]))))
    assert net["modules"].array() == [first]


def test_gradients_that_two_fields_share_are_shared_afterwards() -> None:
    x = full(3)
    net = clear(Object("nn.SeqLSTM", Table(gradInput=x, grad_c0=full(2), grad_h0=full(2), grad_x=x)))
    assert net["gradInput"].array() == [net["grad_c0"], net["grad_h0"], net["grad_x"]]
    assert [tensor.size for tensor in net["gradInput"].array()] == [(), (), ()]


def test_a_constructor_s_choice_is_read_from_what_it_left() -> None:
    pair = clear(Object("nn.ReinforceNormal", Table(gradInput=Table.of([full(2), full(2)]))))
    single = clear(Object("nn.ReinforceNormal", Table(gradInput=full(2), stdev=0.1)))
    assert [tensor.size for tensor in pair["gradInput"].array()] == [(), ()]
    assert single["gradInput"].size == ()


def test_a_criterion_stays_of_its_own_type() -> None:
    halves = Table.of([Tensor("torch.FloatTensor"), Tensor("torch.FloatTensor")])
    loss = clear(Object("nn.MarginRankingCriterion", Table(gradInput=halves, dist=full(2))))
    assert [(each.typename, each.size) for each in loss["gradInput"].array()] == [("torch.FloatTensor", (1,))] * 2
    assert "dist" not in loss


# A class of one's own.


def test_the_public_names_are_those_of_the_catalog() -> None:
    for name in catalog.__all__:
        assert getattr(catalog, name) is getattr(classes, name)


def test_a_class_of_one_s_own_is_declared_in_one_line(own_catalog: None) -> None:
    state = Table(query=full(2), scores=full(5), mask=Table.of([full(5)]), output=full(5), heads=4.0)
    net = Object("nn.Sequential", Table(modules=Table.of([Object("my.Pointer", state)])))
    assert "scores" in str(survey(Object("my.Pointer", Table(state, gradInput=full(1)))).undeclared)
    catalog.register("my.Pointer", transient="scores, mask", parameter="query")
    clear(net)
    assert (state["query"].size, state["scores"].size, state["output"].size) == ((2,), (), ())
    assert (len(state["mask"]), state["heads"]) == (0, 4.0)
    assert survey(net).undeclared == {}


def test_a_class_of_one_s_own_may_say_what_its_constructor_leaves(own_catalog: None) -> None:
    left = catalog.tensor("seen", "torch.LongTensor") | catalog.value("steps", 0) | catalog.absent("late")
    catalog.register("my.Cache", "nn.Linear", transient=left)
    net = clear(Object("my.Cache", Table(seen=full(3), steps=9.0, late=full(3), weight=full(3))))
    assert (net["seen"].typename, net["seen"].size, net["steps"], "late" in net) == ("torch.LongTensor", (), 0.0, False)
    assert net["weight"].size == (3,)


def test_a_field_moves_to_the_role_that_a_class_gives_it(own_catalog: None) -> None:
    catalog.register("my.Memory", buffer="output")
    entry = catalog.lookup("my.Memory")
    assert entry is not None
    assert entry.roles["output"] is Role.BUFFER
    assert "output" not in entry.transient
    assert clear(Object("my.Memory", Table(output=full(3))))["output"].size == (3,)


def test_fields_are_added_to_a_class_and_to_those_that_inherit_from_it(own_catalog: None) -> None:
    catalog.extend("nn.Module", transient=catalog.absent("my_cache"))
    assert "my_cache" not in clear(Object("nn.Linear", Table(my_cache=full(3), weight=full(1))))


@pytest.mark.parametrize("words", [{"weights": "scale"}, {"Parameter": "scale"}, {"transients": "x"}])
def test_a_word_that_is_no_role_is_refused(own_catalog: None, words: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=re.escape(next(iter(words)))):
        catalog.register("my.Scale", None, **words)
    assert catalog.lookup("my.Scale") is None


@pytest.mark.parametrize("words", [{"transient": "a b", "buffer": "b"}, {"parameter": "b", "constant": "b"}])
def test_a_field_in_two_roles_is_refused(own_catalog: None, words: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"my\.Twice: the field b is named in two roles"):
        catalog.register("my.Twice", None, **words)


@pytest.mark.parametrize(
    "lua, python",
    [
        ("nInputPlane", "n_input_plane"),
        ("kW", "kw"),
        ("dH", "dh"),
        ("padW", "pad_w"),
        ("gradInput", "grad_input"),
        ("fgradInput", "fgrad_input"),
        ("_gradOutput", "_grad_output"),
        ("running_mean", "running_mean"),
        ("weight", "weight"),
        ("sizeAverage", "size_average"),
        ("nOutputPlane", "n_output_plane"),
        ("ceil_mode", "ceil_mode"),
        ("inplace", "inplace"),
    ],
)
def test_lua_names_become_python_names(lua: str, python: str) -> None:
    assert classes.snake_case(lua) == python


@pytest.mark.parametrize("path", paths(WILD))
def test_published_files_are_cleared_once_and_for_all(path: Path) -> None:
    net = t7.load(path)
    clear(net)
    assert not_cleared(net) == []
