"""What clearing a file is asked to change, in the words that all formats share."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, NamedTuple, get_args

from ..roles import DROPPED_BY_DEFAULT, Role

DType = Literal["float16", "bfloat16", "float32"]


class Dropped(NamedTuple):
    """Something that clearing takes away.

    Attributes:
        path: where it was.
        role: what it was for.
        what: what it was, in words.

    >>> print(Dropped("lr_schedulers", Role.TRAINING, "schedulers"))
    lr_schedulers (schedulers)
    """

    path: str
    role: Role
    what: str

    def __str__(self) -> str:
        return f"{self.path} ({self.what})"


@dataclass(frozen=True, slots=True)
class Changes:
    """What is to go, what is to stay, and what is to be written otherwise.

    Attributes:
        drop: roles that go.
        dropped: patterns of paths that go, whatever their role.
        kept: patterns of paths that stay, whatever their role.
        use: of a model and its copies, the one to keep: ``ema``, ``model``, ``eval`` (what the optimizer evaluates), or
            the path of a copy.
        unwrap: take the prefixes of wrappers off the names of the state dict.
        dtype: the type that floating parameters are cast to.
        plain: write plain values in place of objects of classes.

    >>> Changes(kept=("optimizer.*",)).fate("optimizer.state", Role.OPTIMIZER)
    False
    """

    drop: frozenset[Role] = DROPPED_BY_DEFAULT
    dropped: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    use: str | None = None
    unwrap: bool = False
    dtype: DType | None = None
    plain: bool = False

    def names(self, path: str) -> bool:
        """Whether a pattern is that of this path.

        >>> Changes(kept=("optimizer.*",)).names("optimizer.state")
        True
        """
        return any(matches(path, pattern) for pattern in (*self.kept, *self.dropped))

    def fate(self, path: str, role: Role | None) -> bool:
        """Whether what is at this path goes. A pattern has the last word, and one to keep before one to drop."""
        if any(matches(path, pattern) for pattern in self.kept):
            return False
        return role in self.drop or any(matches(path, pattern) for pattern in self.dropped)

    @property
    def only_roles(self) -> bool:
        """Whether nothing is asked for but that roles go."""
        return self == Changes(self.drop)


def choices() -> dict[str, tuple[str, ...]]:
    """The words that each choice has.

    >>> choices()["dtype"]
    ('float16', 'bfloat16', 'float32')
    """
    return {"dtype": get_args(DType)}


def matches(path: str, pattern: str) -> bool:
    """Whether a path is what a pattern says: itself, or with ``*``, ``?`` and ``[...]`` as in names of files.

    >>> matches("state_dict.head.weight", "*.head.*")
    True
    """
    return path == pattern or fnmatchcase(path, pattern)


FOREIGN: dict[str, str] = {
    ".onnx": "an ONNX model",
    ".npy": "a NumPy array",
    ".npz": "NumPy arrays",
    ".h5": "an HDF5 file",
    ".hdf5": "an HDF5 file",
    ".keras": "a Keras model",
    ".gguf": "a GGUF model",
    ".ggml": "a GGML model",
    ".msgpack": "a Flax model",
    ".tflite": "a TensorFlow Lite model",
    ".pb": "a TensorFlow graph",
    ".caffemodel": "a Caffe model",
    ".mlmodel": "a Core ML model",
    ".mat": "a MATLAB file",
    ".json": "a JSON file",
    ".txt": "a text",
    ".html": "a page",
    ".py": "Python's source",
    ".gz": "a compressed file",
    ".xz": "a compressed file",
    ".bz2": "a compressed file",
    ".zst": "a compressed file",
}
"""What files are called that no command clears into, by the endings of their names."""


def asked_by(target: str, source: str, endings: Mapping[str, str]) -> str | None:
    """What a new file's name asks for by its ending, of these; nothing where the old file's ends so, too.

    >>> asked_by("a.onnx", "a.pt", FOREIGN), asked_by("a.pt", "b.pt", FOREIGN), asked_by("a.gz", "b.gz", FOREIGN)
    ('an ONNX model', None, None)
    """
    ending = os.path.splitext(target)[1].lower()
    return None if ending == os.path.splitext(source)[1].lower() else endings.get(ending)
