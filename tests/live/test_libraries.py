"""Classes of transformers: trained, cleared with a sample, and the same as before their first forward."""

from __future__ import annotations

import copy
import io
import pickle
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.utils.parametrize import is_parametrized

import clearstate as cs

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


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of an output, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif hasattr(value, "__dict__") and not isinstance(value, torch.nn.Module | type):
        yield from tensors(vars(value))


def run(model: Any, inputs: Any) -> list[Tensor]:
    torch.manual_seed(1)
    return list(tensors(model(**inputs) if isinstance(inputs, dict) else model(inputs)))


def train(model: Any, inputs: Any) -> None:
    loss = sum(t.double().square().mean() for t in run(model.train(), inputs) if t.grad_fn is not None)
    assert isinstance(loss, Tensor)
    loss.backward()  # type: ignore[no-untyped-call]
    model.eval()


class Pickler(pickle.Pickler):
    """Pickles also modules with parametrizations, whose class is made on the fly and refuses it, and their hooks."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch.nn.Module) and is_parametrized(value):
            return object.__new__, (type(value).__base__,), value.__dict__
        if isinstance(value, types.FunctionType) and "<locals>" in value.__qualname__:
            return str, (value.__qualname__,)
        return NotImplemented


def size(model: Any) -> int:
    file = io.BytesIO()
    Pickler(file).dump(model)
    return len(file.getvalue())


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    pairs = zip(ours, theirs, strict=True)
    return all(a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


def keeps_the_promises(model: Any, inputs: Any) -> None:
    """Trains a model, and clears it: nothing but what work left is gone."""
    before = size(model.eval())
    train(model, inputs)
    expected = run(model, inputs)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    assert cs.clear_state(model, sample=inputs) is model
    assert size(model) == before
    assert list(model.state_dict()) == list(state)
    assert all(value.equal(state[name]) for name, value in model.state_dict().items())
    copy.deepcopy(model)
    assert same(run(model, inputs), expected)
    assert same(run(model, inputs), expected)
    train(model, inputs)


@pytest.mark.parametrize("case", TRANSFORMERS, ids=lambda case: case.name)
def test_a_class_of_transformers_is_as_before_its_first_forward_and_gives_the_same(case: Case) -> None:
    transformers = pytest.importorskip("transformers")
    keeps_the_promises(case.model(transformers), INPUTS[case.inputs]())
