"""Caches that libraries keep on layers go, and the next call makes them; what looks like one and is none stays."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Module, Parameter

import clearstate as cs
from clearstate.live.evidence.libraries import CACHES, CONSTANTS

from .promises import is_in_the_installed_class, size

pytestmark = pytest.mark.filterwarnings("default")  # what libraries warn of is not ours to forbid

LIBRARIES = ("torch_geometric", "gpytorch", "diffusers", "speechbrain")


@pytest.mark.parametrize("name", [name for name in CACHES if name.startswith(LIBRARIES)])
def test_what_is_declared_of_a_class_is_in_the_installed_class(name: str) -> None:
    pytest.importorskip(name.rpartition(".")[0], exc_type=ImportError)
    is_in_the_installed_class(name)


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_is_declared_to_stay_is_in_the_installed_class(name: str) -> None:
    module = pytest.importorskip(name.rpartition(".")[0], exc_type=ImportError)
    cls = getattr(module, name.rpartition(".")[2])
    source = "".join(inspect.getsource(parent) for parent in cls.__mro__ if parent.__module__ != "builtins")
    assert all(f"self.{fixed}" in source for fixed in CONSTANTS[name])


def named(name: str) -> Callable[[Any], Any]:
    """Gives a class the qualified name of one of a library."""

    def rename(cls: Any) -> Any:
        cls.__module__, _, cls.__qualname__ = name.rpartition(".")
        return cls

    return rename


@named("torch_geometric.nn.conv.gcn_conv.GCNConv")
class Graph(Module):
    """A layer that normalizes a graph once, as torch_geometric's do with ``cached=True``."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.cached = Linear(3, 3), True
        self._cached_edge_index: Any = None
        self._cached_adj_t: Any = None

    def forward(self, x: Tensor, edges: Tensor) -> Any:
        cache = self._cached_edge_index
        if cache is None:
            weight = 1 / edges[0].bincount(minlength=len(x)).float()[edges[0]]
            cache = self._cached_edge_index = (edges, weight)
        edges, weight = cache
        return torch.zeros_like(x).index_add(0, edges[1], self.lin(x)[edges[0]] * weight[:, None])


class Derived(Graph):
    """A user's layer."""


EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])


@pytest.mark.parametrize("cls", [Graph, Derived])
def test_a_graph_that_a_layer_keeps_goes_back_to_none_without_a_sample(cls: type[Module]) -> None:
    torch.manual_seed(0)
    model: Any = torch.nn.ModuleList([cls()])
    x = torch.randn(4, 3)
    expected = model[0](x, EDGES)
    found = {e.path: (str(e.role), e.evidence) for e in cs.inspect(model).entries if "_cached" in e.path}
    assert set(found.values()) == {("transient", "declared")}
    with cs.cleared(model) as light:
        assert light[0]._cached_edge_index is None
    assert model[0]._cached_edge_index is not None
    assert cs.clear_state(model)[0]._cached_edge_index is None
    assert torch.equal(model[0](x, EDGES), expected)


@named("gpytorch.kernels.inducing_point_kernel.InducingPointKernel")
class Kernel(Module):
    """Asks by ``hasattr`` for what it has made, as GPyTorch does, and its constructor mentions that."""

    def __init__(self) -> None:
        super().__init__()
        self.inducing_points = Parameter(torch.ones(2, 2))
        self._clear_cache()

    def _clear_cache(self) -> None:
        if hasattr(self, "_cached_kernel_mat"):
            del self._cached_kernel_mat

    def forward(self, x: Tensor) -> Any:
        if not hasattr(self, "_cached_kernel_mat"):
            self._cached_kernel_mat = self.inducing_points.detach() * 2
        return x @ self._cached_kernel_mat


def test_what_a_class_asks_for_by_hasattr_is_not_there_afterwards() -> None:
    model, x = Kernel(), torch.ones(2, 2)
    expected = model(x)
    cs.clear_state(model)
    assert not hasattr(model, "_cached_kernel_mat")
    assert torch.equal(model(x), expected)


class Strategy:
    def __init__(self, likelihood: Module, targets: Tensor) -> None:
        self.likelihood, self.mean_cache = likelihood, targets * 2


@named("gpytorch.models.exact_gp.ExactGP")
class Process(Module):
    """What it was trained on is the model; its strategy is a cache, save where another process gave it one."""

    def __init__(self) -> None:
        super().__init__()
        self.likelihood = Linear(1, 1)
        self.train_inputs, self.train_targets = (torch.ones(3, 1),), torch.ones(3)
        self.prediction_strategy: Any = None

    def forward(self, x: Tensor) -> Any:
        if self.prediction_strategy is None:
            self.prediction_strategy = Strategy(self.likelihood, self.train_targets)
        return x * self.prediction_strategy.mean_cache


@named("gpytorch.variational._variational_strategy._BaseExactGP")
class Overwritten(Process):
    """Its strategy is changed by hand."""


def test_a_strategy_of_a_process_goes_and_its_data_stays() -> None:
    model = Process()
    expected = model(torch.ones(3))
    with cs.cleared(model) as light:
        assert light.prediction_strategy is None
    cs.clear_state(model)
    assert model.prediction_strategy is None
    assert torch.equal(model.train_inputs[0], torch.ones(3, 1))
    assert torch.equal(model(torch.ones(3)), expected)


@pytest.mark.parametrize("way", ["given", "overwritten"])
def test_a_strategy_that_the_process_would_not_make_itself_stays(way: str) -> None:
    model = Overwritten() if way == "overwritten" else Process()
    model(torch.ones(3))
    strategy = model.prediction_strategy
    strategy.mean_cache = torch.randn(3)
    if way == "given":
        strategy.likelihood = copy.deepcopy(model.likelihood)
    cs.clear_state(model)
    with cs.cleared(model) as light:
        assert light.prediction_strategy is strategy
    assert model.prediction_strategy is strategy
    (entry,) = [e for e in cs.inspect(model).entries if "mean_cache" in e.path]
    said = ("constant", "declared") if way == "overwritten" else ("unknown", "at work")
    assert (str(entry.role), entry.evidence) == said


CONVOLUTIONS: dict[str, Callable[[Any], Module]] = {
    "GCNConv": lambda nn: nn.GCNConv(8, 8, cached=True),
    "SGConv": lambda nn: nn.SGConv(8, 8, K=2, cached=True),
    "SSGConv": lambda nn: nn.SSGConv(8, 8, 0.1, 2, cached=True),
    "APPNP": lambda nn: nn.APPNP(2, 0.1, cached=True),
    "GCN2Conv": lambda nn: nn.GCN2Conv(8, 0.1, cached=True),
    "DNAConv": lambda nn: nn.DNAConv(8, cached=True),
    "EGConv": lambda nn: nn.EGConv(8, 8, cached=True),
    "EGConv without norm": lambda nn: nn.EGConv(8, 8, aggregators=["max"], cached=True),
    "FAConv": lambda nn: nn.FAConv(8, cached=True, dropout=0.0),
    "ClusterGCNConv": lambda nn: nn.ClusterGCNConv(8, 8),
    "SuperGATConv": lambda nn: nn.SuperGATConv(8, 8, neg_sample_ratio=0.5, edge_sample_ratio=1.0),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_layer_of_torch_geometric_is_as_before_its_first_forward_and_gives_the_same(name: str, grad: bool) -> None:
    nn: Any = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    model: Any = CONVOLUTIONS[name](nn)
    model.train(name == "SuperGATConv")
    x = torch.randn(2, 4, 8)[0]
    inputs: tuple[Any, ...] = (x.view(4, 1, 8), EDGES) if name == "DNAConv" else (x, EDGES)
    inputs = (x, x, EDGES) if name in ("FAConv", "GCN2Conv") else inputs
    before = size(model)
    with torch.set_grad_enabled(grad):
        expected = model(*inputs)
        assert size(model) > before or name == "ClusterGCNConv"
        assert not [e.path for e in cs.inspect(model).select("unknown")]
        assert size(cs.clear_state(model)) == before
        copy.deepcopy(model)
        assert torch.equal(model(*inputs), expected)


def process(gpytorch: Any, kernel: Callable[[Any, Any], Any]) -> Any:
    class Exact(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, x: Tensor, y: Tensor, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = kernel(gpytorch.kernels, likelihood)

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    torch.manual_seed(0)
    x = torch.linspace(0, 1, 20)[:, None]
    return Exact(x, x.squeeze(-1).sin(), gpytorch.likelihoods.GaussianLikelihood())


KERNELS: dict[str, Callable[[Any, Any], Any]] = {
    "RBF": lambda k, _: k.ScaleKernel(k.RBFKernel()),
    "inducing points": lambda k, likelihood: k.InducingPointKernel(k.RBFKernel(), torch.rand(5, 1), likelihood),
    "grid": lambda k, _: k.GridInterpolationKernel(k.RBFKernel(), grid_size=16, num_dims=1, grid_bounds=[(0, 1)]),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_process_of_gpytorch_predicts_the_same_and_keeps_its_data(kernel: Callable[..., Any], grad: bool) -> None:
    gpytorch: Any = pytest.importorskip("gpytorch")
    model = process(gpytorch, kernel).eval()
    x = torch.linspace(0.1, 0.9, 7)[:, None]
    with torch.set_grad_enabled(grad):
        first = model(x)
        expected = first.mean.detach().clone(), first.variance.detach().clone()
        cs.clear_state(model)
        assert model.prediction_strategy is None
        assert not [e.path for e in cs.inspect(model).select("transient")]
        held = {e.path: str(e.role) for e in cs.inspect(model).entries}
        assert held["train_inputs[0]"] == held["_train_targets"] == "constant"
        copy.deepcopy(model)
        again = model(x)
        assert torch.equal(again.mean, expected[0])
        assert torch.equal(again.variance, expected[1])


def test_a_process_of_gpytorch_that_was_conditioned_on_more_stays_as_it_is() -> None:
    gpytorch: Any = pytest.importorskip("gpytorch")
    model = process(gpytorch, KERNELS["RBF"]).eval()
    x = torch.linspace(0.1, 0.9, 7)[:, None]
    with torch.no_grad():
        _ = model(x).mean
        fantasy = model.get_fantasy_model(torch.tensor([[0.5]]), torch.tensor([2.0]))
        expected = fantasy(x).mean.clone()
        assert cs.clear_state(fantasy).prediction_strategy is not None
        assert torch.equal(fantasy(x).mean, expected)


def variational(gpytorch: Any, name: str) -> Any:
    v = gpytorch.variational

    class Approximate(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            points = torch.linspace(0, 1, 5)[:, None]
            super().__init__(getattr(v, name)(self, points, v.CholeskyVariationalDistribution(5)))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.RBFKernel()
            self.likelihood = gpytorch.likelihoods.GaussianLikelihood()

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    torch.manual_seed(0)
    return Approximate()


STRATEGIES = ["VariationalStrategy", "UnwhitenedVariationalStrategy", "LargeBatchVariationalStrategy"]


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_variational_process_of_gpytorch_gives_the_same_in_training_and_after(name: str, quick: bool) -> None:
    gpytorch: Any = pytest.importorskip("gpytorch")
    model, x = variational(gpytorch, name), torch.linspace(0.1, 0.9, 7)[:, None]
    model.train()
    _ = model(x).mean
    divergence = model.variational_strategy.kl_divergence().detach()
    cs.clear_state(model)
    assert torch.equal(model.variational_strategy.kl_divergence(), divergence)
    cs.clear_state(model.eval())
    copy.deepcopy(model)
    with torch.no_grad(), gpytorch.settings.skip_posterior_variances(quick):
        expected = model(x).mean.clone()
        cs.clear_state(model)
        assert not hasattr(model.variational_strategy, "_memoize_cache")
        assert not [e.path for e in cs.inspect(model).entries if "cache" in e.path]
        assert torch.equal(model(x).mean, expected)


def test_a_process_that_a_variational_one_gave_keeps_what_nobody_can_compute_again() -> None:
    gpytorch: Any = pytest.importorskip("gpytorch")
    model, x = variational(gpytorch, "VariationalStrategy").eval(), torch.linspace(0.1, 0.9, 7)[:, None]
    with torch.no_grad():
        _ = model(x).mean
        fantasy = model.get_fantasy_model(torch.tensor([[0.5]]), torch.tensor([2.0]))
        expected = fantasy(x).mean.clone()
        cs.clear_state(fantasy)
        assert torch.equal(fantasy(x).mean, expected)


def test_rotary_tables_of_diffusers_go() -> None:
    module: Any = pytest.importorskip("diffusers.models.transformers.transformer_anyflow")
    layer = module.AnyFlowRotaryPosEmbed(attention_head_dim=12, patch_size=(1, 2, 2), max_seq_len=16)
    expected = layer._build_freqs(torch.device("cpu")).clone()
    assert [str(e.role) for e in cs.inspect(layer).entries] == ["transient"]
    assert cs.clear_state(layer)._freqs_cache is None
    assert torch.equal(layer._build_freqs(torch.device("cpu")), expected)
