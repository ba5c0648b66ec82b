"""What goes wrong, said so that the reader knows what to do next."""

from __future__ import annotations

import os


class ClearstateError(Exception):
    """Anything clearstate refuses to do. Its text is one sentence for the person at the keyboard.

    >>> import clearstate as cs
    >>> try:
    ...     cs.verify(cs.formats.t7.Table(), "missing.pt")
    ... except (cs.ClearstateError, OSError) as error:
    ...     type(error).__name__
    'FileNotFoundError'
    >>> issubclass(cs.FormatError, cs.ClearstateError)
    True
    """


class ConversionError(ClearstateError):
    """A model cannot be converted, or what it became is not equal to it; the text names the layers.

    >>> raise ConversionError("3 (nn.Kmeans): there is no rule for this class")
    Traceback (most recent call last):
    clearstate.errors.ConversionError: 3 (nn.Kmeans): there is no rule for this class
    """


class NothingLeft(ClearstateError):
    """All that a file holds would go: it is what work left behind, and nothing else.

    >>> raise NothingLeft("optimizer.pt is optimizer state and nothing else: nothing would be left of it")
    Traceback (most recent call last):
    clearstate.errors.NothingLeft: optimizer.pt is optimizer state and nothing else: nothing would be left of it
    """


class FormatError(ClearstateError, ValueError):
    """A file is not what it should be: where, what was expected there, and what was found.

    Args:
        expected: what a whole file has at this place.
        found: what this file has there.
        offset: byte offset in the file, counted from 0; ``None`` where it has no meaning.
        path: the file's name, added by whoever knows it.

    >>> print(FormatError("a storage of 4 bytes", "the end of the file", offset=60, path="net.t7"))
    net.t7: at byte 60: expected a storage of 4 bytes, found the end of the file
    """

    def __init__(
        self,
        expected: str,
        found: str,
        *,
        offset: int | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__(expected, found)
        self.expected = expected
        self.found = found
        self.offset = offset
        self.path = path

    def __str__(self) -> str:
        where = [] if self.path is None else [os.fspath(self.path)]
        if self.offset is not None:
            where.append(f"at byte {self.offset}")
        return ": ".join([*where, f"expected {self.expected}, found {self.found}"])

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.expected, self.found, self.offset, self.path)


class WrongFormat(FormatError):
    """The file is of another kind altogether; the text names the kind and the next step.

    >>> print(WrongFormat("an HTML page", "Download the file itself.", path="net.t7"))
    net.t7 is an HTML page. Download the file itself.
    """

    def __init__(self, kind: str, advice: str, *, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__("a file of a model", kind, path=path)
        self.kind = kind
        self.advice = advice

    def __str__(self) -> str:
        name = "this file" if self.path is None else os.fspath(self.path)
        return f"{name} is {self.kind}. {self.advice}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_wrong, (self.kind, self.advice, self.path)


def _rebuild(expected: str, found: str, offset: int | None, path: str | None) -> FormatError:
    return FormatError(expected, found, offset=offset, path=path)


def _rebuild_wrong(kind: str, advice: str, path: str | None) -> WrongFormat:
    return WrongFormat(kind, advice, path=path)
