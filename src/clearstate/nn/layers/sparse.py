"""Linear layers whose input names the features that are not zero, and their values."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ...formats import t7
from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.fields import plain, sized
from ..protocol.module import Module
from ..protocol.tape import Tape, calls


class _Decayed(torch.autograd.Function):
    """A parameter as it is; its gradient has ``decay`` times the parameter added."""

    @staticmethod
    def forward(weight: Tensor, decay: float) -> Tensor:
        return weight.view_as(weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        weight, ctx.decay = inputs
        ctx.save_for_backward(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return grads[0] + ctx.decay * weight, None


class _Sparse(Module):
    """What both layers do: ``do_grad_input`` says whether ``grad_input`` is computed, for all features."""

    do_grad_input = False
    weight_decay = 0.0
    weight: Tensor
    bias: Tensor

    def reset(self, stdv: float | None = None) -> _Sparse:
        """Draws ``weight`` anew, uniformly within ``stdv`` times the root of 3 (1 by the root of its row's size);
        ``bias`` a million times smaller."""
        bound = stdv * math.sqrt(3) if stdv else 1 / math.sqrt(self.weight.shape[1])
        torch.nn.init.uniform_(self.weight, -bound, bound)
        torch.nn.init.uniform_(self.bias, -bound * 1e-6, bound * 1e-6)
        return self

    def _decayed_weight(self) -> Tensor:
        if not self.weight_decay:
            return self.weight
        decayed: Tensor = _Decayed.apply(self.weight, self.weight_decay)  # type: ignore[no-untyped-call]
        return decayed

    def _noted(self, output: Tensor) -> Tensor:
        """The output; in the protocol, backward notes what it is given, which `grad_input` is computed from."""
        if (
            self.do_grad_input
            and not torch.compiler.is_compiling()
            and type(calls.way) is Tape
            and output.requires_grad
        ):
            own = self.__dict__
            output.register_hook(lambda grad: own.__setitem__("_grad_output", grad.detach()))  # type: ignore[no-untyped-call]
        return output

    def _keep_grad_input(self, grads: Any) -> None:
        grad_output = self.__dict__.pop("_grad_output", None)
        super()._keep_grad_input([] if grad_output is None else self._dense(grad_output, grads))

    def _dense(self, grad_output: Tensor, grads: Any) -> Any:
        """The gradient of all features, in the form of the input."""
        raise NotImplementedError


class SparseLinear(_Sparse):
    """A linear layer for inputs that are mostly zero, given as pairs of index and value.

    Shapes: a table of ``nnz x 2`` tensors (the first column are indices from 0, the second values), one a sample, in,
    ``batch x n_output`` out; one such tensor alone in, ``n_output`` out; or ``batch x nnz x 2`` in. Where a value is 0
    the index may be any: such pairs fill up the samples of a batch. ``weight`` is ``n_output x n_input``.
    ``weight_decay`` times the weight is added to its gradient. With ``do_grad_input``, the protocol's ``grad_input``
    has a pair for every feature of a sample; without, it is an empty table. Follows Torch7's ``nn/SparseLinear.lua``.

    >>> layer = SparseLinear(10, 2)
    >>> x = torch.tensor([[0, 0.5], [9, 2.0]])
    >>> y = layer(x)
    >>> torch.allclose(y, layer.bias + 0.5 * layer.weight[:, 0] + 2 * layer.weight[:, 9])
    True
    >>> layer([x, x, x]).shape
    torch.Size([3, 2])
    """

    fields = plain("weightDecay doGradInput")
    sizes_due = sized(weight="? ?", bias="weight:0")

    def __init__(self, input_size: int, output_size: int, do_grad_input: bool = False) -> None:
        super().__init__()
        self.weight_decay = 0.0
        self.do_grad_input = do_grad_input
        self.weight = Parameter(torch.empty(output_size, input_size))
        self.bias = Parameter(torch.empty(output_size))
        self.reset()

    def update_output(self, input: Any) -> Tensor:
        samples: Any = [input] if isinstance(input, Tensor) and input.dim() == 2 else input
        if isinstance(samples, Tensor):
            expect(samples, dims=(2, 3), size={-1: 2})
        else:
            expect_table(samples)
            for sample in samples:
                expect(sample, dims=(2,), size={-1: 2})
        pairs = torch.cat(list(samples)) if len(samples) else self.weight.new_zeros(0, 2)
        counts = torch.tensor([len(sample) for sample in samples], dtype=torch.long, device=pairs.device)
        features, values = pairs[:, 0].long(), pairs[:, 1]
        features = torch.where(values == 0, features.clamp(0, self.weight.shape[1] - 1), features)
        _expect_features(features, self.weight.shape[1])
        weight = self._decayed_weight()
        output = _summed(weight.t(), features, values, counts) + self.bias
        return self._noted(output[0] if samples is not input else output)

    def _dense(self, grad_output: Tensor, grads: Any) -> Any:
        values = grad_output.detach() @ self.weight.detach()
        features = torch.arange(self.weight.shape[1]).to(values)
        if values.dim() == 1:
            return [torch.stack([features, values], 1)]
        dense = torch.stack([features.expand_as(values), values], 2)
        return dense if isinstance(grads, Tensor) else list(dense)

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        if self.weight.grad is None:
            obj.state["sparseUpdate"] = 0.0


class IndexLinear(_Sparse):
    """A linear layer for inputs that are mostly zero, given as keys (indices of features) and values.

    Shapes: a table of ``keys`` and ``values`` in, both tensors of one dimension (one sample: ``n_output`` out)
    or tables of such (a batch: ``batch x n_output`` out); or of all keys, all values, and the number of keys of each
    sample. ``weight`` is ``n_input x n_output``. With ``normalize``, it has four more columns before these: the largest
    value of the feature that training has seen, 1 by that, 1, and a learnt bias of the feature; values are divided by
    the first, and at most 1. Follows Torch7's ``nn/IndexLinear.lua``.

    Args:
        input_size: the number of features.
        output_size: the size of the output.
        do_grad_input: whether the protocol's ``grad_input`` is computed, for every feature; else it is an empty table.
        keys_offset: is added to every key; the first row of ``weight`` is that of key 0 where this is 0.
        weight: a weight to use, instead of a new one of zeros.
        bias: a bias to use, instead of a new one of zeros.
        normalize: see above.

    >>> layer = IndexLinear(10, 2)
    >>> _ = layer.reset()
    >>> y = layer([torch.tensor([0, 9]), torch.tensor([0.5, 2.0])])
    >>> torch.allclose(y, layer.bias + 0.5 * layer.weight[0] + 2 * layer.weight[9])
    True
    """

    fields = plain("inputSize outputSize normalize weightDecay doGradInput offset")
    sizes_due = sized(weight="input_size ?", bias="output_size")
    normalize: int = 0
    """How many columns the weight has before those of the output: 4 or 0."""
    offset: int = -1
    """``keys_offset`` less 1: what Torch7 adds to keys, which there count from 1."""

    def __init__(
        self,
        input_size: int,
        output_size: int,
        do_grad_input: bool = False,
        keys_offset: int = 0,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.normalize = 4 if normalize else 0
        weight = torch.zeros(input_size, output_size + self.normalize) if weight is None else weight
        bias = torch.zeros(output_size) if bias is None else bias
        self.weight = weight if isinstance(weight, Parameter) else Parameter(weight)
        self.bias = bias if isinstance(bias, Parameter) else Parameter(bias)
        self.input_size = weight.shape[0]
        self.output_size = weight.shape[1] - self.normalize
        self.weight_decay = 0.0
        self.do_grad_input = do_grad_input
        self.offset = keys_offset - 1
        if self.do_grad_input and self.normalize:
            raise ValueError(
                "IndexLinear computes no grad_input where it normalizes: do_grad_input or normalize, not both"
            )

    def reset(self, stdv: float | None = None) -> IndexLinear:
        """Draws ``weight`` and ``bias`` as `SparseLinear` does; the columns before those of the output become 0."""
        super().reset(stdv)
        with torch.no_grad():
            self.weight[:, : self.normalize] = 0
        return self

    def update_output(self, input: Any) -> Tensor:
        expect_table(input)
        keys, values, counts = _flat(input)
        keys = keys.long() + (self.offset + 1)
        _expect_features(keys, self.weight.shape[0])
        if self.normalize:
            values = self._normalized(keys, values)
        weight = self._decayed_weight()
        output = _summed(weight[:, self.normalize :], keys, values, counts) + self.bias
        return self._noted(output[0] if len(input) == 2 and isinstance(input[0], Tensor) else output)

    def _normalized(self, keys: Tensor, values: Tensor) -> Tensor:
        """Values by the largest that training has seen of their feature, this one included; plus the feature's bias."""
        size = values.detach().abs()
        most, inverse = self.weight.detach()[keys, 0], self.weight.detach()[keys, 1]
        if self.training:
            seen = _largest_so_far(keys, torch.maximum(size, most))
            inverse = torch.where(seen > most, 1 / seen, inverse)
            most = seen
            with torch.no_grad():
                largest = self.weight[:, 0].scatter_reduce(0, keys, seen, "amax")
                self.weight[:, 1] = torch.where(largest > self.weight[:, 0], 1 / largest, self.weight[:, 1])
                self.weight[:, 0] = largest
                self.weight[:, 2].index_fill_(0, keys, 1)
        return torch.where(size > most, values.sign(), values * inverse) + self.weight[keys, 3]

    def _dense(self, grad_output: Tensor, grads: Any) -> Any:
        values = grad_output @ self.weight.detach().t()
        features = torch.arange(self.weight.shape[0], device=values.device)
        if values.dim() == 1:
            return [features, values]
        if isinstance(grads[0], Tensor):
            return [features.repeat(len(values), 1), values]
        return [[features.clone() for _ in values], list(values)]

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields.pop("running", None)
        if fields.get("normalize"):  # Torch7 takes part in training only once told to
            fields.setdefault("train", False)

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        state = obj.state
        for name in [n for n in state if isinstance(n, str) and n.startswith("running.")]:
            del state[name]
        tables = {name: t7.Table() for name in ("cumSumSizes", "keys", "gradWeight")}
        state["running"] = t7.Table({**tables, "counter": 1.0})


def _expect_features(features: Tensor, count: int) -> None:
    """Checks the range of indices, on the CPU: elsewhere PyTorch's own indexing does."""
    if torch.compiler.is_compiling() or features.device.type != "cpu" or not features.numel():
        return
    wrong = features[(features < 0) | (features >= count)]
    if wrong.numel():
        raise ValueError(f"expected indices from 0 to {count - 1}, got {wrong[0].item()}")


def _summed(rows: Tensor, keys: Tensor, values: Tensor, counts: Tensor) -> Tensor:
    """For each sample, the sum of the rows that its keys name, each times its value."""
    samples = torch.arange(len(counts), device=keys.device).repeat_interleave(counts, output_size=len(keys))
    products = rows.index_select(0, keys) * values.to(rows.dtype).unsqueeze(1)
    return rows.new_zeros(len(counts), rows.shape[1]).index_add(0, samples, products)


def _flat(input: Any) -> tuple[Tensor, Tensor, Tensor]:
    """All keys, all values, and how many keys each sample has."""
    if len(input) not in (2, 3):
        raise ValueError(f"expected a table of keys and values, and sizes perhaps, got {describe(input)}")
    keys, values = input[0], input[1]
    if len(input) == 3:
        expect(keys, dims=(1,))
        expect(values, dims=(1,), size={0: len(keys)})
        counts = torch.as_tensor(input[2], device=keys.device).long().reshape(-1)
        return keys, values, counts
    if isinstance(keys, Tensor):
        keys, values = [keys], [values]
    expect_table(values, len(keys))
    for key, value in zip(keys, values, strict=True):
        expect(key, dims=(1,))
        expect(value, dims=(1,), size={0: len(key)})
    return torch.cat(list(keys)), torch.cat(list(values)), torch.tensor([len(k) for k in keys], device=keys[0].device)


def _largest_so_far(keys: Tensor, values: Tensor) -> Tensor:
    """For each value, the largest of those with its key up to it.

    >>> _largest_so_far(torch.tensor([0, 1, 0, 1]), torch.tensor([3.0, 1.0, 2.0, 5.0]))
    tensor([3., 1., 3., 5.])
    """
    ordered, order = keys.sort(stable=True)
    found = values[order]
    step = 1
    while step < len(found):
        earlier = torch.where(ordered[step:] == ordered[:-step], found[:-step], found[step:])
        found = torch.cat([found[:step], torch.maximum(found[step:], earlier)])
        step *= 2
    return torch.empty_like(found).index_copy(0, order, found)
