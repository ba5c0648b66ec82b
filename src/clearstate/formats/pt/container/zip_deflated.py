"""Members of an archive that are deflated: the code of TorchScript programs. They are copied as they lie.

Unpacked they are only to be compared, a piece at a time, and never to more bytes than the archive says.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import zip_longest

import numpy as np

from ....errors import FormatError
from ...data import PIECE, Data, Mapped, Source, raw_bytes

LARGEST = 256 << 20
"""Bytes that a member unpacks to, at most: more than the code of any program."""


class Deflated(Mapped):
    """The deflated bytes of a member.

    Attributes:
        full: how many bytes they unpack to.
        crc: the checksum of those.
    """

    __slots__ = ("crc", "full")

    def __init__(self, source: Source, place: tuple[int, int], full: int, crc: int) -> None:
        super().__init__(source, np.dtype("u1"), [place])
        self.full = full
        self.crc = crc


def unpacked(data: Data) -> Iterator[bytes]:
    """The bytes of a member in order, in pieces, deflated or not.

    Raises:
        FormatError: they are not what the archive says of them: damaged, fewer or more.

    >>> packed = zlib.compress(b"x" * 1000, wbits=-15)
    >>> b"".join(unpacked(Deflated(Source(packed), (0, len(packed)), 1000, zlib.crc32(b"x" * 1000)))) == b"x" * 1000
    True
    """
    if not isinstance(data, Deflated):
        for whole in data.pieces():
            yield bytes(raw_bytes(whole))
        return
    engine = zlib.decompressobj(-zlib.MAX_WBITS)
    count = crc = 0
    try:
        for packed in data.pieces():
            rest = bytes(raw_bytes(packed))
            while rest and not engine.eof:
                piece = engine.decompress(rest, PIECE)
                rest = engine.unconsumed_tail
                count, crc = count + len(piece), zlib.crc32(piece, crc)
                if count > data.full:
                    break
                yield piece
    except zlib.error as error:
        raise FormatError("deflated bytes in a member", str(error), offset=data.runs[0][0]) from None
    if (count, crc) != (data.full, data.crc) or not engine.eof:
        found = "more" if count > data.full else f"{count} bytes, or others"
        what = f"{data.full} bytes in a deflated member, as its checksum says"
        raise FormatError(what, found, offset=data.runs[0][0])


def same(one: Data, other: Data) -> bool:
    """Whether two members hold the same bytes once they are unpacked.

    Raises:
        FormatError: one is damaged.
    """
    if isinstance(one, Deflated) and isinstance(other, Deflated):
        if (one.full, one.crc) != (other.full, other.crc):
            return False
        if one.count == other.count and all(a == b for a, b in zip(_as_it_is(one), _as_it_is(other), strict=True)):
            return True  # copied as it lay, sound or not
    return all(ours == theirs for ours, theirs in zip_longest(_evenly(one), _evenly(other)))


def _as_it_is(data: Mapped) -> Iterator[bytes]:
    return (bytes(raw_bytes(piece)) for piece in data.pieces())


def _evenly(data: Data) -> Iterator[bytes]:
    """The bytes in pieces of one size, whatever pieces they come in."""
    held = bytearray()
    for piece in unpacked(data):
        held += piece
        while len(held) >= PIECE:
            yield bytes(held[:PIECE])
            del held[:PIECE]
    if held:
        yield bytes(held)
