"""A model made what its owner needs: another backend, device or number type. One door that finds the right room."""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from ..errors import ClearstateError
from ..roles import Role
from ..transport.progress import Watch
from .inspect import is_module, open_path

if TYPE_CHECKING:
    from ..export.program import Row
    from ..formats.t7 import File
    from ..formats.t7.backends.pairs import Changed, Refused
    from ..formats.t7.backends.types import Device, DType

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class How:
    """What is asked for.

    Attributes:
        backend: ``"nn"``, ``"cudnn"``, ``"inn"``, or one that was declared; as it is unless given.
        device: ``"cpu"`` or ``"cuda"``; as it is unless given.
        dtype: ``"float"``, ``"double"`` or ``"half"``; as it is unless given.
        partial: go on where some modules cannot be expressed, and leave these.
        long_size: bytes of a C ``long`` in a Torch7 file; found out unless given.
        progress: called now and then with the bytes written so far, and about how many there will be.
        sample: for kinds of file that are proved equal by a run: an input, its shape as text, or a file with it.
    """

    backend: str | None = None
    device: Device | None = None
    dtype: DType | None = None
    partial: bool = False
    long_size: Literal[4, 8] | None = None
    progress: Callable[[int, int], None] | None = None
    sample: Any = None


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion did, or would do.

    Attributes:
        changed: the modules that changed their class.
        left: those that could not be expressed, and why.
        tensors: how many tensors of each class became of which: ``(before, after, count)``.
        notes: what a person should know besides.
        path: the file written; ``None`` on a dry run.
        size: bytes of the file before and after; 0 where that is not known before it is written.
        layers: for source and ONNX: what became of each layer, with the largest difference of its output on a sample.

    >>> from clearstate.backends import Changed
    >>> Converted((Changed("modules[1]", "cudnn.ReLU", "nn.ReLU"),)).classes()
    {('cudnn.ReLU', 'nn.ReLU'): 1}
    """

    changed: tuple[Changed, ...] = ()
    left: tuple[Refused, ...] = ()
    tensors: tuple[tuple[str, str, int], ...] = ()
    notes: tuple[str, ...] = ()
    path: str | None = None
    size: tuple[int, int] = (0, 0)
    layers: tuple[Row, ...] = ()

    def classes(self) -> dict[tuple[str, str], int]:
        """How many modules of each class became of which, the most first."""
        return dict(Counter((each.before, each.after) for each in self.changed).most_common())


class Kind(NamedTuple):
    """A kind of file: the room that writes it, and its function there.

    The function gets the path of the model, that of the file to write (``None``: only say what would be) and `How`,
    and returns `Converted`.
    """

    room: str
    function: str


KINDS: dict[str, Kind] = {
    ".t7": Kind("convert", "to_t7"),
    ".safetensors": Kind("export", "to_state"),
    ".pt": Kind("export", "to_state"),
    ".pth": Kind("export", "to_state"),
    ".py": Kind("export", "to_source"),
    ".onnx": Kind("export", "to_onnx"),
}
"""The kinds of file a model is converted to, by suffix. A room is imported when a file of its kind is asked for."""


def kind_of(output: str) -> Kind:
    """The kind of file that a name's suffix asks for.

    Raises:
        ValueError: there is none of this suffix.

    >>> kind_of("net.T7").function
    'to_t7'
    """
    suffix = os.path.splitext(output)[1].lower()
    if suffix not in KINDS:
        known = ", ".join(KINDS)
        raise ValueError(f"{output}: a model is converted to a file that ends in {known}, not {suffix or 'nothing'}")
    return KINDS[suffix]


def convert(
    model: T,
    *,
    backend: str | None = None,
    device: Device | None = None,
    dtype: DType | None = None,
    partial: bool = False,
) -> T:
    """Makes a model's layers those of another backend, in place, and returns the model.

    Of an object graph, the layers' classes and fields change as the backend's constructors make them, and tensors
    become those of the device and the type; what work left behind goes. On live modules the layers stay as they are,
    and run as before: `save` writes them as the backend's.

    Args:
        model: a module of `clearstate.nn`, or an object graph that `clearstate.formats.t7.load` returned.
        backend: ``"nn"``, ``"cudnn"``, ``"inn"``, or one that `clearstate.backends.pair` declared.
        device: for object graphs: ``"cpu"`` or ``"cuda"``.
        dtype: for object graphs: ``"float"``, ``"double"`` or ``"half"``.
        partial: go on where some layers cannot be expressed, and leave these.

    Raises:
        CannotConvert: layers cannot be expressed; nothing was changed. Names each with its path, class and reason.
        TypeError: the argument is nothing that can be converted; says which function takes it.
        ValueError: there is no such backend, device or type, or none was given; a device or type for a module.
        ClearstateError: a number is too large for the type.

    >>> from clearstate.formats import t7
    >>> net = t7.Object("cudnn.Tanh", t7.Table(inplace=False, _type="torch.CudaTensor"))
    >>> convert(net, backend="nn", device="cpu").typename, net["_type"]
    ('nn.Tanh', 'torch.FloatTensor')
    """
    from ..formats import t7

    how = How(backend, device, dtype, partial)
    if isinstance(model, str | os.PathLike):
        raise TypeError(f"convert takes a model; for a file call convert_file({str(model)!r}, ...)")
    _asked_for(how)
    if isinstance(model, t7.Object | t7.Table | t7.Tensor | t7.Storage | t7.Function):
        convert_graph(model, how)
        return model
    if not is_module(model):
        raise TypeError(f"convert takes a module of clearstate.nn or an object graph, not {type(model)!r}")
    if device is not None or dtype is not None:
        raise ValueError("a module is moved and cast by its own methods: module.cpu(), module.cuda(), module.double()")
    from ..nn.t7.backends import convert as convert_module

    convert_module(cast(Any, model), cast(str, backend), partial=partial)
    return model


def convert_file(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    backend: str | None = None,
    device: Device | None = None,
    dtype: DType | None = None,
    partial: bool = False,
    long_size: Literal[4, 8] | None = None,
    progress: Callable[[int, int], None] | None = None,
    sample: Any = None,
    dry_run: bool = False,
) -> Converted:
    """Writes a model as a file of another kind, or of the same kind for another backend, device or number type.

    The kind is that of the name: ``.t7``; ``.safetensors``, ``.pt`` and ``.pth`` (the state dict); ``.py`` (Python
    source, and the weights beside it as ``.safetensors``); ``.onnx``.

    The new file is written beside its place, read back, and compared with the model before it replaces anything: every
    parameter has the numbers it had, cast where a type was given.

    Args:
        path: the model: a Torch7 file.
        output: the file to write; its suffix says its kind. ``None``: write nothing, say what would be.
        backend: ``"nn"``, ``"cudnn"``, ``"inn"``, or one that `clearstate.backends.pair` declared; as it is unless
            given.
        device: ``"cpu"`` or ``"cuda"``; as it is unless given.
        dtype: ``"float"``, ``"double"`` or ``"half"``; as it is unless given.
        partial: go on where some layers cannot be expressed, and leave these.
        long_size: bytes of a C ``long`` in the file; found out unless given.
        progress: called now and then with the bytes written so far, and about how many there will be; when the two
            are equal, reading back begins.
        sample: for ``.py`` and ``.onnx``: an input of the net, its shape (``"2x3x224x224"``), or a file with it; made
            from the net's shapes unless given.
        dry_run: write nothing, say what would be.

    Raises:
        CannotConvert: layers cannot be expressed; nothing was written. Names each with its path, class and reason.
        ConversionError: the same for ``.py`` and ``.onnx``; or what a layer became is not equal to it.
        ValueError: there is no such backend, device, type or kind of file; ``output`` is ``path``.
        FormatError: the file is no whole file of a model.
        ClearstateError: a number is too large for the type, or what was written does not equal the model.
        OSError: a file cannot be read or written.

    >>> import tempfile, os
    >>> from clearstate.formats import t7
    >>> old, new = (os.path.join(tempfile.mkdtemp(), name) for name in ("old.t7", "new.t7"))
    >>> t7.save(t7.Object("cudnn.ReLU", t7.Table(inplace=True)), old)
    >>> convert_file(old, new, backend="nn").classes()
    {('cudnn.ReLU', 'nn.ReLU'): 1}
    >>> t7.load(new)
    Object('nn.ReLU')
    """
    name = os.fspath(path)
    target = None if output is None else os.fspath(output)
    how = How(backend, device, dtype, partial, long_size, progress, sample)
    kind = KINDS[".t7"] if target is None else kind_of(target)
    if target is not None and os.path.exists(target) and os.path.samefile(name, target):
        raise ValueError(f"{target} is the model itself; write the converted one elsewhere")
    room = importlib.import_module(f"{__package__}.{kind.room}")
    return cast(Converted, getattr(room, kind.function)(name, None if dry_run else target, how))


def _asked_for(how: How) -> None:
    if how.backend is None and how.device is None and how.dtype is None:
        raise ValueError("say what it is to become: a backend (nn, cudnn, inn), a device or a number type")


def convert_graph(root: Any, how: How) -> Converted:
    """Converts an object graph in place; see `convert`."""
    from ..formats.t7.backends.pairs import CPU, CannotConvert, plan
    from ..formats.t7.backends.types import check, fits, retype
    from ..formats.t7.meaning.clearing import clear

    check(how.device, how.dtype)
    plans = [plan(root, to) for to in (how.backend, CPU if how.device == "cpu" else None) if to is not None]
    left = tuple(each for made in plans for each in made.left)
    if left and not how.partial:
        raise CannotConvert(left, f"made {how.backend}'s" if how.backend else "moved to the CPU")
    fits(root, how.device, how.dtype, {number: name for made in plans for number, name in made.classes().items()})
    for made in plans:
        made.carry_out()
    clear(root, {Role.TRANSIENT, Role.SLACK})
    tensors = retype(root, how.device, how.dtype)
    if how.device == "cpu":
        clear(root, {Role.TRANSIENT})  # what a constructor leaves is of another class there
    return Converted(
        tuple(each for made in plans for each in made.changed),
        left,
        tuple((*names, count) for names, count in tensors.items()),
        tuple(note for made in plans for note in made.notes) + tuple(_of_device(root, how)),
    )


def _of_device(root: Any, how: How) -> Iterator[str]:
    """What of a converted model Torch7 runs on the other device only."""
    from ..formats.t7.backends.pairs import objects

    types = {obj.get("_type") for _, obj in objects(root) if obj.typename.startswith("cudnn.")} - {None}
    if not all(str(name).startswith("torch.Cuda") for name in types):
        yield "cudnn's layers run on a GPU only, and these tensors are the CPU's: ask for device cuda, or nn's layers"
    if how.dtype == "half" and any(obj.get("_type") == "torch.HalfTensor" for _, obj in objects(root)):
        yield "on the CPU Torch7 only stores halves; to compute with them, ask for device cuda"


def to_t7(path: str, output: str | None, how: How) -> Converted:
    """Converts a Torch7 file to a Torch7 file of the same layout; see `convert_file`."""
    from ..formats import t7
    from ..formats.atomic import replacing

    _asked_for(how)
    file = open_path(path, long_size=how.long_size)
    if not isinstance(file, t7.File):
        raise ClearstateError(f"{path} is a PyTorch checkpoint; backends are Torch7's")
    done = convert_graph(file.root, how)
    layout = replace(file.layout, indices=None)
    if output is None:
        return replace(done, size=(file.size, t7.written_size(file.root, layout)))

    def check(written: str) -> None:
        old, new = (t7.open_file(each, long_size=layout.long_size) for each in (path, written))
        _compare(old, file, new)

    with replacing(output, check) as handle:
        t7.write(file.root, Watch(how.progress, file.size)(handle), layout)
        if how.progress is not None:
            how.progress(file.size, file.size)
    return replace(done, path=output, size=(file.size, os.path.getsize(output)))


def _compare(old: File, converted: File, written: File) -> None:
    """Whether what was written is what was converted, and has the parameters of the file that was read."""
    from ..formats.t7 import compare

    wrong = [str(difference) for difference in compare(converted.root, written.root)]
    wrong += _other_parameters(old.root, written.root)
    if wrong:
        raise ClearstateError(f"{old.path} was not converted: what was written differs from it: {wrong[0]}")


def _other_parameters(old: Any, new: Any) -> list[str]:
    """Parameters of one graph that are not in the other, or with other numbers than theirs cast to its type."""
    from ..formats.differences import in_pieces, once

    ours, theirs = _parameters(old), _parameters(new)
    wrong = []
    for path, tensor in ours.items():
        other = theirs.get(path)
        if other is None:
            wrong.append(f"{path}: missing")
        elif tensor.numel != other.numel:
            wrong.append(f"{path}: {tensor.numel} elements, not {other.numel}")
        else:
            one, two = tensor.numpy(), other.numpy()
            if one.shape != two.shape:
                one, two = one.reshape(-1), two.reshape(-1)
            if not all(_is_cast(x, y) for x, y in in_pieces(*once(one, two))):
                wrong.append(f"{path}: other numbers")
    return wrong


def _is_cast(old: Any, new: Any) -> bool:
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):
        due = old.astype(new.dtype)
    return np.array_equal(due, new, equal_nan=due.dtype.kind == "f")


def _parameters(root: Any) -> dict[str, Any]:
    from ..formats.t7 import Tensor
    from ..formats.t7.meaning.survey import survey

    pieces = survey(root).pieces
    return {str(p.path or ""): p.value for p in pieces if p.role is Role.PARAMETER and isinstance(p.value, Tensor)}
