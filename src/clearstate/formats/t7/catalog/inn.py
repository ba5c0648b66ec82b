"""inn (imagine-nn): pooling of regions, fixed affine layers, and old names of nn's pooling layers."""

from ..meaning.classes import absent, register, table, tensor, value

register("inn.SpatialMaxPooling", "nn.SpatialMaxPooling")
register("inn.SpatialAveragePooling", "nn.SpatialAveragePooling")
register("inn.SpatialStochasticPooling", "nn.SpatialMaxPooling")
register("inn.SpatialCrossResponseNormalization", "nn.SpatialCrossMapLRN")
register("inn.SpatialSameResponseNormalization", "nn.Sequential")
register("inn.LocalResponseNormalization")
register("inn.SpatialPyramidPooling", "nn.Concat", transient=value("dimension", 1))
register("inn.MeanSubtraction", constant="mean")
register("inn.ConstAffine", constant="a b")
register("inn.SpatialConstAffine", constant="a b")
register("inn.ROIPooling", transient=table("gradInput") | tensor("indices") | absent("gradInput_boxes gradInput_rois"))
register("inn.ROIWarping", transient=table("gradInput") | absent("delta_rois"))
register(
    "inn.ROIWarpingGridGenerator",
    constant="baseGrid batchGrid",
    transient=table("output_tmp gradInput") | absent("delta_rois gradInput_rois gradInput_delta_rois"),
)
register(
    "inn.ROIWarpingBilinearSample",
    transient=table("gradInput")
    | absent("output_buffer gradInput_data gradInput_grid_ctrs gradInput_grid_ctrs_buffer gradInput_bin_sizes")
    | absent("gradInput_bin_sizes_buffer gradInput_roi_batch_inds"),
)
