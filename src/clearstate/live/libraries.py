"""Caches of widely used libraries, by the qualified name of their class: no library is imported.

Only what evidence alone cannot decide: tables made without a graph, which the next forward makes anew. States that
carry a sequence on from call to call (recurrent states, offsets of positions between two steps of a generation) are
no caches, and not declared.
"""

from __future__ import annotations

BIASES = "attention_bias_cache"
ROTARY = "cached_rotary_positional_embedding cached_sequence_length"

TRANSFORMERS = {
    "levit.modeling_levit.LevitAttention": BIASES,
    "levit.modeling_levit.LevitAttentionSubsample": BIASES,
    "wav2vec2_conformer.modeling_wav2vec2_conformer.Wav2Vec2ConformerRotaryPositionalEmbedding": ROTARY,
    "wav2vec2_bert.modeling_wav2vec2_bert.Wav2Vec2BertRotaryPositionalEmbedding": ROTARY,
    "seamless_m4t.modeling_seamless_m4t.SeamlessM4TConformerRotaryPositionalEmbedding": ROTARY,
    "clvp.modeling_clvp.ClvpRotaryPositionalEmbedding": ROTARY,
    "mimi.modeling_mimi.MimiEuclideanCodebook": "_embed",
    "ibert.quant_modules.IntLayerNorm": "dim_sqrt",
}

TIMM = {
    "models.levit.Attention": BIASES,
    "models.levit.AttentionDownsample": BIASES,
    "models.efficientformer.Attention": BIASES,
    "models.efficientformer_v2.Attention2d": BIASES,
    "models.efficientformer_v2.Attention2dDownsample": BIASES,
    "models.efficientvit_msra.CascadedGroupAttention": BIASES,
    "models.tiny_vit.Attention": BIASES,
    "loss.asymmetric_loss.AsymmetricLossSingleLabel": "targets_classes",
}

ULTRALYTICS = {
    "nn.modules.head.Detect": "anchors strides shape",
    "nn.modules.head.RTDETRDecoder": "anchors valid_mask shapes",
}

LIGHTNING = {"core.module.LightningModule": "_trainer"}
"""The trainer of a fit that is over, with all that it logged and its data; see `is_at_work`."""

CACHES: dict[str, tuple[str, ...]] = {
    f"{library}.{name}": tuple(caches.split())
    for library, classes in (
        ("transformers.models", TRANSFORMERS),
        ("timm", TIMM),
        ("ultralytics", ULTRALYTICS),
        ("pytorch_lightning", LIGHTNING),
        ("lightning.pytorch", LIGHTNING),
    )
    for name, caches in classes.items()
}
"""For each class, the attributes that its work leaves behind."""


def is_at_work(value: object) -> bool:
    """Whether a value is a trainer of Lightning in the middle of a fit, which needs it on the model.

    >>> is_at_work(None)
    False
    """
    status = getattr(getattr(value, "state", None), "status", None)
    return status is not None and str(getattr(status, "value", status)) == "running"


COUNTERS = frozenset(
    "total_ops total_params __flops__ __params__ __macs__ __duration__ __batch_counter__ __start_time__".split()
)
"""Numbers and buffers that profilers (thop; ptflops, mmengine, DeepSpeed) put on every module and may forget."""

INPUTS = frozenset("xy")
"""The parameters that shap's explainer makes of inputs and outputs of every activation, and forgets on shared ones."""
