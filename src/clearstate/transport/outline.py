"""Of a large file elsewhere, only the bytes that say how it is built: what `inspect` reads, at the places it has there.

Tensors of a safetensors file and of a zip archive are holes in the copy, which takes no more disk than was fetched.
Files of other sorts have their structure between their numbers, and are fetched whole.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from typing import Any, BinaryIO

from ..errors import ClearstateError

HEAD = 64 << 10
"""Bytes fetched from a file's start; smaller files are fetched whole."""

TAIL = 1 << 20
"""Bytes fetched from a zip archive's end, where its directory is; more where the directory is longer."""

MEMBER = 1 << 10
"""Bytes fetched of each member of an archive: more than its own header takes."""

STRUCTURE = 64 << 10
"""Members up to this size are fetched whole, and so is every pickle."""

LONGEST = 100_000_000
"""Bytes of a safetensors header, at most."""


def fetch_outline(system: Any, place: str, local: str) -> bool:
    """Fetches what says how the file is built.

    Args:
        system: a file system of fsspec.
        place: the file in it.
        local: where the copy goes.

    Returns:
        Whether there is such a copy now; of files of other sorts there is none.
    """
    size = system.size(place)
    if not isinstance(size, int) or size <= 4 * TAIL:
        return False
    head = system.cat_file(place, start=0, end=HEAD)
    with open(local, "wb") as file:
        file.truncate(size)
        file.write(head)
        if head[:4] == b"PK\x03\x04":
            return _archive(system, place, size, file)
        if head[8:9] == b"{" and (length := int.from_bytes(head[:8], "little")) <= min(LONGEST, size):
            _copy(system, place, [(HEAD, 8 + length)], file)
            return True
    os.unlink(local)
    return False


def _archive(system: Any, place: str, size: int, file: BinaryIO) -> bool:
    infos = _members(system, place, size, file)
    whole = [info for info in infos if info.file_size <= STRUCTURE or info.filename.endswith(".pkl")]
    heads = [(info.header_offset, info.header_offset + MEMBER) for info in infos]
    bodies = [(info.header_offset, info.header_offset + MEMBER + info.file_size) for info in whole]
    _copy(system, place, heads + bodies, file)
    return True


def _members(system: Any, place: str, size: int, file: BinaryIO) -> list[zipfile.ZipInfo]:
    """What the archive's directory lists; none where there is no directory: the reader says what is wrong then."""
    for tail in (TAIL, 16 * TAIL, 256 * TAIL):
        _copy(system, place, [(max(size - tail, 0), size)], file)
        try:
            with zipfile.ZipFile(file.name) as archive:
                return archive.infolist()
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError):
            continue
    return []


def _copy(system: Any, place: str, ranges: Sequence[tuple[int, int]], file: BinaryIO) -> None:
    """Copies stretches of the file to their places; those that touch are one request."""
    size = os.fstat(file.fileno()).st_size
    joined: list[list[int]] = []
    for start, stop in sorted((start, min(stop, size)) for start, stop in ranges if start < stop):
        if joined and start <= joined[-1][1] + MEMBER:
            joined[-1][1] = max(joined[-1][1], stop)
        else:
            joined.append([start, stop])
    starts, stops = [start for start, _ in joined], [stop for _, stop in joined]
    pieces = system.cat_ranges([place] * len(joined), starts, stops) if joined else []
    for start, piece in zip(starts, pieces, strict=True):
        if not isinstance(piece, bytes):
            raise ClearstateError(f"{place} could not be read at byte {start}: {piece}")
        file.seek(start)
        file.write(piece)
    file.flush()
