"""What is this file? Says so, and what to do next.

Looks at a file's first and last bytes, believes nothing they claim, and answers with one of
`kinds.KINDS`. The first of `TESTS` that knows a file names its kind.
"""

from __future__ import annotations

import bz2
import lzma
import os
import re
import stat
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import WrongFormat
from .kinds import KINDS, NOT_WHOLE, Kind
from .peek import TAIL, Found, Peek

LONGEST_HEADER = 100_000_000
"""Bytes that the safetensors format allows its header; up to `HEADER_READ` of them are read, for its offsets."""
HEADER_READ = 16 << 20


MAGIC: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "pytorch-legacy", ""),
    (0, b"\x93NUMPY", "npy", ""),
    (0, b"MATLAB 5.0 MAT-file", "mat", ""),
    (4, b"TFL3", "tflite", ""),
    (0, b"GGUF", "gguf", ""),
    (0, b"\x12\x01\0\0\0\0\0\0", "mxnet", ""),
    (0, b"\0\0\0\0\x01\0\0\0\0\0\0\0", "darknet", ""),
    (0, b"\0\0\0\0\x02\0\0\0\0\0\0\0", "darknet", ""),
    (0, b"\0\0\0\0\x02\0\0\0\x05\0\0\0", "darknet", ""),
    (0, b"\x28\xb5\x2f\xfd", "zstd", ""),
    (0, b"\x04\x22\x4d\x18", "lz4", ""),
    (0, b"7z\xbc\xaf\x27\x1c", "7z", ""),
    (0, b"Rar!\x1a\x07", "rar", ""),
    (0, b"\x89PNG\r\n", "image", "PNG"),
    (0, b"\xff\xd8\xff", "image", "JPEG"),
    (0, b"GIF8", "image", "GIF"),
    (0, b"%PDF-", "pdf", ""),
    (0, b"\x7fELF", "program", "ELF"),
    (0, b"\xcf\xfa\xed\xfe", "program", "Mach-O"),
    (0, b"\x1bLJ", "lua-bytecode", ""),
    (0, b"\x1bLua", "lua-bytecode", ""),
    (0, b"/annex/objects/", "git-annex", ""),
    (0, b"%YAML:1.0", "opencv", ""),
)
"""Bytes that settle it: where they stand, what they are, the kind they mean, and its ``{what}``."""


def sniff(path: str | os.PathLike[str]) -> Kind:
    """What a file is, from its first 8 KB and, for some kinds, its last 64 KB.

    Args:
        path: any file; a folder or a device has a kind too.

    Raises:
        OSError: there is no such file, or it cannot be read.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "net.t7")
    >>> _ = path.write_bytes(b"\\x93NUMPY")
    >>> sniff(path).name
    'npy'
    """
    mode = os.stat(path).st_mode
    if stat.S_ISDIR(mode):
        shards = os.path.isfile(os.path.join(path, ".metadata")) and any(map(_is_shard, os.listdir(path)))
        return _kind(Found("pytorch-distributed", words={"what": "a folder"}) if shards else Found("folder"))
    if not stat.S_ISREG(mode):
        return _kind(Found("device"))
    with open(path, "rb", buffering=0) as handle:

        def read(start: int, count: int) -> bytes:
            handle.seek(start)
            return handle.read(count)

        return _sniff(Peek(os.fstat(handle.fileno()).st_size, read, os.path.basename(path)))


def sniff_bytes(data: bytes) -> Kind:
    """What a file of these bytes would be.

    >>> sniff_bytes(b"<!DOCTYPE html><title>Sign in</title>").description
    'an HTML page titled "Sign in"'
    """
    return _sniff(Peek.of(data))


def refuse(path: str | os.PathLike[str]) -> WrongFormat | None:
    """Why a file that no reader took is none for them; ``None`` if nobody knows.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "net.t7")
    >>> path.touch()
    >>> print(refuse(path))
    /.../net.t7 is an empty file. Download or copy it again: not one byte arrived.
    """
    try:
        kind = sniff(path)
    except OSError:
        return None
    return None if kind.name in ("t7", "unknown") else WrongFormat(kind.description, kind.advice, path=path)


def _sniff(peek: Peek) -> Kind:
    for test in TESTS:
        found = test(peek)
        if found is not None:
            return _kind(found)
    return _kind(Found("unknown"))


def _kind(found: Found) -> Kind:
    words = defaultdict(str, found.words)
    description, advice = (text.format_map(words) for text in KINDS[found.name])
    if found.cut:
        return Kind(found.name, f"{description} that is cut off: {found.cut}", NOT_WHOLE, whole=False)
    return Kind(found.name, description, advice)


def _clean(text: str, most: int = 80) -> str:
    """Text from a file, safe to print: one line, nothing invisible, not long."""
    line = "".join(c for c in " ".join(text.split()) if c.isprintable())
    return line if len(line) <= most else line[: most - 3] + "..."


def _nothing(peek: Peek) -> Found | None:
    if not peek.size:
        return Found("empty")
    # A Torch7 file of zeros is a nil, 4 bytes.
    return Found("zeros") if peek.size > 4 and not any(peek.head) and not any(peek.tail) else None


def _magic(peek: Peek) -> Found | None:
    for at, magic, name, what in MAGIC:
        if peek.head.startswith(magic, at):
            return Found(name, words={"what": what})
    return None


def _safetensors(peek: Peek) -> Found | None:
    length = peek.number(0, 8)
    if peek.head[8:9] != b"{" or not 2 <= length <= LONGEST_HEADER:
        return None
    if 8 + length > peek.size:
        is_one = b'"dtype"' in peek.head or b'"__metadata__"' in peek.head
        return Found("safetensors", peek.missing(8 + length, "at least ")) if is_one else None
    header = peek.read(8, min(length, HEADER_READ))
    ends = re.findall(rb'"data_offsets"\s*:\s*\[\s*\d{1,19}\s*,\s*(\d{1,19})\s*\]', header)
    least = "" if length <= HEADER_READ else "at least "
    return Found("safetensors", peek.missing(8 + length + max(map(int, ends), default=0), least))


HDF5_SUPERBLOCK = {0: (13, 40), 1: (13, 44), 2: (9, 28), 3: (9, 28)}
"""By version: where the size of an offset stands, and where the file's end."""


def _hdf5(peek: Peek) -> Found | None:
    for at in (0, 512, 1024, 2048, 4096):
        if peek.head.startswith(b"\x89HDF\r\n\x1a\n", at):
            version = peek.number(at + 8, 1)
            offset_size_at, end_at = HDF5_SUPERBLOCK.get(version, (0, 0))
            known = peek.number(at + offset_size_at, 1) == 8
            return Found("hdf5", peek.missing(peek.number(at + end_at, 8)) if known else "")
    return None


def _zip(peek: Peek) -> Found | None:
    if not peek.head.startswith((b"PK\3\4", b"PK\5\6")):
        return None
    if _is_shard(peek.name):
        return Found("pytorch-distributed", words={"what": "a shard"})
    names = list(_zip_names(peek))
    cut = _zip_cut(peek)
    base = {name.partition("/")[2] for name in names}
    if base & {"data.pkl"} and not cut and _zip_start(peek) > 0:
        return Found("pytorch-row")
    both = {*base, *names}
    if both & {"archive_format", "archive_version", "serialized_exported_program.json", "models/model.json"}:
        compiled = any("data/aotinductor/" in name for name in names)
        exported = any(re.search(r"(?:^|/)models/[^/]+\.json$", name) for name in names)
        return Found("pytorch-compiled" if compiled and not exported else "pytorch-export", cut)
    if ".data/extern_modules" in both:
        return Found("pytorch-package", cut)
    if base & {"data.pkl", ".data/serialization_id", ".format_version"}:
        program = "constants.pkl" in base or any(name.startswith("code/") for name in base)
        return Found("torchscript" if program else "pytorch-zip", cut)
    if "model.weights.h5" in names:
        return Found("keras", cut)
    if names and all(name.endswith(".npy") for name in names):
        return Found("npz", cut)
    model = next((name for name in names if name.endswith(".t7")), None)
    return Found("zip", cut, {"holding": f" that holds {_clean(model)}" if model else ""})


def _zip_names(peek: Peek) -> Iterator[str]:
    """Names of a zip's first members, from their own heads, and of its last ones, from its directory."""
    for magic, data, size_at, name_at in (b"PK\3\4", peek.head, 26, 30), (b"PK\1\2", peek.tail, 28, 46):
        for match in re.finditer(re.escape(magic), data):
            at = match.start()
            size = min(int.from_bytes(data[at + size_at : at + size_at + 2], "little"), 512)
            yield data[at + name_at : at + name_at + size].decode("utf-8", "replace")


def _zip_cut(peek: Peek) -> str:
    at = peek.tail.rfind(b"PK\5\6")
    if at < 0 or len(peek.tail) < at + 22:
        return "its end is missing"
    return peek.missing(peek.size - _zip_start(peek))


def _zip_start(peek: Peek) -> int:
    """Where a zip's bytes begin: at 0, or behind others; below 0 where its first ones are missing."""
    at = peek.tail.rfind(b"PK\5\6")
    size, start = (int.from_bytes(peek.tail[at + i : at + i + 4], "little") for i in (12, 16))
    wide = peek.tail.rfind(b"PK\6\6", 0, at) if peek.tail[max(at - 20, 0) : at].startswith(b"PK\6\7") else -1
    if wide >= 0 or 0xFFFFFFFF in (size, start):  # of more than 4 GB, and PyTorch's: in a larger record before it
        at = wide
        size, start = (int.from_bytes(peek.tail[at + i : at + i + 8], "little") for i in (40, 48))
    return max(0, peek.size - TAIL) + at - size - start if at >= 0 else 0


def _is_shard(name: str) -> bool:
    """Whether a file is called as torch.distributed.checkpoint calls its shards: `__0_0.distcp`."""
    return name.lower().endswith(".distcp")


def _tar(peek: Peek) -> Found | None:
    if not peek.head.startswith(b"ustar", 257):
        return None
    first = peek.head[:100].rstrip(b"\0")
    return Found("pytorch-tar" if first in (b"sys_info", b"pickle", b"tensors", b"storages") else "tar")


_Opener = Callable[[], Any]
COMPRESSED: tuple[tuple[bytes, str, str, _Opener], ...] = (
    (b"\x1f\x8b\x08", "gzip", "gunzip", lambda: zlib.decompressobj(31)),
    (b"BZh", "bzip2", "bunzip2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ\0", "xz", "unxz", lambda: lzma.LZMADecompressor(memlimit=64 << 20)),
)


def _compressed(peek: Peek) -> Found | None:
    for magic, name, command, opener in COMPRESSED:
        if not peek.head.startswith(magic):
            continue
        try:
            inner = Peek.of(opener().decompress(peek.head, 512))
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError):
            inner = Peek.of(b"")
        if _tar(inner):
            return Found(name, words={"inside": "tar archive", "unpack": "tar xf FILE"})
        inside = "Torch7 file" if _torch7(inner) else "file"
        return Found(name, words={"inside": inside, "unpack": f"{command} < FILE > NEW"})
    return None


def _pointer(peek: Peek) -> Found | None:
    if re.match(r"version https?://\S*(?:git-lfs|hawser)\S*\s", peek.text):
        said = dict(re.findall(r"^(oid|size) (?:sha256:)?([0-9a-f]{1,64})\s*$", peek.text, re.M))
        size = said.get("size", "")
        size = f"{int(size):,}" if size.isdecimal() else "?"
        return Found("git-lfs", words={"size": size, "oid": said.get("oid", "?")})
    return None


def _markup(peek: Peek) -> Found | None:
    text = peek.text.lstrip()
    if not text.startswith("<"):
        return None
    page = r"(?:<\?xml[^>]*>\s*|<!--(?:(?!-->).)*-->\s*)*<(?:!doctype\s+html|html|head|body|title|meta|script)\b"
    if re.match(page, text, re.I | re.S):
        title = re.search(r"<title[^<>]*>([^<]+)", text, re.I)
        return Found("html", words={"title": f' titled "{_clean(title[1])}"' if title else ""})
    if "<opencv_storage>" in text:
        return Found("opencv")
    if error := re.search(r"<Error>\s*<Code>([^<]+)", text):
        return Found("web-error", words={"text": _clean(error[1])})
    return Found("xml") if text.startswith("<?xml") else None


SERVERS_SAY = r"""(?ix)
    (?:error:?\s+)? (?:[45]\d\d:?\s+)?
    (?: (?:(?:entry|repository|revision|page|file|object|key)\s+)? not\ found
      | access\ (?:to|denied) | invalid\ (?:user|cred|token) | unauthori[sz]ed | forbidden | moved\ permanently
      | bad\ (?:gateway|request) | internal\ server\ error | service\ unavailable | gateway\ time
      | too\ many\ requests | rate\ limit | request\ has\ expired )"""


def _web_error(peek: Peek) -> Found | None:
    """A short text that a server sends when it does not send the file."""
    text = peek.text.strip()
    if peek.size > 2048:
        return None
    if text.startswith("{"):
        said = re.search(r'"(?:error|message|detail)"\s*:\s*"([^"]+)"', text)
        return Found("web-error", words={"text": _clean(said[1])}) if said else None
    return Found("web-error", words={"text": _clean(text)}) if re.match(SERVERS_SAY, text) else None


def _source(peek: Peek) -> Found | None:
    """Text of some known sort."""
    text = peek.text
    if re.match(r'\s*(?:\{\s*["}]|\[\s*["{\[\]\d-])', text):
        return Found("safetensors-index" if '"weight_map"' in text else "json")
    if re.search(r"^[ \t]*layers?\s*\{", text, re.M) and re.search(r"^[ \t]*name\s*:", text, re.M):
        return Found("caffe-text")
    packages = r"(?:torch|nn\w*|cunn\w*|cutorch|cudnn|optim|image|paths)\b"
    if re.search(rf"^[ \t]*(?:local[ \t]+\w+|require[ \t]*\(?[ \t]*['\"]{packages})", text, re.M):
        return Found("lua")
    return None


def _pickle(peek: Peek) -> Found | None:
    head = peek.head
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        if b"torch.distributed.checkpoint.metadata" in head[:64]:
            return Found("pytorch-distributed", words={"what": "the metadata"})
        return Found("pickle")
    old = re.match(rb"\(?[dl]p\d+\r?\n|c[\w.]+\r?\n[\w.]+\r?\n|[}\]]q.|\(i[\w.]+\r?\n", head, re.S)
    return Found("pickle") if old and peek.tail.rstrip().endswith(b".") else None


def _torch7_before_2012(peek: Peek) -> Found | None:
    from .t7.codec.before_2012 import of_head  # which loads NumPy

    what = of_head(peek.head)
    return Found("t7-before-2012", words={"what": what}) if what else None


def _torch7(peek: Peek) -> Found | None:
    """A type number, 0 to 8: binary of either byte order, or as text before another number."""
    if peek.size >= 4 and min(peek.number(0, 4), peek.number(0, 4, "big")) <= 8:
        return Found("t7")
    return Found("t7") if re.match(rb"\s*(?:0\s*\Z|1\s+[-+.\dni]|[2-8]\s+\d+\s)", peek.head) else None


CAFFE_NEXT = (b"\x12", b"\x1a", b"\xa2\x06")
"""What follows the net's name in a Caffe model: an old layer, an input, a layer."""


def _protobuf(peek: Peek) -> Found | None:
    """Models in Google's protobuf, which has no magic: their first fields are looked at."""
    head = peek.head
    if re.match(rb"\x08[\x03-\x14][\x12\x1a\x22\x28\x32\x3a\x42]", head):
        return Found("onnx")
    if head.startswith(b"\x08\x01\x12"):
        return Found("tensorflow", words={"what": "SavedModel"})
    if re.match(rb"\x0a[^\0]{1,3}\x0a[^\0][ -~]+\x12[^\0][A-Z]\w+", head):
        return Found("tensorflow", words={"what": "graph"})
    end = 2 + peek.number(1, 1)
    if head[:1] == b"\x0a" and re.fullmatch(rb"[ -~]+", head[2:end]) and head.startswith(CAFFE_NEXT, end):
        return Found("caffe")
    if peek.tail.endswith(b"\x57\xfb\x80\x8b\x24\x75\x47\xdb"):
        return Found("tensorflow", words={"what": "checkpoint's index"})
    return None


def _text(peek: Peek) -> Found | None:
    return Found("text") if peek.text.strip() else None


TESTS: tuple[Callable[[Peek], Found | None], ...] = (
    _nothing,
    _magic,
    _safetensors,
    _hdf5,
    _zip,
    _tar,
    _compressed,
    _torch7_before_2012,
    _torch7,
    _pickle,
    _protobuf,
    _pointer,
    _markup,
    _web_error,
    _source,
    _text,
)
"""In this order: what a few bytes settle comes first, what only looks like something last."""
