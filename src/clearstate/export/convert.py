"""A Torch7 net as stock PyTorch: the program, the source made of it, and the live net that the source makes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .. import nn
from ..errors import ConversionError
from ..nn.protocol.ownership import mapped, tensors
from .builder import Builder, describe, difference
from .covered import Coverage, unmapped
from .overlaps import parted
from .program import Program, Row
from .rebuilding import generated
from .sampling import batch_dim, doubled, made_for
from .source import Source
from .values import examples, of_example


class Exported(NamedTuple):
    """What a net became.

    Attributes:
        net: the live net, of stock PyTorch modules.
        source: its Python source.
        coverage: what became of each layer, with the largest difference on the sample.
        sample: the input that it was compared on.
        batch_dim: the dimension of the sample along which any number may come; `None` where there is none.
    """

    net: torch.nn.Module
    source: Source
    coverage: Coverage
    sample: Any
    batch_dim: int | None


def export(
    model: Any, sample: Any = None, *, tolerance: float | None = None, weights: str = "net.safetensors"
) -> Exported:
    """Converts a net and proves each layer, and the whole, equal on a sample.

    Args:
        model: a live Torch7 net.
        sample: an input of it; made from the net's shapes unless given.
        tolerance: how far numbers may be apart, by the largest of their tensor; by their type unless given.
        weights: the file of weights that the source names.

    Raises:
        ConversionError: layers cannot be converted (all are named), one is not equal, or no sample could be made.
    """
    program = traced(model, sample, tolerance)
    wrong = [row for row in program.rows if row.becomes is None]
    if wrong:
        raise ConversionError(refusal(wrong))
    source = Source(program, "A Torch7 net in PyTorch, converted by clearstate.")
    source.write(weights)
    net = live(source)
    names = {id(tensor): name for name, tensor in reversed(source.tensors().items())}
    coverage = Coverage(program.rows, [*program.notes, *parted(program.copies, names)])
    with evaluated(model), torch.no_grad():
        _compare_whole(model, net, program.sample, tolerance)
    net.train(model.training)
    for layer, path in source.paths:
        net.get_submodule(path).train(layer.training)
    return Exported(net, source, coverage, program.sample, program.batch_dim)


def traced(model: Any, sample: Any, tolerance: float | None = None) -> Program:
    """The program of a net, with rows for layers that cannot be converted among its rows."""
    if not isinstance(model, torch.nn.Module):
        raise ConversionError(f"{type(model).__name__} is no net: to_stock takes a module")
    if isinstance(model, nn.Criterion):
        raise ConversionError(
            f"{model.typename} is a criterion: cs.to_stock makes it PyTorch's loss; what is written is the net"
        )
    model = _untouched(model)
    modes = {id(module): module.training for module in model.modules()}
    with evaluated(model), torch.no_grad():
        if sample is None:
            wrong = unmapped(model)
            if wrong:
                raise ConversionError(refusal(wrong))
            sample = made_for(model)
            if sample is None:
                raise ConversionError(
                    "the form of its input cannot be worked out from this net: pass a sample, "
                    "an input that it takes (for --sample: a file, or a shape such as 2x3x224x224)"
                )
        sample = mapped(sample, Tensor.detach)
        if not any(tensor.numel() for tensor in tensors(sample)):
            raise ConversionError("the sample has no numbers: nothing could be compared on it")
        given = mapped(sample, Tensor.clone)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            try:
                output = model(given)
            except (TypeError, RuntimeError, IndexError, AttributeError) as error:
                raise ConversionError(f"the net does not take this sample: {error}") from error
        dim = batch_dim(model, mapped(sample, Tensor.clone), output)
        alone = dim is not None and any(t.shape[dim] == 1 for t in tensors(sample))
        used = doubled(sample, dim) if dim is not None and alone else sample
        builder = Builder(tolerance, modes)
        program = builder.program
        program.sample, program.batch_dim, program.training = used, dim, modes[id(model)]
        return builder.build(model, of_example(mapped(used, Tensor.clone)))


def refusal(rows: list[Row]) -> str:
    """Why a net cannot be converted, with all the layers that are in the way."""
    each = [f"{row.path or 'the net'} ({row.typename}): {row.reason}" for row in rows]
    if len(each) == 1:
        return f"a layer cannot be converted: {each[0]}"
    return f"{len(each)} layers cannot be converted: " + "; ".join(each)


def live(source: Source) -> torch.nn.Module:
    """The net that the source makes, with its weights."""
    module = generated(source.text)
    with torch.device("meta"):
        net: torch.nn.Module = vars(module)["Net"]()
    for layer, path in source.paths:
        mine = net.get_submodule(path)
        for folder, inner in layer.module.named_modules():
            owner = mine.get_submodule(folder)
            for own, theirs in ((owner._parameters, inner._parameters), (owner._buffers, inner._buffers)):
                for key, tensor in theirs.items():
                    if own[key] is not tensor:
                        setattr(owner, key, tensor)
    return net


@contextmanager
def evaluated(model: torch.nn.Module) -> Iterator[None]:
    """The net in evaluation mode, and afterwards in what mode each module was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _untouched(model: torch.nn.Module) -> torch.nn.Module:
    """The net, or a copy of it where a call of it changes it."""
    changing = any(
        (isinstance(m, nn.LookupTable) and m.max_norm is not None) or (isinstance(m, nn.MapTable) and not m.shared)
        for m in model.modules()
    )
    return copy.deepcopy(model) if changing else model


def _compare_whole(model: torch.nn.Module, net: torch.nn.Module, sample: Any, tolerance: float | None) -> None:
    model = _untouched(model)
    results = []
    for each in (model, net.eval()):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            results.append(list(tensors(each(mapped(sample, Tensor.clone)))))
    theirs, ours = results
    if len(ours) != len(theirs):
        raise ConversionError(f"the whole net gives {len(ours)} tensors, not {len(theirs)}")
    for mine, due in zip(ours, theirs, strict=True):
        distance, allowed = difference(mine, due, tolerance)
        if not distance <= 10 * allowed:
            raise ConversionError(f"the whole net does not give the same: {describe(mine, due, distance, allowed)}")


def outputs(program: Program) -> Any:
    """What the net gave on the sample."""
    return examples(program.output)
