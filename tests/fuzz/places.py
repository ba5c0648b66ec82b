"""Where the numbers of a file are, and what takes the place of one."""

from __future__ import annotations

import pickletools
import re
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from clearstate.errors import FormatError
from clearstate.formats.data import Source
from clearstate.formats.t7.codec.binary import MISSING, BinaryDecoder
from clearstate.formats.t7.codec.reader import _Reader


class Place(NamedTuple):
    """A number in some bytes.

    Attributes:
        start: where it begins.
        stop: where it ends.
        kind: a code of `struct` with its order (``<q``), ``text``, ``json``, ``octal``, or ``pickle`` for an opcode.
    """

    start: int
    stop: int
    kind: str


SPECIAL = (-1, 0, 1, 2**31 - 1, 2**31, 2**32, 2**40, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63))
"""What numbers are changed to; and to their own offset, their neighbours, their double."""

FLOATS = (float("nan"), float("inf"), float("-inf"), 1e308, -0.5, 2.5, 5e-324)

WORDS = (b"null", b"[]", b"{}", b'"x"', b"1.5", b"1e5", b"-0", b"true", b"9" * 30, b"9" * 5000, b"NaN", b"01")
"""What stands in JSON in place of a number."""

OPCODES = (
    b"N", b"\x88", b"G" + struct.pack(">d", float("nan")), b"X\0\0\0\0", b"X\3\0\0\0abc", b")", b"]", b"}", b"\x8f",
    b"(lp0\n", b"cnumpy\nfloat64\n", b"ctorch\nfloat32\n", b"\x8b" + struct.pack("<i", 2000) + b"\x7f" * 2000,
    b"\x8a\x1f" + b"\x7f" * 31, b"h\0", b"C\2ab", b"K\1\x85", b"K\1K\2\x86", b"ccollections\nOrderedDict\n)R",
)  # fmt: skip
"""What stands in a pickle in place of a number."""


def encoded(place: Place, value: Any) -> bytes:
    """A number as it stands at a place; one that does not fit loses its upper bits."""
    kind = place.kind
    if kind in ("text", "json"):
        return str(value).encode()
    if kind == "octal":
        return f"{int(value) if abs(value) < 2**70 else 0:0{place.stop - place.start - 1}o}".encode()
    if kind == "pickle":
        if isinstance(value, float):
            return b"G" + struct.pack(">d", value)
        whole: bytes = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
        return b"\x8a" + bytes((len(whole),)) + whole
    if kind[1] in "df":
        return struct.pack(kind, float(value))
    size = struct.calcsize(kind)
    number = 0 if isinstance(value, float) else value
    raw: bytes = (number % (1 << 8 * size)).to_bytes(size, "little")
    return raw[::-1] if kind[0] == ">" else raw


def value_at(place: Place, data: bytes) -> float:
    """The number that stands there, or 1."""
    raw = data[place.start : place.stop]
    try:
        if place.kind in ("text", "json"):
            return int(raw)
        if place.kind == "octal":
            return int(raw.strip(b"\0 "), 8)
        if place.kind == "pickle":
            return int(next(iter(pickletools.genops(raw + b".")))[1] or 0)
        number: float = struct.unpack(place.kind, raw)[0]
        return number
    except (ValueError, TypeError, struct.error):
        return 1


class _Noted(BinaryDecoder):
    """Reads value by value, and notes where numbers are."""

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        self.places: list[Place] = []

    def integer(self, expected: str) -> int:
        self.places.append(Place(self.pos, self.pos + 4, f"{self.order}i"))
        return super().integer(expected)

    def longs(self, count: int, expected: str) -> tuple[int, ...]:
        size, code = self.long_size, "q" if self.long_size == 8 else "i"
        self.places += [
            Place(self.pos + i * size, self.pos + (i + 1) * size, f"{self.order}{code}") for i in range(count)
        ]
        return super().longs(count, expected)

    def double(self) -> float:
        self.places.append(Place(self.pos, self.pos + 8, f"{self.order}d"))
        return super().double()

    def entries(self, table: Any, left: int, *_: Any) -> Any:
        return [(table, left)], MISSING

    def torch(self, *_: Any) -> None:
        return None


def of_t7(data: bytes) -> list[Place]:
    """Every int, long and double of a binary file, every word of an ascii one."""
    if data[:1].isdigit():
        return [Place(m.start(), m.end(), "text") for m in re.finditer(rb"(?<!\S)-?[0-9.e+-]+(?!\S)", data)]
    best: list[Place] = []
    for how in ((8, "little"), (4, "little"), (8, "big"), (4, "big")):
        decoder = _Noted(Source(data), *how)
        try:
            _Reader(decoder).read()  # type: ignore[arg-type]
            return decoder.places
        except FormatError:
            best = max(best, decoder.places, key=len)
    return best


_LENGTHS = {
    "BINUNICODE": "<I", "BINBYTES": "<I", "BINSTRING": "<i", "SHORT_BINUNICODE": "<B", "SHORT_BINBYTES": "<B",
    "SHORT_BINSTRING": "<B", "BINUNICODE8": "<Q", "BINBYTES8": "<Q", "BYTEARRAY8": "<Q", "FRAME": "<Q", "BINPUT": "<B",
    "BINGET": "<B", "LONG_BINPUT": "<I", "LONG_BINGET": "<I", "BINFLOAT": ">d", "PROTO": "<B",
}  # fmt: skip
_VALUES = frozenset("BININT BININT1 BININT2 LONG1 LONG4 INT LONG NONE NEWTRUE NEWFALSE".split())


def of_pickles(data: bytes) -> tuple[list[Place], list[Place]]:
    """The numbers in pickles and in what stands between them, and all opcodes."""
    numbers: list[Place] = []
    ops: list[Place] = []
    at = 0
    while at < len(data):
        if data[at] != 0x80 and at:
            end = data.find(b"\x80\x02", at)
            end = len(data) if end < 0 else end
            numbers += [Place(i, i + 8, "<q") for i in range(at, min(end, at + 96) - 7, 8)]
            at = end
            continue
        after = _of_pickle(data, at, numbers, ops)
        if after is None:
            break
        at = after
    return numbers, ops


def _of_pickle(data: bytes, begin: int, numbers: list[Place], ops: list[Place]) -> int | None:
    found: list[tuple[str, int]] = []
    try:
        for op, _, place in pickletools.genops(memoryview(data)[begin:].tobytes()):
            found.append((op.name, begin + (place or 0)))
    except (ValueError, UnicodeError):
        return None
    stop = found[-1][1] + 1
    for (name, start), (_, end) in zip(found, [*found[1:], ("", stop)], strict=True):
        ops.append(Place(start, end, "pickle"))
        if name in _VALUES:
            numbers.append(Place(start, end, "pickle"))
        elif name in _LENGTHS:
            kind = _LENGTHS[name]
            numbers.append(Place(start + 1, start + 1 + struct.calcsize(kind), kind))
    return stop


_ZIP = {
    b"PK\x03\x04": (4, "<HHHHHIIIHH"),
    b"PK\x01\x02": (4, "<HHHHHHIIIHHHHHII"),
    b"PK\x05\x06": (4, "<HHHHIIH"),
    b"PK\x06\x06": (4, "<QHHIIQQQQ"),
    b"PK\x06\x07": (4, "<IQI"),
}


def of_zip(data: bytes) -> list[Place]:
    """The fields of the headers of an archive."""
    places = []
    for match in re.finditer(b"PK(\x03\x04|\x01\x02|\x05\x06|\x06\x06|\x06\x07)", data):
        offset, codes = _ZIP[match[0]]
        at = match.start() + offset
        for code in codes[1:]:
            size = struct.calcsize(f"<{code}")
            if at + size <= len(data):
                places.append(Place(at, at + size, f"<{code}"))
            at += size
    return places


def of_tar(data: bytes) -> list[Place]:
    """The numbers in the headers of an archive, and in its extended headers."""
    places = [
        Place(m.start() - 257 + a, m.start() - 257 + b, "octal")
        for m in re.finditer(b"ustar", data)
        for a, b in ((100, 108), (124, 136), (136, 148), (148, 156))
    ]
    return places + [Place(m.start(1), m.end(1), "text") for m in re.finditer(rb"[0-9]+ \w+=([0-9.]+)\n", data)]


def of_json(data: bytes) -> Iterator[Place]:
    """The numbers in a text of JSON, those in names too."""
    return (Place(m.start(), m.end(), "json") for m in re.finditer(rb"-?[0-9]+", data))
