"""cudnn.torch's layers and nn's of the same meaning, one entry a pair.

Follows cudnn.torch's ``convert.lua``, its constructors and what each forward sets first, and nn's constructors; where
that conversion gives a layer that computes something else (other windows, groups, padding that counts), here it is
refused. What runs on a GPU only, and has a meaning without one, is here too.
"""

from __future__ import annotations

import math

from ..codec.objects import Object, Table, Tensor
from .pairs import CPU, Fields, Says, Views, Way, contiguous, one_way, pair, reads, without

# Convolutions. cudnn.torch counts only on its own `groups`; its modes are how a GPU is to go about it.
MODES = "groups fmode bdmode bwmode fastest_mode"


def number(fields: Fields, name: str) -> float:
    """A field that is a number, 0 where there is none."""
    value = fields.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def grouped(fields: Fields) -> str | None:
    """nn has no convolution in groups; cudnn.torch ignores ``groups`` in all but the spatial one."""
    groups = number(fields, "groups")
    return f"its planes are in {groups:g} groups, and nn convolves all with all" if groups > 1 else None


def whole(*names: str) -> Says:
    """These tensors lie in one piece where they have another number of dimensions than the new class wants."""

    def says(fields: Fields) -> str | None:
        for name in names:
            tensor = fields.get(name)
            if type(tensor) is Tensor and len(tensor.size) == 2 and tensor.stride != contiguous(tensor.size):
                return f"its {name} is an old 2-D one that does not lie in one piece"
        return None

    return says


def kernels(fields: Table, views: Views) -> None:
    """What nn's forward does with fields of its first years: one ``padding``, a weight that is a matrix."""
    padding = fields.pop("padding", None)
    if padding is not None:
        fields["padW"] = fields["padH"] = padding
    size = [int(number(fields, name)) for name in ("nOutputPlane", "nInputPlane", "kH", "kW")]
    for name in ("weight", "gradWeight"):
        tensor = fields.get(name)
        if type(tensor) is Tensor and len(tensor.size) == 2 and math.prod(size) == tensor.numel:
            fields[name] = views(tensor, size)


IN_ONE_PIECE = whole("weight", "gradWeight")
PADDING = {"padW": 0.0, "padH": 0.0}
TO_CUDNN = Way(make={**PADDING, "groups": 1.0}, change=kernels, unless=(IN_ONE_PIECE,))
pair(
    "nn.SpatialConvolution",
    "cudnn.SpatialConvolution",
    there=TO_CUDNN,
    back=Way(make=PADDING, drop=MODES, change=kernels, unless=(grouped, IN_ONE_PIECE)),
)
one_way("nn.SpatialConvolutionMM", "cudnn.SpatialConvolution", TO_CUDNN)
pair("nn.VolumetricConvolution", "cudnn.VolumetricConvolution", back=Way(drop=MODES))


def turned(fields: Fields) -> str | None:
    """nn's first VolumetricFullConvolution had its weight the other way round, which only nn's forward mends."""
    old = fields.get("adjW") is None or fields.get("padW") is None
    return "it was made by a version of nn whose weight lies otherwise; let nn run and save it once" if old else None


ADJUSTED = {"adjW": 0.0, "adjH": 0.0}
pair(
    "nn.SpatialFullConvolution",
    "cudnn.SpatialFullConvolution",
    there=Way(make={**PADDING, **ADJUSTED}),
    back=Way(make={**PADDING, **ADJUSTED}, drop=MODES),
)
pair(
    "nn.VolumetricFullConvolution",
    "cudnn.VolumetricFullConvolution",
    there=Way(unless=(turned,)),
    back=Way(drop=MODES, unless=(turned,)),
)
# The class has dilated ones in other versions of the package than the last.
for space in "Spatial Volumetric".split():
    one_way(f"cudnn.{space}DilatedConvolution", f"nn.{space}DilatedConvolution", Way(drop=MODES, unless=(grouped,)))


def as_image(fields: Table, views: Views) -> None:
    """A sequence as cudnn.torch has it: an image of one plane, a frame a row."""
    fields["kH"], fields["dH"] = fields.get("kW"), fields.get("dW")
    fields["kW"], fields["dW"] = fields.get("inputFrameSize"), 1.0
    fields["nOutputPlane"] = fields.get("outputFrameSize")


def as_sequence(fields: Table, views: Views) -> None:
    """The other way round; the weight has nn's two dimensions in both."""
    fields["kW"], fields["dW"] = fields.get("kH"), fields.get("dH")
    size = (int(number(fields, "outputFrameSize")), int(number(fields, "inputFrameSize") * number(fields, "kW")))
    for name in ("weight", "gradWeight"):
        tensor = fields.get(name)
        if type(tensor) is Tensor and len(tensor.size) == 4 and math.prod(size) == tensor.numel:
            fields[name] = views(tensor, size)


def padded(*names: str) -> Says:
    """nn's class has no padding."""

    def says(fields: Fields) -> str | None:
        found = [f"{name} {number(fields, name):g}" for name in names if number(fields, name)]
        return f"it pads its input ({', '.join(found)}), and nn's does not" if found else None

    return says


def without_bias(fields: Fields) -> str | None:
    return None if type(fields.get("bias")) is Tensor else "it has no bias, and nn's cannot be without"


pair(
    "nn.TemporalConvolution",
    "cudnn.TemporalConvolution",
    there=Way(make={"nInputPlane": 1.0, "padW": 0.0, "padH": 0.0, "groups": 1.0}, change=as_image),
    back=Way(
        drop=f"kH dH nInputPlane nOutputPlane padW padH {MODES}",
        change=as_sequence,
        unless=(padded("padW", "padH"), without_bias),
    ),
)


# Pooling. nn leaves out a last window that would begin in the padding; cuDNN does not.
def other_windows(axes: str) -> Says:
    """Where rounding up gives the two another number of windows, for some sizes of the input."""

    def says(fields: Fields) -> str | None:
        pads = {axis: number(fields, f"pad{axis}") for axis in axes}
        if not fields.get("ceil_mode") or not any(pads.values()):
            return None
        if any(number(fields, f"k{a}") <= pads[a] + number(fields, f"d{a}") - 1 for a in axes):
            return "it rounds up, and with this kernel, stride and padding cuDNN has windows that nn leaves out"
        return None

    return says


def edges_count(fields: Fields) -> str | None:
    strides = (number(fields, name) for name in ("dW", "dH"))
    if not fields.get("ceil_mode") or all(d == 1 for d in strides):
        return None
    return "where it rounds up, nn divides a window that reaches beyond the edge by what of it is inside"


def sums(fields: Fields) -> str | None:
    """nn's class divides only where it is told so: files of its first years do not say, and it sums."""
    return None if fields.get("divide") else "it sums its windows (divide is not set), and cuDNN's takes the mean"


def leaves_padding_out(fields: Fields) -> str | None:
    if fields.get("count_include_pad") is False and (number(fields, "padW") or number(fields, "padH")):
        return "it leaves padding out of the mean (count_include_pad), and cudnn's counts it"
    return None


SQUARE = {**PADDING, "ceil_mode": False}
CUBE = {"padT": 0.0, **SQUARE}
pair(
    "nn.SpatialMaxPooling",
    "cudnn.SpatialMaxPooling",
    there=Way(make=SQUARE, unless=(other_windows("WH"),)),
    back=Way(make=SQUARE, drop="mode", unless=(other_windows("WH"),)),
)
pair(
    "nn.SpatialAveragePooling",
    "cudnn.SpatialAveragePooling",
    there=Way(
        make=SQUARE,
        drop="divide count_include_pad",
        unless=(sums, leaves_padding_out, other_windows("WH")),
        note=edges_count,
    ),
    back=Way(
        make=SQUARE,
        always={"divide": True, "count_include_pad": True},
        drop="mode",
        unless=(leaves_padding_out, other_windows("WH")),
        note=edges_count,
    ),
)


for space in "Spatial Volumetric".split():
    reads(f"nn.{space}MaxUnpooling", "pooling", "indices", to="cudnn")


def rounds_up(fields: Fields) -> str | None:
    if fields.get("ceil_mode") and any(number(fields, f"d{axis}") > 1 for axis in "TWH"):
        return "it rounds up, and nn's takes only windows that end within the input"
    return None


pair(
    "nn.VolumetricMaxPooling",
    "cudnn.VolumetricMaxPooling",
    there=Way(make=CUBE, unless=(other_windows("TWH"),)),
    back=Way(make=CUBE, drop="mode", unless=(other_windows("TWH"),), version=2),
)
pair(
    "nn.VolumetricAveragePooling",
    "cudnn.VolumetricAveragePooling",
    there=Way(make=CUBE, unless=(padded("padT", "padW", "padH"),)),
    back=Way(drop="mode ceil_mode padT padW padH", unless=(padded("padT", "padW", "padH"), rounds_up)),
)


# Activations.
def thresholded(fields: Fields) -> str | None:
    th, val = number(fields, "threshold"), number(fields, "val")
    return f"its threshold is {th:g} and its value {val:g}, and cuDNN's are 0" if th or val else None


ZERO = {"threshold": 0.0, "val": 0.0}
IN_PLACE = {"inplace": False}
pair(
    "nn.ReLU",
    "cudnn.ReLU",
    there=Way(make=IN_PLACE, drop="threshold val", unless=(thresholded,)),
    back=Way(make=IN_PLACE, always=ZERO, drop="mode"),
)
one_way("cudnn.ReLUInPlace", "nn.ReLU", Way(always={**ZERO, "inplace": True}, drop="mode"))
for name in "Tanh Sigmoid".split():
    pair(f"nn.{name}", f"cudnn.{name}", there=Way(make=IN_PLACE), back=Way(drop="mode inplace"))


def clipped(fields: Table, views: Views) -> None:
    fields["min_val"], fields["max_val"] = 0.0, fields.pop("ceiling", None)


def no_ceiling(fields: Fields) -> str | None:
    return None if number(fields, "ceiling") > 0 else "it has no ceiling above 0"


one_way("cudnn.ClippedReLU", "nn.HardTanh", Way(make=IN_PLACE, drop="mode", change=clipped, unless=(no_ceiling,)))
one_way("cudnn.Dropout", "nn.Dropout", Way(make={"v2": True, "stochastic_inference": False}))

# Soft maxima. cuDNN's are one layer with a mode and an algorithm; two of the classes set these in each forward.
ACCURATE, LOG = "CUDNN_SOFTMAX_ACCURATE", "CUDNN_SOFTMAX_LOG"
CHANNEL, INSTANCE = "CUDNN_SOFTMAX_MODE_CHANNEL", "CUDNN_SOFTMAX_MODE_INSTANCE"


def set_otherwise(mode: str, logarithm: bool) -> Says:
    def says(fields: Fields) -> str | None:
        if fields.get("mode") not in (None, mode):
            return f"its mode was set to {fields['mode']}"
        if (fields.get("algorithm") == LOG) is not logarithm:
            return f"its algorithm was set to {fields.get('algorithm')}"
        return None

    return says


def of_images(fields: Fields) -> str | None:
    return "of an image, cuDNN's goes over all of its numbers and nn's over the planes at each place; of a vector both"


SET = "mode algorithm"
pair(
    "nn.SpatialSoftMax",
    "cudnn.SpatialSoftMax",
    there=Way(make={"algorithm": ACCURATE}),
    back=Way(drop=SET, unless=(set_otherwise(CHANNEL, False),)),
)
pair(
    "nn.SpatialLogSoftMax",
    "cudnn.SpatialLogSoftMax",
    there=Way(make={"algorithm": LOG, "mode": CHANNEL}),
    back=Way(drop=SET, unless=(set_otherwise(CHANNEL, True),)),
)
pair(
    "nn.SoftMax",
    "cudnn.SoftMax",
    there=Way(make={"algorithm": ACCURATE}, note=of_images),
    back=Way(drop=SET, unless=(set_otherwise(INSTANCE, False),), note=of_images),
)
pair(
    "nn.LogSoftMax",
    "cudnn.LogSoftMax",
    there=Way(make={"algorithm": ACCURATE}, note=of_images),
    back=Way(drop=SET, note=of_images),
)
without(
    "cudnn.VolumetricSoftMax cudnn.VolumetricLogSoftMax",
    "nn has no soft maximum of volumes",
)


# Normalization.
def renamed(fields: Table, views: Views) -> None:
    """``K`` is what the first versions called ``k``."""
    if fields.get("K") is not None:
        fields["k"] = fields.pop("K")


def out_of_range(fields: Fields) -> str | None:
    size, k, beta = number(fields, "size"), number(fields, "k"), number(fields, "beta")
    if not 1 <= size <= 16:
        return f"its size is {size:g}, and cuDNN takes 1 to 16"
    if k < 1e-5 or beta < 0.01:
        return f"its k is {k:g} and its beta {beta:g}, and cuDNN takes k from 1e-5 and beta from 0.01"
    return None


pair(
    "nn.SpatialCrossMapLRN",
    "cudnn.SpatialCrossMapLRN",
    there=Way(unless=(out_of_range,)),
    back=Way(make={"k": 1.0}, change=renamed),
)
without("cudnn.SpatialDivisiveNormalization", "nn's class of this name takes another neighbourhood")


def not_affine(fields: Fields) -> str | None:
    if fields.get("affine") and type(fields.get("weight")) is Tensor and type(fields.get("bias")) is Tensor:
        return None
    return "it learns no weight and bias (affine is not set), and cudnn's has to"


def of_variance(fields: Table, views: Views) -> None:
    """What both classes' ``read`` does with files of class version 1: it kept one over the standard deviation."""
    std = fields.pop("running_std", None)
    if type(std) is Tensor and fields.get("running_var") is None:
        eps = number(fields, "eps")
        fields["running_var"] = views.made(std, lambda t: variance(t, eps))


def variance(std: Tensor, eps: float) -> Tensor:
    """``running_var`` of an old ``running_std``, which is one over the standard deviation.

    >>> variance(Tensor.of([0.5, 1.0]), 0.0).numpy()
    array([4., 1.])
    """
    values = std.numpy().astype(std.numpy().dtype.newbyteorder("="))
    return Tensor.of((values.astype("f8") ** -2 - eps).astype(values.dtype), std.typename)


for name, version in ("BatchNormalization", 2), ("SpatialBatchNormalization", 2), ("VolumetricBatchNormalization", 1):
    pair(
        f"nn.{name}",
        f"cudnn.{name}",
        there=Way(change=of_variance, unless=(not_affine,), version=2),
        back=Way(make={"affine": True}, change=of_variance, version=version),
    )

KEPT_AS_FLOAT = frozenset(f"cudnn.{space}BatchNormalization" for space in ("", "Spatial", "Volumetric"))
"""Classes whose tensors stay float in a net of halves, save for ``output`` and ``gradInput``."""


# Criterions. cudnn.torch's folds a soft maximum and a likelihood; nn says that in two.
def in_two(fields: Table, views: Views) -> None:
    fields["inputModule"], fields["criterion"] = fields.pop("slsm"), fields.pop("nll")
    averages = fields.pop("sizeAverage", True)
    criterion = fields["criterion"]
    if criterion.get("sizeAverage") is not averages:
        changed = criterion.with_state(Table(criterion.state))
        changed["sizeAverage"] = averages
        fields["criterion"] = changed


def not_of_two(fields: Fields) -> str | None:
    parts = fields.get("slsm"), fields.get("nll")
    return None if all(type(part) is Object for part in parts) else "it lacks its two parts, slsm and nll"


one_way(
    "cudnn.SpatialCrossEntropyCriterion",
    "nn.ModuleCriterion",
    Way(make={"castTarget": True}, change=in_two, unless=(not_of_two,)),
)
without("cudnn.VolumetricCrossEntropyCriterion", "nn has no likelihood of volumes")
without(
    "cudnn.RNN cudnn.RNNReLU cudnn.RNNTanh cudnn.LSTM cudnn.GRU cudnn.BLSTM cudnn.BGRU",
    "nn has no recurrent layers; its weights lie in one piece, as cuDNN orders them",
)


# A net that cunn copied to several GPUs is its first copy where there is none. Here it is in a container of its own.
def first_copy(fields: Table, views: Views) -> None:
    """Leaves the model, and what any container has."""
    copies = fields.get("modules")
    model = copies.get(1) if type(copies) is Table else None
    kept = {name: fields[name] for name in ("train", "_type") if name in fields}
    fields.clear()
    fields.update(kept)
    fields["modules"] = Table.of([model])


def no_copy(fields: Fields) -> str | None:
    copies = fields.get("modules")
    return None if type(copies) is Table and type(copies.get(1)) is Object else "it holds no model"


one_way("nn.DataParallelTable", "nn.Sequential", Way(change=first_copy, unless=(no_copy,)), to=CPU)
