"""Layers that give another view of their input, or a part of it.

Dimensions and indices count from 0, negative ones from the end. ``num_input_dims`` (or ``n_input_dims``) is the number
of dimensions of one input: one with more is a batch, and the layer leaves its first dimensions alone. What is a copy
in Torch7 is a copy here too: a layer that then works in place changes nobody else's tensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.fields import index, longs, plain
from ..protocol.module import Module
from .pointwise import sizes

B = TypeVar("B", bound="_Batched")


def due_dimension(input: Tensor, dimension: int) -> int:
    """A dimension of an input, counted from 0.

    Raises:
        ValueError: the input has no such dimension.
    """
    expect(input)
    if not -input.dim() <= dimension < input.dim():
        raise ValueError(f"expected a tensor that has a dimension {dimension}, got {describe(input)}")
    return dimension % input.dim()


def due_indices(indices: Tensor, count: int) -> Tensor:
    """Indices as PyTorch takes them. Their range is checked where that costs no waiting for a device.

    Raises:
        ValueError: one is below 0, or not below ``count``.
    """
    indices = indices.long()
    if not torch.compiler.is_compiling() and indices.device.type == "cpu" and indices.numel():
        low, high = (int(end) for end in indices.aminmax())
        if low < 0 or high >= count:
            raise ValueError(f"expected indices from 0 to {count - 1}, got {low if low < 0 else high}")
    return indices


class _Batched(Module):
    """A layer that can be told how many dimensions one input has."""

    fields = plain("numInputDims")
    num_input_dims: int | None

    def set_num_input_dims(self: B, num_input_dims: int | None) -> B:
        """Says how many dimensions one input has; returns the layer."""
        self.num_input_dims = num_input_dims
        return self


class View(_Batched):
    """The input with other sizes; one of them may be -1: whatever is left.

    An input with more elements than the sizes multiply to is a batch. With a size of -1, ``set_num_input_dims`` tells.

    Raises:
        ValueError: more than one -1, or an input whose elements do not fit.

    Follows Torch7's ``nn/View.lua``.

    >>> View(12)(torch.zeros(5, 3, 4)).shape, View(-1).set_num_input_dims(2)(torch.zeros(5, 3, 4)).shape
    (torch.Size([5, 12]), torch.Size([5, 12]))
    """

    fields = longs("size") | plain("numElements")
    num_elements: int | None

    def __init__(self, *size: int | Sequence[int]) -> None:
        super().__init__()
        self.reset_size(*size)
        self.num_input_dims = None

    def reset_size(self, *size: int | Sequence[int]) -> View:
        """Changes the sizes; returns the layer."""
        self.size = sizes(size)
        if any(s < -1 for s in self.size) or self.size.count(-1) > 1:
            raise ValueError(f"sizes are positive, and one of them may be -1: not {self.size}")
        self.num_elements = math.prod(s for s in self.size if s >= 0)
        return self

    def loaded(self) -> None:
        if self.num_elements is None:
            self.reset_size(*self.size)

    def update_output(self, input: Tensor) -> Tensor:
        size, due = self.size, self.num_elements
        if self.num_input_dims is None and due and isinstance(input, Tensor):  # as mostly
            count = input.numel()
            if count == due or (-1 in size and count % due == 0):
                return input.reshape(size)
            if count % due == 0:
                return input.reshape(count // due, *size)
        return self._inner(input, due)

    def _inner(self, input: Tensor, due: int | None) -> Tensor:
        """The input with its last dimensions viewed."""
        expect(input)
        size, inner = self.size, self.num_input_dims
        shape = input.shape
        one = input.numel() if inner is None else math.prod(shape[max(len(shape) - inner, 0) :])
        if not due or one % due:
            raise ValueError(
                f"expected a tensor that can be viewed as {'x'.join(map(str, size))}, got {describe(input)}"
            )
        batch = 1 if -1 in size else one // due
        if inner is not None:
            batch *= math.prod(shape[: max(len(shape) - inner, 0)])
        if batch == 1 and (inner is None or len(shape) <= inner):
            return input.reshape(size)
        return input.reshape(batch, *size)

    def to_string(self) -> str:
        return f"{self.typename}({', '.join(map(str, self.size))})"


class Reshape(Module):
    """The input with other sizes, or each of a batch.

    Args:
        size: the sizes, one by one or as a list; then, if one likes, the batch mode: True for a batch always, False for
            never. Unless given, an input is a batch if it has other than the sizes' number of elements, or a first
            dimension of 1.

    Follows Torch7's ``nn/Reshape.lua``.

    >>> Reshape(6)(torch.zeros(5, 2, 3)).shape, Reshape(30, False)(torch.zeros(5, 2, 3)).shape
    (torch.Size([5, 6]), torch.Size([30]))
    """

    fields = longs("size") | plain("nelement batchMode")
    nelement: int
    batch_mode: bool | None

    def __init__(self, *size: int | bool | Sequence[int]) -> None:
        super().__init__()
        self.batch_mode: bool | None = None
        if size and isinstance(size[-1], bool):
            self.batch_mode = size[-1]
            size = size[:-1]
        self.size = sizes(size)
        self.nelement = math.prod(self.size)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        if not input.dim():
            raise ValueError(f"expected a tensor of 1 dimension at least, got {describe(input)}")
        size, one = self.size, input.numel() == self.nelement
        whole = not self.batch_mode if self.batch_mode is not None else one and input.shape[0] != 1
        batch = () if whole else (input.shape[0],)
        if input.numel() != math.prod((*batch, *size)) and -1 not in size:
            raise ValueError(f"expected a tensor of {self.nelement} elements, or a batch, got {describe(input)}")
        return input.reshape(*batch, *size)

    def to_string(self) -> str:
        return f"{self.typename}({'x'.join(map(str, self.size))})"


class Collapse(Module):
    """All dimensions but the batch's made one. Follows Torch7's ``nn/Collapse.lua``.

    Args:
        n_input_dim: dimensions of one input; one with more is a batch.

    >>> Collapse(2)(torch.zeros(5, 3, 4)).shape
    torch.Size([5, 12])
    """

    fields = plain("nInputDim")

    def __init__(self, n_input_dim: int) -> None:
        super().__init__()
        self.n_input_dim = n_input_dim

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return input.reshape(input.shape[0], -1) if input.dim() > self.n_input_dim else input.reshape(-1)


class Squeeze(_Batched):
    """The input without a dimension of size 1, or without all of them. Follows Torch7's ``nn/Squeeze.lua``.

    Args:
        dim: the dimension; if its size is not 1, it stays.
        num_input_dims: dimensions of one input.

    >>> Squeeze()(torch.zeros(1, 3, 1)).shape, Squeeze(0, 2)(torch.zeros(5, 1, 3)).shape
    (torch.Size([3]), torch.Size([5, 3]))
    """

    fields = index("dim")

    def __init__(self, dim: int | None = None, num_input_dims: int | None = None) -> None:
        super().__init__()
        self.dim = dim
        self.num_input_dims = num_input_dims

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        batch = self.num_input_dims is not None and input.dim() == self.num_input_dims + 1
        if self.dim is not None:
            output = input.squeeze(due_dimension(input, self.dim + (batch and self.dim >= 0)))
        elif batch and input.shape[0] == 1:
            return input.squeeze().unsqueeze(0)
        else:
            output = input.squeeze()
        return output if output.dim() else output.view(1)


class Unsqueeze(_Batched):
    """The input with one more dimension, of size 1. Follows Torch7's ``nn/Unsqueeze.lua``.

    Args:
        pos: which dimension it is to be.
        num_input_dims: dimensions of one input.

    >>> Unsqueeze(0)(torch.zeros(5, 3)).shape, Unsqueeze(0, 1)(torch.zeros(5, 3)).shape
    (torch.Size([1, 5, 3]), torch.Size([5, 1, 3]))
    """

    fields = index("pos")

    def __init__(self, pos: int, num_input_dims: int | None = None) -> None:
        super().__init__()
        self.num_input_dims = num_input_dims
        self.pos = pos + num_input_dims + 1 if pos < 0 and num_input_dims is not None else pos

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        pos, inner = fields.get("pos"), fields.get("numInputDims")
        if isinstance(pos, float) and isinstance(inner, float) and pos <= 0:
            fields["pos"] = pos - inner - 2  # a place among the batch's dimensions, counted from the end

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        batch = 0 if self.num_input_dims is None else input.dim() - self.num_input_dims
        place = self.pos + (batch if self.pos >= 0 else input.dim() + 1)
        if batch < 0 or not 0 <= place <= input.dim():
            raise ValueError(f"expected a tensor that can have one more dimension {self.pos}, got {describe(input)}")
        return input.unsqueeze(place)

    def to_string(self) -> str:
        return f"{self.typename}(dim {self.pos + 1 if self.pos >= 0 else self.pos})"


class Transpose(_Batched):
    """Swaps dimensions, pair after pair; gives a copy in order. Follows Torch7's ``nn/Transpose.lua``.

    >>> Transpose((0, 1), (1, 2))(torch.zeros(3, 4, 5)).shape
    torch.Size([4, 5, 3])
    """

    fields = index("permutations")
    permutations: list[list[int]]

    def __init__(self, *permutations: Sequence[int]) -> None:
        super().__init__()
        self.permutations = [list(pair) for pair in permutations]
        self.num_input_dims = None

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        batch = 0 if self.num_input_dims is None else input.dim() - self.num_input_dims
        for pair in self.permutations:
            a, b = (due_dimension(input, d + batch if d >= 0 else d) for d in pair)
            input = input.transpose(a, b)
        return input.clone(memory_format=torch.contiguous_format)


class Replicate(Module):
    """The input repeated along a new dimension; all repeats are one in memory. Follows Torch7's ``nn/Replicate.lua``.

    Args:
        n_features: how often.
        dim: which dimension the new one is to be, not negative.
        n_dim: dimensions of one input; one with more is a batch.

    >>> Replicate(3)(torch.zeros(5)).shape
    torch.Size([3, 5])
    """

    fields = index("dim") | plain("nfeatures ndim")
    nfeatures: int
    ndim: int | None

    def __init__(self, n_features: int, dim: int = 0, n_dim: int | None = None) -> None:
        super().__init__()
        if dim < 0:
            raise ValueError(f"expected a dimension that is not negative, got {dim}")
        self.nfeatures, self.dim, self.ndim = n_features, dim, n_dim

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields.setdefault("dim", 1.0)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        place = self.dim + (self.ndim is not None and input.dim() > self.ndim)
        if place > input.dim():
            raise ValueError(f"expected a tensor that can have one more dimension {self.dim}, got {describe(input)}")
        shape = list(input.shape)
        shape.insert(place, self.nfeatures)
        return input.unsqueeze(place).expand(shape)


class Narrow(Module):
    """A range of a dimension, as a copy. Follows Torch7's ``nn/Narrow.lua``.

    Args:
        dimension: the dimension.
        offset: the index the range begins at. Where it is negative, all but the last ``length`` are taken.
        length: how many; -1 for all to the end, -2 for one less, ...

    >>> Narrow(0, 1, -1)(torch.arange(4))
    tensor([1, 2, 3])
    """

    fields = index("dimension index") | plain("length")
    index: int

    def __init__(self, dimension: int, offset: int, length: int = 1) -> None:
        super().__init__()
        self.dimension, self.index, self.length = dimension, offset, length

    def update_output(self, input: Tensor) -> Tensor:
        dim = due_dimension(input, self.dimension)
        start, length, count = self.index, self.length, input.shape[dim]
        if length < 0:
            length += count - start + (1 if start >= 0 else 2)
        if start < 0:
            start, length = 0, count - length
        if length < 1 or start + length > count:
            raise ValueError(f"expected more than {start + length - 1} in dimension {dim}, got {describe(input)}")
        return input.narrow(dim, start, length).clone(memory_format=torch.contiguous_format)


class Select(Module):
    """One index of a dimension, as a copy without it. Follows Torch7's ``nn/Select.lua``.

    >>> Select(0, -1)(torch.tensor([[1, 2], [3, 4]]))
    tensor([3, 4])
    """

    fields = index("dimension index")

    def __init__(self, dimension: int, index: int) -> None:
        super().__init__()
        self.dimension, self.index = dimension, index

    def update_output(self, input: Tensor) -> Tensor:
        dim = due_dimension(input, self.dimension)
        if input.dim() < 2 or not -input.shape[dim] <= self.index < input.shape[dim]:
            raise ValueError(f"expected a tensor with an index {self.index} in dimension {dim}, got {describe(input)}")
        return input.select(dim, self.index).clone(memory_format=torch.contiguous_format)


class Index(Module):
    """Those indices of a dimension that a vector lists: the input is a table of the tensor and of the vector.

    Follows Torch7's ``nn/Index.lua``.

    >>> Index(0)([torch.tensor([5, 6, 7]), torch.tensor([2, 0])])
    tensor([7, 5])
    """

    fields = index("dimension")

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.dimension = dimension

    def update_output(self, input: list[Tensor]) -> Tensor:
        expect_table(input, 2)
        values, indices = input
        dim = due_dimension(values, self.dimension)
        expect(indices, dims=(1,))
        return values.index_select(dim, due_indices(indices, values.shape[dim]))

    def _keep_grad_input(self, grads: Any) -> None:
        super()._keep_grad_input([grads[0], grads[1].to(grads[0].dtype)])


class MaskedSelect(Module):
    """The elements where a mask is not 0, as a vector: the input is a table of the tensor and of the mask.

    Follows Torch7's ``nn/MaskedSelect.lua``.

    >>> MaskedSelect()([torch.tensor([5, 6, 7]), torch.tensor([1, 0, 1])])
    tensor([5, 7])
    """

    def update_output(self, input: list[Tensor]) -> Tensor:
        expect_table(input, 2)
        values, mask = input
        expect(values)
        expect(mask)
        if values.numel() != mask.numel():
            raise ValueError(f"expected a mask as large as the tensor, got {describe(mask)} for {describe(values)}")
        return values.masked_select(mask.reshape(values.shape) != 0)


class OneHot(Module):
    """For each index, a vector that is 1 there and 0 elsewhere. Follows Torch7's ``nn/OneHot.lua``.

    Args:
        output_size: the vectors' length. Indices are a number, or a tensor of any shape.

    >>> OneHot(3)(torch.tensor([2, 0]))
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """

    fields = plain("outputSize")

    def __init__(self, output_size: int) -> None:
        super().__init__()
        self.output_size = output_size

    def update_output(self, input: Tensor | int) -> Tensor:
        kind: Tensor = self.output
        indices: Any = torch.tensor(input, device=kind.device) if isinstance(input, int | float) else input
        expect(indices)
        indices = due_indices(indices, self.output_size).unsqueeze(-1)
        zeros = torch.zeros(*indices.shape[:-1], self.output_size, dtype=kind.dtype, device=indices.device)
        return zeros.scatter(-1, indices, 1)

    def _keep_grad_input(self, grads: Any) -> None:
        super()._keep_grad_input(grads.to(self.output.dtype) if isinstance(grads, Tensor) else 0)

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        if isinstance(self.grad_input, int | float):  # Torch7 returns this and keeps its tensor
            obj.state["gradInput"] = writing.tensor(self.output[:0])
