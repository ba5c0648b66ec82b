"""Classes of transformers: trained, cleared with a sample, and the same as before their first forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

import clearstate as cs
from clearstate.live.evidence.libraries import CACHES

from .promises import is_in_the_installed_class, keeps_the_promises, run, same, size

pytestmark = pytest.mark.filterwarnings("default")  # what libraries warn of is not ours to forbid


class Case(NamedTuple):
    """A class of transformers, what its configuration says beside the tiny sizes, and the kind of input it takes."""

    name: str
    inputs: str = "ids"
    config: dict[str, Any] = {}  # noqa: RUF012
    without: str = ""
    """Tiny sizes that this configuration refuses; ``*``: all."""

    def model(self, transformers: Any) -> Any:
        """A new one, with weights of the fixed seed."""
        torch.manual_seed(0)
        cls = getattr(transformers, self.name)
        refused = TINY if self.without == "*" else self.without.split()
        sizes = {name: value for name, value in TINY.items() if name not in refused}
        return cls(cls.config_class(**{**sizes, **self.config}))


TINY: dict[str, Any] = {
    "vocab_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    "hidden_size": 16, "d_model": 16, "n_embd": 16, "head_dim": 8, "d_kv": 8,
    "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2, "encoder_layers": 1, "decoder_layers": 1,
    "num_attention_heads": 2, "n_head": 2, "num_key_value_heads": 2, "num_heads": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "intermediate_size": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "d_ff": 32,
    "max_position_embeddings": 64, "image_size": 32, "patch_size": 8,
}  # fmt: skip


def length(n: int) -> Tensor:
    """Token ids of two texts."""
    return torch.arange(3, 3 + 2 * n).remainder(61).view(2, n) + 3


INPUTS: dict[str, Callable[[], dict[str, Tensor]]] = {
    "ids": lambda: {"input_ids": length(6)},
    "pairs": lambda: {"input_ids": length(6), "decoder_input_ids": length(4)},
    "image": lambda: {"pixel_values": torch.randn(2, 3, 32, 32)},
    "image64": lambda: {"pixel_values": torch.randn(2, 3, 64, 64)},
    "sound": lambda: {"input_values": torch.randn(2, 800)},
}

TEXTS = [
    Case(name)
    for name in """BertModel RobertaModel AlbertModel DistilBertModel ElectraModel MobileBertModel DebertaV2Model
    DebertaModel MPNetModel CamembertModel GPTNeoXForCausalLM OPTModel BloomModel LlamaForCausalLM MistralModel
    MixtralModel Qwen2Model Qwen3Model GemmaModel Gemma2Model Gemma3TextModel PhiModel Phi3Model StableLmModel
    CohereModel OlmoModel MambaModel XLMModel CTRLModel EsmModel RoFormerModel FNetModel
    NystromformerModel ErnieModel MegatronBertModel XGLMModel BioGptModel RwkvModel ConvBertModel LayoutLMModel
    FlaubertModel YosoModel MraModel""".split()
]
PAIRS = [Case(name, "pairs") for name in """BartModel MBartModel PegasusModel MarianModel M2M100Model""".split()]
OTHERS = [
    Case("BigBirdModel", config={"attention_type": "original_full"}),
    Case("T5Model", "pairs", without="encoder_layers decoder_layers"),
    Case("MT5Model", "pairs", without="encoder_layers decoder_layers"),
]
STAGES: dict[str, Any] = {"hidden_sizes": [8, 16], "depths": [1, 1], "image_size": 32}
WINDOWS: dict[str, Any] = {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2]}
CONVOLUTIONS: dict[str, Any] = {**STAGES, "embedding_size": 8}
PATCHES: dict[str, Any] = {
    **STAGES, "num_encoder_blocks": 2, "patch_sizes": [7, 3], "strides": [4, 2], "sr_ratios": [2, 1],
    "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 8,
}  # fmt: skip
IMAGES = [
    *(
        Case(name, "image")
        for name in "ViTModel DeiTModel BeitModel Dinov2Model DPTModel ViTMAEModel ViTMSNModel".split()
    ),
    Case("SwinModel", "image", {**WINDOWS, "window_size": 4}, "*"),
    Case("Swinv2Model", "image", {**WINDOWS, "window_size": 4}, "*"),
    Case("DonutSwinModel", "image", {**WINDOWS, "window_size": 4}, "*"),
    Case("MaskFormerSwinModel", "image", {**WINDOWS, "window_size": 4}, "*"),
    Case("FocalNetModel", "image", {**WINDOWS, "focal_levels": [2, 2], "focal_windows": [3, 3]}, "*"),
    Case("ConvNextModel", "image", {**STAGES, "num_stages": 2}, "*"),
    Case("ConvNextV2Model", "image", {**STAGES, "num_stages": 2}, "*"),
    Case("ResNetModel", "image", CONVOLUTIONS, "*"),
    Case("RegNetModel", "image", {**CONVOLUTIONS, "groups_width": 8}, "*"),
    Case("BitModel", "image", {**CONVOLUTIONS, "num_groups": 2}, "*"),
    Case("SegformerModel", "image", PATCHES, "*"),
    Case("PoolFormerModel", "image", {**PATCHES, "padding": [2, 1]}, "*"),
    Case("MobileNetV2Model", "image", {"depth_multiplier": 0.25, "image_size": 32}, "*"),
    Case(
        "LevitModel",
        "image64",
        {
            "image_size": 64,
            "num_attention_heads": [2, 2, 2],
            "depths": [1, 1, 1],
            "hidden_sizes": [16, 24, 32],
            "key_dim": [8, 8, 8],
        },
        "*",
    ),
]
WAVES: dict[str, Any] = {
    "conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2], "num_feat_extract_layers": 2,
    "num_conv_pos_embedding_groups": 2, "num_conv_pos_embeddings": 4, "apply_spec_augment": False, "layerdrop": 0.0,
}  # fmt: skip
SOUNDS = [
    *(
        Case(name, "sound", WAVES)
        for name in "Wav2Vec2Model HubertModel WavLMModel Data2VecAudioModel UniSpeechModel".split()
    ),
    Case("Wav2Vec2ConformerModel", "sound", {**WAVES, "position_embeddings_type": "rotary"}),
    Case("Wav2Vec2ConformerModel", "sound", {**WAVES, "position_embeddings_type": "relative"}),
]
TRANSFORMERS = [*TEXTS, *PAIRS, *OTHERS, *IMAGES, *SOUNDS]


@pytest.mark.parametrize("case", TRANSFORMERS, ids=lambda case: case.name)
def test_a_class_of_transformers_is_as_before_its_first_forward_and_gives_the_same(case: Case) -> None:
    transformers = pytest.importorskip("transformers")
    keeps_the_promises(case.model(transformers), INPUTS[case.inputs]())


@pytest.mark.parametrize("name", [name for name in CACHES if name.startswith("transformers.")])
def test_what_is_declared_of_a_class_is_in_the_installed_class(name: str) -> None:
    pytest.importorskip("transformers")
    is_in_the_installed_class(name)


@pytest.mark.parametrize("name", ["LevitModel", "Wav2Vec2ConformerModel"])
def test_declared_caches_go_without_a_sample(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    case = next(case for case in TRANSFORMERS if case.name == name)
    model, inputs = case.model(transformers).eval(), INPUTS[case.inputs]()
    before = size(model)
    with torch.no_grad():
        expected = run(model, inputs)
        assert size(model) > before
        assert size(cs.clear_state(model)) == before
        assert same(run(model, inputs), expected)
