"""dpnn's noise contrastive estimation: a softmax over many classes, learnt by telling targets from noise.

Follows Mnih & Teh, "A fast and simple algorithm for training neural probabilistic language models", 2012.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...formats import t7
from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.fields import plain
from ..layers.linear import Linear
from ..protocol.module import Criterion
from .alias import AliasMultinomial

EPSILON = 1e-7
"""What is added to what divides."""


class NCEModule(Linear):
    """How likely a linear layer and the noise find each target, and each of ``k`` classes drawn from the noise.

    Args:
        input_size: of vectors.
        output_size: how many classes.
        k: how many classes are drawn.
        unigrams: how often each class is drawn, in proportion: ``output_size``.
        z: the number that the layer's exponentials are divided by; of the first batch, unless given.

    Shapes: a table of ``batch x input_size`` and ``batch`` classes from 0 in. Out comes a table: of the targets by the
    layer, ``batch``; of the draws by the layer, ``batch x k``; and both by the noise. With ``batchnoise`` the draws are
    the same for all of a batch. In evaluation with ``normalized`` it is ``batch x output_size``, softmax or, with
    ``logsoftmax``, its logarithm. The noise keeps its type when the layer is converted. Follows dpnn's
    ``NCEModule.lua``.

    >>> layer = NCEModule(3, 10, 4, torch.ones(10))
    >>> [part.shape for part in layer([torch.ones(2, 3), torch.tensor([0, 9])])]
    [torch.Size([2]), torch.Size([2, 4]), torch.Size([2]), torch.Size([2, 4])]
    >>> layer.normalized = True
    >>> layer.eval()([torch.ones(2, 3), torch.tensor([0, 9])]).shape
    torch.Size([2, 10])
    """

    transient = ("drawn",)
    fields = plain("k batchnoise normalized logsoftmax")
    k: int
    batchnoise: bool | None = None
    normalized: bool | None = None
    logsoftmax: bool | None = None
    unigrams: Tensor
    z: Tensor

    def __init__(self, input_size: int, output_size: int, k: int, unigrams: Tensor, z: float | None = None) -> None:
        super().__init__(input_size, output_size)
        expect(unigrams, dims=(1,), size={0: output_size})
        self.k = k
        self.register_buffer("unigrams", unigrams / unigrams.sum())
        self.register_buffer("z", torch.tensor([-1.0 if z is None else float(z)]))
        self.batchnoise = True
        self.__dict__["_sampler"] = AliasMultinomial.of(self.unigrams)

    def reset(self, stdv: float | None = None) -> NCEModule:
        """Draws the weight anew, uniformly; the bias likewise where ``stdv`` is given, else all classes' the same."""
        bound = stdv or 1 / math.sqrt(self.weight.shape[1])
        torch.nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            if stdv:
                torch.nn.init.uniform_(self.bias, -bound, bound)
            else:
                torch.nn.init.constant_(self.bias, -math.log(len(self.bias)))
        return self

    @property
    def sampler(self) -> AliasMultinomial:
        """What draws the noise; made of ``unigrams`` where a file has none."""
        made: AliasMultinomial | None = self.__dict__.get("_sampler")
        if made is None:
            made = self.__dict__["_sampler"] = AliasMultinomial.of(self.unigrams)
        return made

    def draw(self, input: Tensor) -> Tensor:
        """The classes of the noise: ``k``, or ``batch x k``."""
        size = (self.k,) if self.batchnoise else (len(input), self.k)
        return self.sampler.draw(*size).to(input.device)

    def update_output(self, input: Any) -> Any:
        expect_table(input, 2)
        x, target = input
        expect(x, dims=(2,), size={1: self.weight.shape[1]})
        expect(target, dims=(1,), size={0: len(x)})
        if not self.training and self.normalized:
            scores = F.linear(x, self.weight, self.bias)
            return scores.log_softmax(1) if self.logsoftmax else scores.softmax(1)
        noise = self.draw(x)
        self.keep("drawn", noise)
        target = target.long()
        bias: Any = self.weight.new_zeros(len(self.weight)) if self.bias is None else self.bias
        of_target = ((x * self.weight[target]).sum(1) + bias[target]).exp()
        if self.batchnoise:
            of_noise = F.linear(x, self.weight[noise], bias[noise]).exp()
        else:
            of_noise = (torch.einsum("ni,nki->nk", x, self.weight[noise]) + bias[noise]).exp()
        known = of_noise if self.batchnoise else torch.cat([of_target.unsqueeze(1), of_noise], 1)
        divisor = self._divisor(known.detach())
        by_noise = self.unigrams.to(x.dtype)
        noise_of_noise = by_noise[noise].expand(len(x), -1)
        return [of_target / divisor, of_noise / divisor, by_noise[target], noise_of_noise]

    def _divisor(self, exponentials: Tensor) -> Tensor:
        """The divisor; where none is known yet, it is as many times the mean of these as there are classes."""
        made = torch.where(self.z > 0, self.z, exponentials.mean() * self.weight.shape[0])
        with torch.no_grad():
            self.z.copy_(made)
        return made.detach()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        noise = self.unigrams
        super()._apply(fn, recurse)
        self._buffers["unigrams"] = noise.to(self.weight.device) if not self.weight.is_meta else self.unigrams
        return self

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        if isinstance(fields.get("Z"), float):
            fields["Z"] = t7.Tensor.of([fields["Z"]], "torch.FloatTensor")

    @classmethod
    def from_object(cls, made: Any, obj: Any, reading: Any) -> None:
        rest = t7.Table(obj.state)
        sampler = rest.pop("aliasmultinomial", None)
        super().from_object(made, obj.with_state(rest), reading)
        if isinstance(sampler, t7.Object):
            made.__dict__["_sampler"] = AliasMultinomial.read(sampler, reading)

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        outer, writing.cuda = writing.cuda, False  # Torch7 draws in main memory
        obj.state["unigrams"] = writing.value(self.unigrams)
        obj.state["aliasmultinomial"] = self.sampler.written(writing)
        writing.cuda = outer


class _Told(torch.autograd.Function):
    """The loss, and the gradient that Torch7 gives: with a little added to what divides, not quite the derivative."""

    @staticmethod
    def forward(
        ctx: Any, of_target: Tensor, of_noise: Tensor, target: Tensor, noise: Tensor, count: int | None
    ) -> Tensor:
        k = of_noise.shape[1]
        divisors = of_target + k * target + EPSILON, of_noise + k * noise + EPSILON
        ctx.save_for_backward(of_target, of_noise, target, *divisors)
        ctx.k, ctx.count = k, count
        loss = -((of_target / divisors[0]).log().sum() + (k * noise / divisors[1]).log().sum())
        return loss / count if count else loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        of_target, of_noise, target, first, second = ctx.saved_tensors
        scale = grad / (ctx.count or 1)
        ours = -ctx.k * target / first / (of_target + EPSILON)
        theirs = of_noise / second / (of_noise + EPSILON)
        return ours * scale, theirs * scale, None, None, None


class NCECriterion(Criterion):
    """How badly targets are told from noise, by what `NCEModule` gives. The target is not looked at.

    Shapes: a table of ``batch``, ``batch x k``, ``batch`` and ``batch x k``. The loss is the mean over the batch, their
    sum where ``size_average`` is not set. The last two get no gradient. Follows dpnn's ``NCECriterion.lua``.

    >>> loss = NCECriterion()
    >>> round(loss.forward([torch.ones(2), torch.ones(2, 1), torch.ones(2), torch.ones(2, 1)], None), 4)
    1.3863
    """

    fields = plain("sizeAverage")
    size_average: bool = True

    def __init__(self) -> None:
        super().__init__()
        self.size_average = True

    def update_output(self, input: Any, target: Any = None) -> Any:
        expect_table(input, 4)
        of_target, of_noise, noise_target, noise = input
        expect(of_target, dims=(1,))
        expect(of_noise, dims=(2,), size={0: len(of_target)})
        for given, due in ((noise_target, of_target), (noise, of_noise)):
            expect(given)
            if given.shape != due.shape:
                raise ValueError(f"expected the noise's part to be {describe(due)}, got {describe(given)}")
        count = len(of_target) if self.size_average else None
        return _Told.apply(of_target, of_noise, noise_target.detach(), noise.detach(), count)  # type: ignore[no-untyped-call]
