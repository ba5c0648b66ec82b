"""Caches of widely used libraries, by the qualified name of their class: no library is imported.

Only what evidence alone cannot decide: tables made without a graph, which the next forward makes anew. States that
carry a sequence on from call to call (recurrent states, offsets of positions between two steps of a generation) are
no caches, and not declared; nor is what chance or the data of a first call made: nothing makes it again.
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

GRAPH = "_cached_edge_index _cached_adj_t"

GEOMETRIC = {
    "appnp.APPNP": GRAPH,
    "dna_conv.DNAConv": GRAPH,
    "eg_conv.EGConv": GRAPH,
    "fa_conv.FAConv": GRAPH,
    "gcn2_conv.GCN2Conv": GRAPH,
    "gcn_conv.GCNConv": GRAPH,
    "sg_conv.SGConv": "_cached_x",
    "ssg_conv.SSGConv": "_cached_h",
    "supergat_conv.SuperGATConv": "att_x att_y",
}

GPYTORCH = {
    "models.exact_gp.ExactGP": "prediction_strategy",
    "kernels.grid_kernel.GridKernel": "-_cached_kernel_mat",
    "kernels.inducing_point_kernel.InducingPointKernel": "-_cached_kernel_mat -_cached_kernel_inv_root",
    "variational._variational_strategy._VariationalStrategy": "-_memoize_cache",
    "variational.unwhitened_variational_strategy.UnwhitenedVariationalStrategy": "-_mean_cache",
    "variational.large_batch_variational_strategy.LargeBatchVariationalStrategy": "-_cached_inv_chol_t_inducing_values "
    "-_cached_middle_term",
}

DIFFUSERS = {
    "transformers.transformer_anyflow.AnyFlowRotaryPosEmbed": "_freqs_cache",
    "transformers.transformer_anyflow_far.AnyFlowCausalRotaryPosEmbed": "_freqs_cache",
    "transformers.transformer_wan_animate_2.WanAnimate2Transformer3DModel": "block_masks rope_freqs_cache",
}

SPEECHBRAIN = {
    "decoders.seq2seq.S2SWhisperGreedySearcher": "kv_cache",
    "decoders.seq2seq.S2SWhisperBeamSearcher": "kv_cache",
}

LIGHTNING = {"core.module.LightningModule": "_trainer"}
"""The trainer of a fit that is over, with all that it logged and its data; see `is_in_use`."""

DECLARED = {
    f"{library}.{name}": caches.split()
    for library, classes in (
        ("transformers.models", TRANSFORMERS),
        ("timm", TIMM),
        ("ultralytics", ULTRALYTICS),
        ("torch_geometric.nn.conv", GEOMETRIC),
        ("gpytorch", GPYTORCH),
        ("diffusers.models", DIFFUSERS),
        ("speechbrain", SPEECHBRAIN),
        ("pytorch_lightning", LIGHTNING),
        ("lightning.pytorch", LIGHTNING),
    )
    for name, caches in classes.items()
}
"""For each class, what its work leaves behind; with a dash, what is not there before: the class asks by ``hasattr``."""

CACHES: dict[str, tuple[str, ...]] = {
    name: tuple(cache.removeprefix("-") for cache in caches) for name, caches in DECLARED.items()
}
"""For each class, the attributes that its work leaves behind."""

ABSENT: dict[str, frozenset[str]] = {
    name: frozenset(cache.removeprefix("-") for cache in caches if cache.startswith("-"))
    for name, caches in DECLARED.items()
}
"""Those of them that no constructor makes."""

CONSTANTS = {
    "gpytorch.models.exact_gp.ExactGP": ("train_inputs", "_train_targets"),
    "gpytorch.variational._variational_strategy._BaseExactGP": ("prediction_strategy",),
    "gpytorch.utils.nearest_neighbors.NNUtil": ("train_n", "train_neighbors"),
    "botorch.models.likelihoods.sparse_outlier_noise.SparseOutlierNoise": ("_cached_train_inputs",),
    "torch_geometric.nn.conv.wl_conv.WLConv": ("hashmap",),
}
"""What looks like a cache and is the model: the data it was trained on; a strategy that is changed by hand."""


COUNTERS = frozenset(
    "total_ops total_params __flops__ __params__ __macs__ __duration__ __batch_counter__ __start_time__".split()
)
"""Numbers and buffers that profilers (thop; ptflops, mmengine, DeepSpeed) put on every module and may forget."""

INPUTS = frozenset("xy")
"""The parameters that shap's explainer makes of inputs and outputs of every activation, and forgets on shared ones."""
