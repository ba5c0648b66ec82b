"""What a file can be: each kind in words, and what to do with one. To learn to read another, edit `KINDS`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """What a file is.

    Args:
        name: a key of `KINDS`, for programs.
        description: what it is, to follow "this file is".
        advice: the next step, in a sentence or two.
        whole: whether nothing tells that it is cut off.

    >>> from clearstate.formats.sniff import sniff_bytes
    >>> sniff_bytes(b"%PDF-1.7")
    Kind(name='pdf', description='a PDF document', advice="Give the model's own file.", whole=True)
    """

    name: str
    description: str
    advice: str
    whole: bool = True


_READS = "clearstate reads files of Torch7, of PyTorch and of safetensors"
_OURS = "clearstate reads it."
_ADDRESS = "It came in place of the file: check the address, and whether it asks for a login, and download again."
NOT_WHOLE = "Download it again: this one is not whole."
_MODEL = "Give the model's own file."
_MERGE = 'torch.distributed.checkpoint.format_utils.dcp_to_torch_save(FOLDER, "model.pt")'
_SAVED = "It builds a model and holds none: give the .t7 file that torch.save wrote."

KINDS: dict[str, tuple[str, str]] = {
    "t7": ("a Torch7 file", _OURS),
    "t7-before-2012": (
        "a Torch7 file of the layout before 2012: {what}",
        "Only the Torch of its day reads it: there, put its tensors and settings into one plain table, and save that "
        "with torch.save of Torch7.",
    ),
    "empty": ("an empty file", "Download or copy it again: not one byte arrived."),
    "zeros": ("a file of zeros only", "Download or copy it again: its space was set aside and never filled."),
    "folder": ("a folder", "Give the files in it."),
    "device": ("no regular file", "Save its bytes in a file first."),
    "git-lfs": (
        "a Git LFS pointer, not the file itself",
        "The file has {size} bytes (sha256 {oid}): run `git lfs pull` in its repository.",
    ),
    "git-annex": ("a git-annex pointer, not the file itself", "Run `git annex get` on it in its repository."),
    "html": ("an HTML page{title}", _ADDRESS),
    "web-error": ("a web server's answer ({text})", _ADDRESS),
    "pytorch-zip": ("a PyTorch checkpoint (zip)", _OURS),
    "pytorch-legacy": ("a PyTorch checkpoint (from before 1.6)", _OURS),
    "pytorch-tar": ("a PyTorch checkpoint (from before 0.2)", _OURS),
    "torchscript": ("a TorchScript program", _OURS),
    "pytorch-export": ("a program saved by torch.export", f"{_READS}; this one opens with torch.export.load."),
    "pytorch-compiled": (
        "a program compiled by AOTInductor",
        f"{_READS}; this one opens with torch._inductor.aoti_load_package.",
    ),
    "pytorch-package": (
        "a package of torch.package",
        f"{_READS}; this one opens with torch.package.PackageImporter.",
    ),
    "pytorch-distributed": (
        "{what} of torch.distributed.checkpoint",
        f"Make one file of the whole folder first: {_MERGE}.",
    ),
    "pytorch-row": (
        "several PyTorch checkpoints in a row",
        "Save each in a file of its own: torch.load reads them one by one from an open file; "
        f"of a .distcp shard of torch.distributed.checkpoint make one with its whole folder: {_MERGE}.",
    ),
    "pickle": ("a Python pickle", f"{_OURS[:-1]}, and runs nothing in it."),
    "safetensors": ("a safetensors file", _OURS),
    "safetensors-index": ("the index of a model in several safetensors files", _OURS),
    "hdf5": ("an HDF5 file (Keras, MATLAB 7.3, ...)", f"{_READS}; this one opens with the h5py package."),
    "keras": ("a Keras model (zip)", f"{_READS}; this one opens with keras.models.load_model."),
    "onnx": ("an ONNX model", f"{_READS}; this one opens with the onnx package."),
    "tensorflow": ("a TensorFlow {what}", f"{_READS}; this one opens with TensorFlow."),
    "tflite": ("a TensorFlow Lite model", f"{_READS}; this one opens with TensorFlow Lite."),
    "caffe": ("a Caffe model", f"{_READS}; this one opens with Caffe, or with OpenCV's dnn module."),
    "caffe-text": ("a Caffe network description", "It says what a net is made of and holds no weights."),
    "opencv": ("an OpenCV file storage", f"{_READS}; this one opens with cv2.FileStorage."),
    "darknet": ("a file of Darknet weights", f"{_READS}; this one opens with Darknet, or with OpenCV's dnn module."),
    "mxnet": ("a file of MXNet parameters", f"{_READS}; this one opens with MXNet."),
    "gguf": ("a GGUF model", f"{_READS}; this one opens with llama.cpp."),
    "npy": ("a NumPy array", f"{_READS}; this one opens with numpy.load."),
    "npz": ("an archive of NumPy arrays", f"{_READS}; this one opens with numpy.load."),
    "mat": ("a MATLAB file", f"{_READS}; this one opens with scipy.io.loadmat."),
    "gzip": ("a gzip-compressed {inside}", "Unpack it first: {unpack}"),
    "bzip2": ("a bzip2-compressed {inside}", "Unpack it first: {unpack}"),
    "xz": ("an xz-compressed {inside}", "Unpack it first: {unpack}"),
    "zstd": ("a zstd-compressed file", "Unpack it first: unzstd FILE -o NEW"),
    "lz4": ("an lz4-compressed file", "Unpack it first: unlz4 FILE NEW"),
    "7z": ("a 7z archive", "Unpack it first: 7z x FILE"),
    "rar": ("a RAR archive", "Unpack it first: unrar x FILE"),
    "zip": ("a zip archive{holding}", "Unpack it first: unzip FILE"),
    "tar": ("a tar archive", "Unpack it first: tar xf FILE"),
    "image": ("a picture ({what})", _MODEL),
    "pdf": ("a PDF document", _MODEL),
    "program": ("a compiled program ({what})", _MODEL),
    "lua": ("Lua source code", _SAVED),
    "lua-bytecode": ("compiled Lua code", _SAVED),
    "json": ("a JSON file", _MODEL),
    "xml": ("an XML file", _MODEL),
    "text": ("a text file", _MODEL),
    "unknown": ("of no kind that clearstate knows", f"{_READS}; check where this one comes from."),
}
"""A kind's description and advice; the words in braces come from the file, or stay empty."""
