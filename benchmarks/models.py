"""The files that are measured: a large model, and a million small values."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from clearstate.formats import t7

LAYERS = 100
KEPT = 0.05
"""Part of a large model's bytes that are parameters; the rest is outputs, as training leaves them."""


def write_model(path: Path, size: int) -> None:
    """Writes a net of `LAYERS` layers whose tensors take ``size`` bytes. Its structure does not depend on them."""
    numbers = np.random.default_rng(0).standard_normal(size // LAYERS // 4, dtype=np.float32)
    parameters = int(len(numbers) * KEPT)

    def tensor(start: int, stop: int) -> t7.Tensor:
        return t7.Tensor.of(numbers[start:stop])

    layers = [
        t7.Object(
            "nn.Linear",
            t7.Table(weight=tensor(0, parameters), output=tensor(parameters, len(numbers)), _type="torch.FloatTensor"),
        )
        for _ in range(LAYERS)
    ]
    net = t7.Object("nn.Sequential", t7.Table(modules=t7.Table.of(layers), train=True))
    with path.open("wb") as handle:
        t7.write(net, handle)


def records(count: int) -> t7.Table:
    """``count`` values: tables with words, numbers, booleans and a table of their own."""
    return t7.Table.of(
        t7.Table(
            name=f"image {i}.jpg",
            label=float(i % 1000),
            score=i / 7,
            train=i % 2 == 0,
            box=t7.Table.of([i / 3, i / 5, 10, 20]),
        )
        for i in range(count // 10)
    )


def vocabulary(count: int) -> t7.Table:
    """``count`` words, each with its number."""
    return t7.Table((f"word{i * 7919}", float(i)) for i in range(count))


def sentences(count: int) -> t7.Table:
    """``count`` words in tables of 19."""
    return t7.Table.of(t7.Table.of(f"word{(i * 19 + j) % 5000}" for j in range(19)) for i in range(count // 20))


def numbers(count: int) -> t7.Table:
    """A table of ``count`` numbers."""
    return t7.Table.of(i / 8 for i in range(count))


def objects(count: int) -> t7.Table:
    """``count`` values: small layers, each with a tensor of its own."""
    return t7.Table.of(
        t7.Object(
            "nn.Linear", t7.Table(weight=t7.Tensor.of([[1.0, float(i)]]), train=False, _type="torch.DoubleTensor")
        )
        for i in range(count // 6)
    )


SMALL_VALUES = {
    "records of words, numbers and tables": records,
    "a vocabulary": vocabulary,
    "sentences": sentences,
    "numbers": numbers,
    "small layers with small tensors": objects,
}
"""Tables of about a million values, by what they are."""
