"""Zip archives, written so that the kernel copies what comes from another file; what came deflated stays so.

Every member's bytes begin at a multiple of 64, as PyTorch's do; the header's extra field takes up what is between.
Follows PKWARE's APPNOTE 6.3 (4.3.7 to 4.3.16).
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO

from ...data import Data, append, raw_bytes
from .zip_deflated import Deflated

ALIGNMENT = 64
"""Where members' bytes begin: at multiples of this."""

LIMIT = 0xFFFFFFFF
"""The number from which sizes and places take eight bytes."""

AHEAD = 2
"""Members whose checksums are worked out before their turn."""

DEFLATED = 8
"""The number of the way to pack that deflated members are in."""

DATE = 33
"""The first of January 1980, so that the same values give the same file."""


def write_members(handle: BinaryIO | None, members: Iterable[tuple[str, Data]]) -> int:
    """Writes an archive; returns its bytes. Without a handle nothing is written or read: only the bytes are counted.

    >>> import io, zipfile, numpy
    >>> from clearstate.formats.data import Held
    >>> out = io.BytesIO()
    >>> size = write_members(out, [("a/b", Held(numpy.arange(4, dtype="u1")))])
    >>> zipfile.ZipFile(out).read("a/b"), size == len(out.getvalue())
    (b'\\x00\\x01\\x02\\x03', True)
    """
    at = 0
    directory = bytearray()
    count = 0
    for text, data, crc in _summed(members) if handle is not None else ((*member, 0) for member in members):
        name = text.encode()
        flags = 0 if text.isascii() else 0x800
        size = data.count * data.dtype.itemsize
        full, method = (data.full, DEFLATED) if isinstance(data, Deflated) else (size, 0)
        wide = struct.pack("<HHQQ", 1, 16, size, size) if size >= LIMIT else b""
        padding = -(at + 30 + len(name) + len(wide) + 4) % ALIGNMENT
        extra = wide + struct.pack("<HH", 0x4246, padding) + b"Z" * padding
        shown = (LIMIT, LIMIT) if wide else (size, full)
        version = 45 if wide else 20
        common = struct.pack("<HHHHLLLHH", flags, method, 0, DATE, crc, *shown, len(name), len(extra))
        if handle is not None:
            handle.write(b"PK\x03\x04" + struct.pack("<H", version) + common + name + extra)
            append(data, handle)
        far = [n for n, large in ((size, wide), (size, wide), (at, at >= LIMIT)) if large]
        more = struct.pack(f"<HH{len(far)}Q", 1, 8 * len(far), *far) if far else b""
        version = 45 if far else 20
        fields = struct.pack("<HHHHLLLHH", flags, method, 0, DATE, crc, *shown, len(name), len(more))
        place = struct.pack("<HHHLL", 0, 0, 0, 0, min(at, LIMIT))
        directory += b"PK\x01\x02" + struct.pack("<HH", version, version) + fields + place + name + more
        at += 30 + len(name) + len(extra) + size
        count += 1
    end = _end(at, len(directory), count)
    if handle is not None:
        handle.write(bytes(directory) + end)
    return at + len(directory) + len(end)


def _end(start: int, size: int, count: int) -> bytes:
    """The records after the directory, which say where it is."""
    wide = b""
    if start >= LIMIT or size >= LIMIT or count >= 0xFFFF:
        wide = b"PK\x06\x06" + struct.pack("<QHHLLQQQQ", 44, 45, 45, 0, 0, count, count, size, start)
        wide += b"PK\x06\x07" + struct.pack("<LQL", 0, start + size, 1)
    number = min(count, 0xFFFF)
    return wide + b"PK\x05\x06" + struct.pack("<HHHHLLH", 0, 0, number, number, min(size, LIMIT), min(start, LIMIT), 0)


def _summed(members: Iterable[tuple[str, Data]]) -> Iterator[tuple[str, Data, int]]:
    """Each member with its checksum; those of the next ones are worked out while this one is written."""
    waiting: deque[tuple[str, Data, Future[int]]] = deque()
    with ThreadPoolExecutor(1) as pool:
        for name, data in members:
            waiting.append((name, data, pool.submit(_checksum, data)))
            if len(waiting) > AHEAD:
                yield _awaited(*waiting.popleft())
        while waiting:
            yield _awaited(*waiting.popleft())


def _awaited(name: str, data: Data, crc: Future[int]) -> tuple[str, Data, int]:
    return name, data, crc.result()


def _checksum(data: Data) -> int:
    if isinstance(data, Deflated):
        return data.crc
    crc = 0
    for piece in data.pieces():
        crc = zlib.crc32(raw_bytes(piece), crc)
    return crc
