"""Where a storage's numbers are: mapped in a binary file, as text in an ascii one, or held in memory.

Opening a file makes no copy of any of them; the writer copies the mapped kind from file to file, piece by piece.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Protocol

import numpy as np

from ..errors import FormatError

Array = np.ndarray[Any, Any]

PIECE = 8 << 20
"""Bytes handled at a time when numbers are copied or compared."""

READ = 1 << 19
"""Bytes read from a file at a time: few enough to stay in the processor's cache until they are compared or written."""

SMALL = 1 << 16
"""Bytes of a file up to which reading it whole costs less than mapping it."""


_TO_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0)


class Data(Protocol):
    """A run of ``count`` numbers of type ``dtype``."""

    @property
    def count(self) -> int: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    @property
    def occupies(self) -> int:
        """Bytes they take where they are."""
        ...

    def array(self) -> Array:
        """All numbers, shape ``(count,)``."""
        ...

    def pieces(self) -> Iterator[Array]:
        """The numbers in order, in arrays of at most `PIECE` bytes. Each is good until the next is asked for."""
        ...

    def select(self, runs: Sequence[tuple[int, int]]) -> Data:
        """Only the elements of these ``(start, stop)`` runs, in their order."""
        ...


class Held:
    """Numbers in memory.

    >>> Held(np.arange(6.0)).select([(0, 2), (5, 6)]).array()
    array([0., 1., 5.])
    """

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    @property
    def count(self) -> int:
        return len(self._array)

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self._array.dtype
        return dtype

    @property
    def occupies(self) -> int:
        return self._array.nbytes

    def array(self) -> Array:
        return self._array

    def pieces(self) -> Iterator[Array]:
        return _slices(self._array)

    def select(self, runs: Sequence[tuple[int, int]]) -> Data:
        return Held(np.concatenate([self._array[a:b] for a, b in runs] or [self._array[:0]]))


class Source:
    """The file that numbers are mapped in: its bytes, and a descriptor to copy them from where there is one."""

    __slots__ = ("_spare", "buffer", "fd", "path")

    def __init__(self, buffer: mmap.mmap | bytes, fd: int | None = None, path: str | None = None) -> None:
        self.buffer = buffer
        self.fd = fd
        self.path = path
        self._spare: list[bytearray] = []  # memory of reads that have ended: new memory takes as long as a read

    @classmethod
    def open(cls, path: str) -> Source:
        fd = os.open(path, _TO_READ)
        try:
            size = os.fstat(fd).st_size
            if size > SMALL:
                return cls(mmap.mmap(fd, 0, access=mmap.ACCESS_READ), fd, path)
            buffer = os.read(fd, size)
            while len(buffer) < size and (piece := os.read(fd, size - len(buffer))):
                buffer += piece
            os.close(fd)
            return cls(buffer, path=path)
        except BaseException:
            os.close(fd)
            raise

    def __del__(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def read(self, start: int, stop: int) -> Iterator[memoryview]:
        """The bytes from ``start`` to ``stop``, in pieces, without mapping them in. Each is good until the next."""
        if self.fd is None or not hasattr(os, "preadv"):
            view = memoryview(self.buffer)
            yield from (view[at : min(at + READ, stop)] for at in range(start, stop, READ))
            return
        try:
            memory = self._spare.pop()
        except IndexError:
            memory = bytearray(READ)
        piece = memoryview(memory)
        for at in range(start, stop, READ):
            count = min(READ, stop - at)
            filled = 0
            while filled < count:
                filled += (got := os.preadv(self.fd, [piece[filled:count]], at + filled))
                if not got:
                    raise FormatError(f"{stop - start} bytes from {start} on, as when it was opened", "fewer")
            yield piece[:count]
        self._spare.append(memory)

    def copy(self, start: int, stop: int, handle: BinaryIO) -> None:
        """Appends the bytes from ``start`` to ``stop`` to an open file.

        A ``handle`` that only counts says so by a method ``skip(bytes)``.
        """
        skip = getattr(handle, "skip", None)
        if skip is not None:
            skip(stop - start)
            return
        handle.flush()
        for piece in self.read(start, stop):
            handle.write(piece)


class Mapped:
    """Numbers in a mapped file: ``runs`` of ``(start byte, stop byte)``, one unless some were cut out."""

    __slots__ = ("count", "dtype", "runs", "source")

    def __init__(self, source: Source, dtype: np.dtype[Any], runs: Sequence[tuple[int, int]]) -> None:
        self.source = source
        self.dtype = dtype
        self.runs = runs = tuple(runs)
        if len(runs) == 1:
            self.count = (runs[0][1] - runs[0][0]) // dtype.itemsize
        else:
            self.count = sum(stop - start for start, stop in runs) // dtype.itemsize

    @property
    def occupies(self) -> int:
        return self.count * self.dtype.itemsize

    def array(self) -> Array:
        size = self.dtype.itemsize
        views = [np.frombuffer(self.source.buffer, self.dtype, (b - a) // size, a) for a, b in self.runs if a < b]
        if len(views) == 1:
            return views[0]
        return np.concatenate(views) if views else np.empty(0, self.dtype)

    def pieces(self) -> Iterator[Array]:
        for start, stop in self.runs:
            for piece in self.source.read(start, stop):
                yield np.frombuffer(piece, self.dtype)

    def copy_to(self, handle: BinaryIO) -> None:
        """Appends the numbers to an open file, as they are."""
        for start, stop in self.runs:
            self.source.copy(start, stop, handle)

    def select(self, runs: Sequence[tuple[int, int]]) -> Data:
        if len(self.runs) != 1 or len(runs) > 4096:
            return Held(self.array()).select(runs)
        size = self.dtype.itemsize
        base = self.runs[0][0]
        return Mapped(self.source, self.dtype, [(base + a * size, base + b * size) for a, b in runs])


class Text:
    """Numbers as the text of an ascii file, parsed when asked for and written back as they stood."""

    __slots__ = ("_parse", "count", "dtype", "source", "start", "stop")

    def __init__(
        self,
        source: Source,
        dtype: np.dtype[Any],
        count: int,
        start: int,
        stop: int,
        parse: Callable[[bytes, np.dtype[Any]], Array],
    ) -> None:
        self.source = source
        self.dtype = dtype
        self.count = count
        self.start = start
        self.stop = stop
        self._parse = parse

    @property
    def text(self) -> bytes:
        return self.source.buffer[self.start : self.stop]

    @property
    def occupies(self) -> int:
        return self.stop - self.start

    def array(self) -> Array:
        try:
            return self._parse(self.text, self.dtype)
        except FormatError as error:
            raise FormatError(error.expected, error.found, offset=self.start, path=self.source.path) from None

    def pieces(self) -> Iterator[Array]:
        return _slices(self.array())

    def select(self, runs: Sequence[tuple[int, int]]) -> Data:
        words = self.text.split()
        kept = [word for start, stop in runs for word in words[start:stop]]
        text = b" ".join(kept)
        return Text(Source(text, path=self.source.path), self.dtype, len(kept), 0, len(text), self._parse)


def raw_bytes(array: Array) -> memoryview:
    """The bytes of a contiguous array."""
    return array.view("u1").data


def append(data: Data, handle: BinaryIO) -> None:
    """Appends the numbers to an open file as they are.

    >>> counter = Counter()
    >>> append(Held(np.arange(3.0)), counter)
    >>> counter.count
    24
    """
    if isinstance(data, Mapped):
        data.copy_to(handle)
        return
    for piece in data.pieces():
        handle.write(raw_bytes(piece))


class Counter(io.RawIOBase, BinaryIO):
    """A file that only counts what is written to it; numbers of a mapped file are not read for that."""

    count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.count += len(data)
        return len(data)

    def skip(self, count: int) -> None:
        """Counts bytes that would have been copied from another file."""
        self.count += count


def _slices(array: Array) -> Iterator[Array]:
    step = max(1, PIECE // array.itemsize)
    for start in range(0, len(array), step):
        yield array[start : start + step]
