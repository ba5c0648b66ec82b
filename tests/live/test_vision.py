"""Models of timm and torchvision, where those are installed: as before their first forward, and the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import clearstate as cs
from clearstate.live.evidence.libraries import CACHES

from .promises import is_in_the_installed_class, keeps_the_promises, run, same, size, tensors, train

torchvision = pytest.importorskip("torchvision")
timm = pytest.importorskip("timm")

pytestmark = pytest.mark.filterwarnings("default")  # what libraries warn of is not ours to forbid

TIMM = """levit_128s efficientformerv2_s0 tiny_vit_5m_224 efficientvit_m0 vit_tiny_patch16_224 eva02_tiny_patch14_224
    crossvit_tiny_240 xcit_nano_12_p16_224 pit_ti_224 resnet10t mobilenetv3_small_050 efficientnet_b0 convnext_atto
    pvt_v2_b0 mobilevit_xxs mobileone_s0 repvit_m0_9 fastvit_t8 edgenext_xx_small ghostnet_050 hardcorenas_a
    regnetx_002 dla46_c densenet121 rexnet_100""".split()


@pytest.mark.parametrize("name", TIMM)
def test_a_model_of_timm_is_as_before_its_first_forward_and_gives_the_same(name: str) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=4)
    side = model.default_cfg["input_size"][-1] if model.default_cfg.get("fixed_input_size") else 64
    keeps_the_promises(model, torch.randn(2, 3, side, side))


def test_feature_maps_that_hooks_of_timm_keep_go() -> None:
    model = timm.create_model("vit_tiny_patch16_224", features_only=True)
    keeps_the_promises(model, torch.randn(2, 3, 224, 224))


TORCHVISION = """alexnet mobilenet_v2 mobilenet_v3_small mnasnet0_5 shufflenet_v2_x0_5 squeezenet1_1 regnet_y_400mf
    efficientnet_b0 resnet18 googlenet densenet121""".split()


@pytest.mark.parametrize("name", TORCHVISION)
def test_a_model_of_torchvision_is_as_before_its_first_forward_and_gives_the_same(name: str) -> None:
    torch.manual_seed(0)
    keeps_the_promises(torchvision.models.get_model(name, num_classes=4), torch.randn(2, 3, 64, 64))


SMALL_TRANSFORMERS: dict[str, dict[str, Any]] = {
    "VisionTransformer": {
        "image_size": 32, "patch_size": 8, "num_layers": 1, "num_heads": 2, "hidden_dim": 16, "mlp_dim": 32,
    },
    "SwinTransformer": {
        "patch_size": [4, 4], "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": [4, 4],
    },
    "MaxVit": {
        "input_size": (32, 32), "stem_channels": 8, "partition_size": 2, "block_channels": [8, 16],
        "block_layers": [1, 1], "head_dim": 8, "stochastic_depth_prob": 0.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL_TRANSFORMERS)
def test_a_transformer_of_torchvision_is_as_before_its_first_forward_and_gives_the_same(name: str) -> None:
    torch.manual_seed(0)
    keeps_the_promises(getattr(torchvision.models, name)(**SMALL_TRANSFORMERS[name]), torch.randn(2, 3, 32, 32))


def test_torchvisions_extractor_of_features_is_as_before() -> None:
    model = torchvision.models.resnet18(num_classes=4)
    extractor = torchvision.models.feature_extraction.create_feature_extractor(model, ["layer1", "layer2"])
    inputs = torch.randn(2, 3, 64, 64)
    train(extractor, inputs)
    expected = run(extractor, inputs)
    copy.deepcopy(cs.clear_state(extractor, sample=inputs))
    assert same(run(extractor, inputs), expected)


def test_a_detector_of_torchvision_is_as_before() -> None:
    torch.manual_seed(0)
    model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=3
    ).eval()
    inputs = ([torch.rand(3, 64, 64)],)
    before, expected = size(model), list(tensors(model(*inputs)))
    cs.clear_state(model, sample=inputs)
    assert size(model) == before
    assert same(list(tensors(model(*inputs))), expected)


@pytest.mark.parametrize("name", [name for name in CACHES if name.startswith("timm.")])
def test_what_is_declared_of_a_class_is_in_the_installed_class(name: str) -> None:
    is_in_the_installed_class(name)


@pytest.mark.parametrize("name", ["levit_128s", "efficientformerv2_s0", "tiny_vit_5m_224", "efficientvit_m0"])
def test_declared_caches_go_without_a_sample(name: str) -> None:
    model, inputs = timm.create_model(name, num_classes=4).eval(), torch.randn(1, 3, 224, 224)
    before = size(model)
    with torch.no_grad():
        expected = run(model, inputs)
        assert size(model) > before
        assert size(cs.clear_state(model)) == before
        assert same(run(model, inputs), expected)
