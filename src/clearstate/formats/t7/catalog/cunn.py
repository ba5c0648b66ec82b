"""cunn: a net copied to several GPUs. The first copy is the model; the others, and each one's share of a batch, go."""

from ..meaning.classes import absent, clones, emptied, register, table, value

# `flattenedParams` are views of the parameters that the next forward makes again; `modules` holds more than the model
# in files of class version 0 and 1 only. Names with `_gpu` are those of the first versions.
register(
    "nn.DataParallelTable",
    "nn.Container",
    transient=table("inputGpu outputGpu gradInputGpu gradOutputGpu input_gpu output_gpu gradInput_gpu gradOutput_gpu")
    | table("flattenedParamsGpu flattenedGradParamsGpu")
    | absent("flattenedParams buffer maxUsedGpu batchSize")
    | value("needsSync", False)
    | clones("modules"),
)
register("nn.DataParallelTable.Basic", None, transient=absent("modules"))
register("nn.DataParallelTable.Threads", None, transient=absent("__threads"))
register("nn.TransferGPU", transient=emptied("output gradInput"))
