"""A file that is no Torch7 file is named for what it is, with the next step."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import random
import struct
import tarfile
import tempfile
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearstate.formats.kinds import KINDS, Kind
from clearstate.formats.peek import HEAD, TAIL
from clearstate.formats.sniff import MAGIC, refuse, sniff, sniff_bytes
from tests.recordings import DIGITS, PUBLIC, RECORDED, paths, short


def zipped(*names: str, data: bytes = b"x" * 1000, comment: bytes = b"") -> bytes:
    handle = io.BytesIO()
    with zipfile.ZipFile(handle, "w") as archive:
        for name in names:
            archive.writestr(name, data)
        archive.comment = comment
    return handle.getvalue()


def tarred(name: str, data: bytes = b"data") -> bytes:
    handle = io.BytesIO()
    with tarfile.open(fileobj=handle, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        archive.addfile(info, io.BytesIO(data))
    return handle.getvalue()


def safetensors(size: int = 16, header: str = "", padding: int = 0) -> bytes:
    text = header or json.dumps(
        {
            "__metadata__": {"say": '"data_offsets":[0,99999]'},
            "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        }
    )
    text += " " * padding
    return struct.pack("<Q", len(text)) + text.encode() + b"\1" * size


def hdf5(version: int, end: int, size: int, before: int = 0) -> bytes:
    head = b"\x89HDF\r\n\x1a\n" + bytes([version])
    head += bytes([0, 0, 0, 0, 8, 8]).ljust(31, b"\0") if version < 2 else bytes([8, 8, 0]).ljust(19, b"\0")
    head += b"\0" * (4 if version == 1 else 0) + struct.pack("<Q", end)
    return (b"\0" * before + head).ljust(size, b"\1")


def npy() -> bytes:
    handle = io.BytesIO()
    np.save(handle, np.arange(3))
    return handle.getvalue()


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 7123456789\n"
PYTORCH = zipped("net/data.pkl", "net/byteorder", "net/data/0", "net/version", "net/.data/serialization_id")
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}q\x00."
T7 = bytes.fromhex("04000000 01000000 03000000") + b"V 1"

SAMPLES: list[tuple[str, bytes, str, str]] = [
    ("t7", T7, "a Torch7 file", ""),
    ("t7", bytes.fromhex("00000004 00000001 00000003") + b"V 1", "a Torch7 file", ""),
    ("t7", b"4\n1\n3\nV 1\n13\nnn.Sequential\n", "a Torch7 file", ""),
    (
        "t7-before-2012",
        b"4\n1\n3\nV 1\n13\nnn.Sequential\n4\n2\n3\nV 1\n18\ntorch.DoubleTensor\n",
        "a Torch7 file of the layout before 2012: a nn.Sequential is written",
        "Only the Torch of its day",
    ),
    ("t7", b"1\n-nan\n", "a Torch7 file", ""),
    ("t7", b"0\n", "a Torch7 file", ""),
    ("t7", b"\0\0\0\0", "a Torch7 file", ""),
    ("empty", b"", "an empty file", "not one byte"),
    ("zeros", b"\0" * 5000, "a file of zeros only", "never filled"),
    ("git-lfs", LFS, "a Git LFS pointer", "7,123,456,789 bytes (sha256 4d7a2146): run `git lfs pull`"),
    ("git-lfs", LFS.replace(b"\n", b"\r\n"), "a Git LFS pointer", "7,123,456,789 bytes"),
    ("git-lfs", LFS[:50], "a Git LFS pointer", "git lfs pull"),
    ("git-annex", b"/annex/objects/SHA256E-s5--ab.t7\n", "a git-annex pointer", "git annex get"),
    ("html", b"<!DOCTYPE html>\n<html><title>Sign in</title>", 'an HTML page titled "Sign in"', "check the address"),
    ("html", b"\xef\xbb\xbf\n <!-- a --><!-- b -->\n<HTML>", "an HTML page", "in place of the file"),
    ("html", "<html><title>Fichier supprim\xe9</title>".encode("latin-1"), "an HTML page", ""),
    ("html", "<html><title>Wide</title>".encode("utf-16"), 'an HTML page titled "Wide"', ""),
    ("html", b'<?xml version="1.0"?><!DOCTYPE html><html>', "an HTML page", ""),
    (
        "web-error",
        b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>',
        "answer (AccessDenied)",
        "address",
    ),
    ("web-error", b"Entry not found", "a web server's answer (Entry not found)", "check the address"),
    ("web-error", b"Invalid username or password.", "a web server's answer (Invalid username", "login"),
    ("web-error", b"404: Not Found", "a web server's answer (404: Not Found)", ""),
    ("web-error", b'{"error":"Repository not found"}', "a web server's answer (Repository not found)", ""),
    ("web-error", b'{"error":{"code":403,"message":"No access"}}', "a web server's answer (No access)", ""),
    ("pytorch-zip", PYTORCH, "a PyTorch checkpoint (zip)", "clearstate reads it"),
    ("pytorch-zip", PYTORCH[: len(PYTORCH) // 2], "(zip) that is cut off: its end is missing", "Download it again"),
    (
        "pytorch-zip",
        PYTORCH[:2000] + PYTORCH[2100:],
        "(zip) that is cut off: 100 bytes are missing",
        "Download it again",
    ),
    (
        "torchscript",
        zipped("m/data.pkl", "m/code/__torch__.py", "m/constants.pkl"),
        "a TorchScript program",
        "clearstate reads it",
    ),
    ("pytorch-export", zipped("archive_format", "models/model.json"), "a program saved by torch.export", "export.load"),
    (
        "pytorch-export",
        zipped("ep/data/weights/weight_0", "ep/models/model.json", "ep/archive_format", "ep/.data/serialization_id"),
        "a program saved by torch.export",
        "opens with torch.export.load",
    ),
    (
        "pytorch-compiled",
        zipped("m/data/aotinductor/model/c.wrapper.so", "m/archive_format", "m/.data/serialization_id"),
        "a program compiled by AOTInductor",
        "opens with torch._inductor.aoti_load_package",
    ),
    (
        "pytorch-package",
        zipped("p/model/model.pkl", "p/.data/extern_modules", "p/.data/version"),
        "a package of torch.package",
        "opens with torch.package.PackageImporter",
    ),
    (
        "pytorch-distributed",
        b"\x80\x04\x95\x10\0\0\0\0\0\0\0\x8c%torch.distributed.checkpoint.metadata\x94\x8c\x08Metadata",
        "the metadata of torch.distributed.checkpoint",
        "dcp_to_torch_save",
    ),
    ("pytorch-row", PYTORCH + PYTORCH, "several PyTorch checkpoints in a row", "each in a file of its own"),
    ("pytorch-legacy", LEGACY, "a PyTorch checkpoint (from before 1.6)", "clearstate reads it"),
    ("pytorch-tar", tarred("sys_info"), "a PyTorch checkpoint (from before 0.2)", "clearstate reads it"),
    *(
        ("pickle", pickle.dumps({"a": [1]}, protocol), "a Python pickle", "clearstate reads it")
        for protocol in range(6)
    ),
    *(("pickle", pickle.dumps(Path("x"), protocol), "a Python pickle", "") for protocol in range(6)),
    ("safetensors", safetensors(), "a safetensors file", "clearstate reads it"),
    ("safetensors", safetensors(5), "a safetensors file that is cut off: 11 bytes are missing", "Download it again"),
    ("safetensors", safetensors(padding=20_000)[:9000], "cut off: at least 1", "Download it again"),
    ("safetensors", safetensors(0, "{}"), "a safetensors file", ""),
    ("safetensors-index", b'{"metadata": {}, "weight_map": {}}', "the index of a model", "clearstate reads it"),
    ("hdf5", hdf5(0, 5000, 5000), "an HDF5 file", "h5py"),
    ("hdf5", hdf5(0, 5000, 4900), "that is cut off: 100 bytes are missing", "Download it again"),
    ("hdf5", hdf5(1, 5000, 4900), "that is cut off: 100 bytes are missing", ""),
    ("hdf5", hdf5(2, 5000, 4900), "that is cut off: 100 bytes are missing", ""),
    ("hdf5", hdf5(3, 5000, 4900, before=512), "that is cut off: 100 bytes are missing", ""),
    ("hdf5", hdf5(0, 1 << 62, 4900), "an HDF5 file (Keras, MATLAB 7.3, ...)", "h5py"),
    ("hdf5", hdf5(9, 5000, 100), "an HDF5 file", ""),
    ("keras", zipped("metadata.json", "config.json", "model.weights.h5"), "a Keras model", "keras.models.load_model"),
    ("onnx", b"\x08\x07\x12\x07pytorch\x1a\x051.7.0", "an ONNX model", "onnx package"),
    ("tensorflow", b"\x08\x01\x12\xaa\x03\x0a\x20", "a TensorFlow SavedModel", "TensorFlow"),
    ("tensorflow", b"\x0a\x3b\x0a\x05input\x12\x0bPlaceholder", "a TensorFlow graph", ""),
    ("tensorflow", b"\xff" * 99 + b"\x57\xfb\x80\x8b\x24\x75\x47\xdb", "a TensorFlow checkpoint's index", ""),
    ("tflite", b"\x1c\0\0\0TFL3\x14\0", "a TensorFlow Lite model", ""),
    ("caffe", b"\x0a\x07AlexNet\x12\x20\x0a\x04", "a Caffe model", "Caffe"),
    ("caffe", b"\x0a\x05VGG_M\xa2\x06\x20\x0a\x04", "a Caffe model", "Caffe"),
    ("caffe-text", b'name: "LeNet"\nlayer {\n  name: "data"\n', "a Caffe network description", "no weights"),
    ("opencv", b"%YAML:1.0\n---\nmat: !!opencv-matrix\n", "an OpenCV file storage", "cv2.FileStorage"),
    ("opencv", b'<?xml version="1.0"?>\n<opencv_storage>\n', "an OpenCV file storage", ""),
    ("darknet", struct.pack("<iiiq", 0, 2, 0, 32013312) + b"\1" * 40, "a file of Darknet weights", ""),
    ("mxnet", b"\x12\x01" + b"\0" * 14 + b"\5", "a file of MXNet parameters", ""),
    ("gguf", b"GGUF\3\0\0\0", "a GGUF model", ""),
    ("npy", npy(), "a NumPy array", "numpy.load"),
    ("npz", zipped("a.npy", "b.npy"), "an archive of NumPy arrays", "numpy.load"),
    ("mat", b"MATLAB 5.0 MAT-file, Platform", "a MATLAB file", "scipy"),
    ("gzip", gzip.compress(T7), "a gzip-compressed Torch7 file", "gunzip < FILE > NEW"),
    ("gzip", gzip.compress(b"hello"), "a gzip-compressed file", "gunzip"),
    ("gzip", gzip.compress(tarred("net.t7")), "a gzip-compressed tar archive", "tar xf FILE"),
    ("gzip", b"\x1f\x8b\x08broken", "a gzip-compressed file", "gunzip"),
    ("bzip2", bz2.compress(T7), "a bzip2-compressed Torch7 file", "bunzip2"),
    ("xz", lzma.compress(T7), "an xz-compressed Torch7 file", "unxz"),
    ("xz", lzma.compress(T7)[:20], "an xz-compressed file", "unxz"),
    ("zstd", b"\x28\xb5\x2f\xfd\x04\0", "a zstd-compressed file", "unzstd"),
    ("lz4", b"\x04\x22\x4d\x18\0", "an lz4-compressed file", ""),
    ("7z", b"7z\xbc\xaf\x27\x1c\0", "a 7z archive", "7z x"),
    ("rar", b"Rar!\x1a\x07\0", "a RAR archive", "unrar"),
    ("zip", zipped("models/net.t7", "README"), "a zip archive that holds models/net.t7", "unzip"),
    ("zip", zipped("README"), "a zip archive", "unzip"),
    ("zip", zipped(), "a zip archive", "unzip"),
    ("zip", zipped("a", "b", comment=b"c" * 65535), "a zip archive", "unzip"),
    ("zip", zipped("README")[:-10], "a zip archive that is cut off: its end is missing", "Download it again"),
    ("tar", tarred("net.t7"), "a tar archive", "tar xf"),
    ("image", b"\x89PNG\r\n\x1a\n", "a picture (PNG)", "own file"),
    ("pdf", b"%PDF-1.7", "a PDF document", ""),
    ("program", b"\x7fELF\2\1", "a compiled program (ELF)", ""),
    ("lua", b"require 'nn'\nlocal net = nn.Sequential()\n", "Lua source code", "torch.save"),
    ("lua", b"#!/usr/bin/env th\n-- a net\nrequire('torch')\n", "Lua source code", ""),
    ("lua-bytecode", b"\x1bLJ\x02\x02", "compiled Lua code", ""),
    ("json", b'{"a": 1}', "a JSON file", ""),
    ("json", b"[[1, 2], [3, 4]]", "a JSON file", ""),
    ("xml", b"<?xml version='1.0'?><svg/>", "an XML file", ""),
    ("text", b"3 steps to a model\n", "a text file", "own file"),
    ("text", b"import torch\nimport torch.nn as nn\n", "a text file", ""),
    ("unknown", b"\x93\x12\xfe\x81" * 30, "of no kind that clearstate knows", "where this one comes from"),
    ("unknown", b"\4\0", "of no kind", ""),
]


@pytest.mark.parametrize("name, data, description, advice", SAMPLES, ids=[f"{s[0]}-{i}" for i, s in enumerate(SAMPLES)])
def test_a_file_is_named_for_what_it_is_with_the_next_step(
    name: str, data: bytes, description: str, advice: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.t7"
    path.write_bytes(data)
    kind = sniff(path)
    assert kind == sniff_bytes(data)
    assert kind.name == name
    assert description in kind.description
    assert advice in kind.advice
    error = refuse(path)
    if name in ("t7", "unknown"):
        assert error is None
    else:
        assert str(error) == f"{path} is {kind.description}. {kind.advice}"


def test_every_kind_has_a_sample() -> None:
    assert {sample[0] for sample in SAMPLES} | {"folder", "device"} == set(KINDS)


def test_every_kind_of_the_tables_has_its_texts() -> None:
    assert {name for _, _, name, _ in MAGIC} <= set(KINDS)
    for description, advice in KINDS.values():
        assert not description.endswith(".")
        assert advice[0].isupper() or advice.startswith("clearstate")


def test_a_folder_and_a_pipe_are_not_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert sniff(tmp_path).name == "folder"
    assert sniff(pipe).name == "device"  # opening it would wait for a writer for ever


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sniff(tmp_path / "none")
    assert refuse(tmp_path / "none") is None


def test_a_file_that_torch7_wrote_is_a_torch7_file() -> None:
    assert not [short(path) for path in RECORDED if sniff(path).name != "t7"]


@pytest.mark.parametrize("path", paths(PUBLIC))
def test_a_torch7_file_from_the_wild_is_a_torch7_file(path: Path) -> None:
    assert sniff(path).name == "t7"


def test_a_cut_torch7_file_stays_a_torch7_file(tmp_path: Path) -> None:
    """Its reader's error says where it ends, which is more than a kind could."""
    whole = (DIGITS / "digits-test.t7").read_bytes()
    path = tmp_path / "net.t7"
    for size in (4, 5, 12, 100, 5000):
        path.write_bytes(whole[:size])
        assert refuse(path) is None


def test_what_pytorch_writes_is_known(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "net.pt"
    torch.save({"a": torch.zeros(3)}, path)
    assert sniff(path).name == "pytorch-zip"
    path.write_bytes(path.read_bytes()[:-30])
    assert "cut off" in sniff(path).description
    torch.save({"a": torch.zeros(3)}, path, _use_new_zipfile_serialization=False)
    assert sniff(path).name == "pytorch-legacy"


def test_a_program_that_torch_export_saved_is_one(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),)), path)
    assert sniff(path).name == "pytorch-export"
    assert "opens with torch.export.load" in str(refuse(path))


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_what_torch_package_packs_is_a_package(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "net.pt"
    with torch.package.PackageExporter(path) as exporter:
        exporter.extern("torch.**")
        exporter.save_pickle("model", "model.pkl", torch.nn.Linear(2, 2))
    assert sniff(path).name == "pytorch-package"


def test_nothing_from_the_file_reaches_the_terminal_unchanged() -> None:
    title = "\x1b[31mred\x1b[0m\r\n\u202egnp.exe\u200b " + "long " * 100
    text = sniff_bytes(f"<html><title>{title}</title>".encode()).description
    assert text.isprintable()
    assert len(text) < 120
    name = sniff_bytes(zipped("a\x1b]0;title\x07/\u202enet.t7")).description
    assert name.isprintable()


def test_braces_in_the_file_are_not_taken_for_our_own() -> None:
    assert (
        sniff_bytes(b"<html><title>{title} {0} {x.y}</title>").description == 'an HTML page titled "{title} {0} {x.y}"'
    )


def test_only_the_ends_of_a_large_file_are_read(tmp_path: Path) -> None:
    """A sparse file of 1 TB: reading it all, or believing what it says of itself, would not end."""
    heads = [data[:HEAD] for _, data, _, _ in SAMPLES if data]
    path = tmp_path / "large"
    for head in heads:
        path.write_bytes(head)
        os.truncate(path, 1 << 40)
        tracemalloc.start()
        start = time.perf_counter()
        sniff(path)
        spent, (_, peak) = time.perf_counter() - start, tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert spent < 0.5
        assert peak < 40 << 20


def test_a_safetensors_header_is_read_up_to_its_allowed_length(tmp_path: Path) -> None:
    """A header of 90 MB is within the format; what is read of it has a limit all the same."""
    path = tmp_path / "large"
    path.write_bytes(struct.pack("<Q", 90_000_000) + b'{"a":{"dtype":"F32","data_offsets":[0,12345678901]}')
    os.truncate(path, 90_000_008)
    assert sniff(path).description == "a safetensors file that is cut off: at least 12,345,678,901 bytes are missing"
    os.truncate(path, 80_000_000)
    assert sniff(path).description == "a safetensors file that is cut off: at least 10,000,008 bytes are missing"


SLOW = [
    b"<" + b"!-- -->" * 2000,
    b"<!--" * 4000,
    b"\n" * 20_000,
    b"\n \t" * 8000,
    b"{" * 20_000,
    b"[" * 20_000,
    b"PK\3\4" * 40_000,
    b"PK\3\4" + b"PK\1\2" * 40_000,
    b"PK\3\4" + b"PK\1\2\xff\xff" * 40_000,
    b"PK\3\4" + b"/\n" * 40_000 + b"PK\5\6" * 8,
    b"\x0a" * 20_000,
    b"\x0a\x0a\x0a" + b"A" * 20_000,
    b"local" * 5000,
    b"layer " * 5000,
    b"(" * 20_000,
    b"c" + b"a" * 20_000,
    b"version https://git-lfs" + b"\noid " * 5000,
    b"<html><title " * 3000,
    b"<html>" + b"<title>" * 3000,
    b"0" + b" " * 20_000,
    b"1" * 20_000,
    b"error: " * 300,
    struct.pack("<Q", 15 << 20) + b'{"dtype"' + b'"data_offsets":[1,' * 800_000,
    struct.pack("<Q", 15 << 20) + b'{"dtype"' + b'"data_offsets"' + b" " * (15 << 20),
]


@pytest.mark.parametrize("data", SLOW, ids=range(len(SLOW)))
def test_no_file_takes_long_to_look_at(data: bytes) -> None:
    start = time.perf_counter()
    sniff_bytes(data)
    assert time.perf_counter() - start < 1


def sound(kind: Kind) -> bool:
    """A kind that can be shown: known, printable, on one line, with nothing left to fill in."""
    return kind.name in KINDS and all(text and text.isprintable() for text in (kind.description, kind.advice))


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=2000))
def test_random_bytes_never_crash(data: bytes) -> None:
    assert sound(sniff_bytes(data))


@settings(max_examples=500, deadline=None)
@given(st.text(max_size=500), st.sampled_from(["utf-8", "utf-16", "utf-32", "latin-1"]))
def test_random_text_never_crashes(text: str, encoding: str) -> None:
    assert sound(sniff_bytes(text.encode(encoding, "replace")))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A sample with a few bytes changed, a piece taken out or put in, or another sample's end."""
    data = bytearray(draw(st.sampled_from(SAMPLES))[1])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=8))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    if draw(st.booleans()):
        data += draw(st.sampled_from(SAMPLES))[1][-draw(st.integers(1, 300)) :]
    return bytes(data)


@settings(max_examples=1500, deadline=None)
@given(mutated())
def test_mutated_files_never_crash(data: bytes) -> None:
    assert sound(sniff_bytes(data))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "net.t7")
        path.write_bytes(data)
        assert sniff(path) == sniff_bytes(data)
        refuse(path)


def test_a_tail_that_reaches_into_the_head_is_still_read_right() -> None:
    for size in (HEAD - 1, HEAD, HEAD + 1, TAIL - 1, TAIL, TAIL + 1, TAIL + HEAD):
        data = zipped("net/data.pkl", "net/version", data=random.Random(size).randbytes(size // 2))
        assert sniff_bytes(data).description == "a PyTorch checkpoint (zip)"
        assert "missing" in sniff_bytes(data[:-1]).description
