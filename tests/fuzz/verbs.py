"""What people do to files, done to a mutant; and what of it is a fault."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import random
import shutil
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import clearstate as cs
from clearstate.cli import run

from .guard import unlike
from .mutants import Mutant
from .seeds import seed_of

SOURCE = str(Path(cs.__file__).parent)

OTHERWISE: dict[str, tuple[Any, ...]] = {
    "use": ("ema", "model"),
    "unwrap": (True,),
    "plain": (True,),
    "dtype": ("float16", "bfloat16", "float32"),
}
"""What else can be asked of a checkpoint."""

OUTCOMES: Counter[str] = Counter()
"""How often mutants were read, and how often refused."""

PLACELESS: Counter[str] = Counter()
"""Refusals without a place in the file, by what was expected."""


class Fault(Exception):
    """Something that must not happen; its kind is the same for all mutants that show the same mistake."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class TimeUp(BaseException):
    """Raised by the timer of `run`; no ``except Exception`` holds it up."""


def tried(mutant: Mutant, folder: Path, chance: random.Random) -> None:
    """Does some of what can be done to a mutant.

    Raises:
        Fault: what came of it is neither an answer nor one sentence, or a wrong answer.
    """
    seed = seed_of(mutant.seed)
    _laid(folder / "bad", mutant.files())
    _laid(folder / "new", {})
    if not (folder / "good" / mutant.seed.replace("/", "|")).exists():
        _laid(folder / "good", {**seed.files, mutant.seed.replace("/", "|"): b""})
    if chance.random() < 0.06:
        _command(folder, seed.main, chance, seed.form)
        return
    verbs = [_clear, _verify]
    verbs.append(_clear_otherwise if seed.form != "t7" else chance.choice((_load, _convert, _clear_otherwise)))
    read = _inspect(folder, seed.main, chance, seed.form)
    for verb in verbs if read else [chance.choice(verbs)]:  # what one refuses, the others refuse where it is read, too
        verb(folder, seed.main, chance, seed.form)


def _laid(folder: Path, files: dict[str, bytes]) -> None:
    """A folder with these files and no others."""
    folder.mkdir(exist_ok=True)
    for left in list(folder.iterdir()):
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)


def attempt(what: str, call: Callable[[], Any]) -> Any:
    """What a call returns, or ``None`` where it refuses in one of our own sentences."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = call()
        except cs.ClearstateError as error:
            _check_sentence(what, error)
            OUTCOMES[f"{what}: refused"] += 1
            return None
        except ValueError as error:
            if _raised_by_us(error.__traceback__):
                OUTCOMES[f"{what}: refused"] += 1
                return None
            raise Fault(*_kind(what, error)) from error
        except Exception as error:
            raise Fault(*_kind(what, error)) from error
        except TimeUp as error:
            raise Fault(*_kind(what, error)) from None
    OUTCOMES[f"{what}: done"] += 1
    return value


def _kind(what: str, error: BaseException) -> tuple[str, str]:
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(SOURCE)]
    at = ours[-1] if ours else traceback.extract_tb(error.__traceback__)[-1]
    place = f"{at.filename.removeprefix(SOURCE)}:{at.lineno}"
    text = "".join(traceback.format_exception(error))[-3000:]
    return f"{type(error).__name__} at {place}", f"{what}: {type(error).__name__}: {error}\n{text}"


@cache
def _raises(path: str) -> frozenset[int]:
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    raising = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    return frozenset(line for node in raising for line in range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _raised_by_us(trace: TracebackType | None) -> bool:
    last = traceback.extract_tb(trace)[-1]
    return last.filename.startswith(SOURCE) and last.lineno in _raises(last.filename)


def _check_sentence(what: str, error: cs.ClearstateError) -> None:
    text = str(error)
    if not text or len(text) > 2000:
        raise Fault(f"a sentence of {len(text) // 1000} kB", f"{what}: {text[:200]}")
    if isinstance(error, cs.FormatError) and not isinstance(error, cs.WrongFormat):
        if error.offset is None:
            PLACELESS[f"{error.expected[:60]}, found {error.found[:40]}"] += 1
        if error.path is None:
            raise Fault("a FormatError that names no file", f"{what}: {text[:300]}\n{_kind(what, error)[1]}")
        if error.offset is not None and error.offset < 0:
            raise Fault("a FormatError at a negative place", f"{what}: {text[:300]}")


def _inspect(folder: Path, main: str, chance: random.Random, form: str) -> bool:
    def look() -> bool:
        held = cs.inspect(folder / "bad" / main)
        str(held)
        json.dumps(held.to_dict())
        if chance.random() < 0.1:
            held.to_html()
        total = sum(entry.bytes for entry in held.entries)
        if total != held.size:
            raise Fault("the entries do not add up", f"{total} is not {held.size}")
        return True

    return bool(attempt("inspect", look))


def _clear(folder: Path, main: str, chance: random.Random, form: str) -> None:
    new = folder / "new" / main
    done = attempt("clear", lambda: cs.clear_file(folder / "bad" / main, _target(new, form)))
    if done is None:
        if (left := list((folder / "new").rglob("*.*"))) and form != "index":
            raise Fault("a refusal wrote", f"clear: {left}")
        return
    written = done.path if form != "index" else str(folder / "new")
    same = attempt("verify the cleared", lambda: cs.verify(folder / "bad" / main, written))
    if same is None or not same:
        raise Fault("what was cleared does not verify", f"clear: {same}")
    _second_opinion("clear", folder / "bad" / main, Path(written), form)


def _target(new: Path, form: str) -> str:
    return f"{new.parent}/" if form == "index" else str(new)


def _second_opinion(what: str, old: Path, new: Path, form: str) -> None:
    if new.is_dir():
        return
    if wrong := attempt("a second opinion", lambda: unlike(old, new, form)):
        raise Fault("same model, and other tensors", f"{what}: {wrong}")


def _clear_otherwise(folder: Path, main: str, chance: random.Random, form: str) -> None:
    how: dict[str, Any] = {}
    if chance.random() < 0.3:
        how["drop"] = chance.choice((["gradient"], ["copy"], ["code"], ["gradient", "copy", "code"]))
    if chance.random() < 0.2:
        how["keep"] = chance.choice((["optimizer"], ["training", "slack"]))
    end = Path(main).suffix
    if form != "t7":
        end = chance.choice((".pt", ".safetensors", ".pth"))
        for name, values in OTHERWISE.items():
            if chance.random() < 0.35:
                how[name] = chance.choice(values)
    how["dry_run"] = chance.random() < 0.2
    target = str(folder / "new" / f"other{end}")
    done = attempt(f"clear to {end}", lambda: cs.clear_file(folder / "bad" / main, target, **how))
    written = done is not None and done.path is not None
    if written and attempt("inspect the cleared", lambda: cs.inspect(target)) is None:
        raise Fault("what was written is not read", f"clear: {how}")


def _verify(folder: Path, main: str, chance: random.Random, form: str) -> None:
    bad, good = folder / "bad" / main, folder / "good" / main
    one, other = (bad, good) if chance.random() < 0.5 else (good, bad)
    verdict = attempt("verify", lambda: cs.verify(one, other))
    if verdict is not None:
        str(verdict)
    if verdict:
        OUTCOMES["verify: the same"] += 1
        if form != "index":
            _second_opinion("verify", good, bad, form)
    if verdict is not None and chance.random() < 0.3 and not attempt("verify itself", lambda: cs.verify(bad, bad)):
        raise Fault("not the same as itself", f"verify: {cs.verify(bad, bad)}")


def _load(folder: Path, main: str, chance: random.Random, form: str) -> None:
    unknown: Any = chance.choice(("error", "keep"))
    live = attempt("load", lambda: (cs.load(folder / "bad" / main, unknown=unknown),))
    if live is not None and chance.random() < 0.5:
        attempt("print", lambda: str(live[0]))
        attempt("save", lambda: cs.save(live[0], folder / "new" / "saved.t7"))


def _convert(folder: Path, main: str, chance: random.Random, form: str) -> None:
    end = chance.choice((".t7", ".t7", ".safetensors", ".pt"))
    how: dict[str, Any] = {"dry_run": chance.random() < 0.2}
    if end == ".t7":
        how["backend"] = chance.choice(("nn", "cudnn", "inn", None))
        how["dtype"] = chance.choice((None, "float", "double", "half"))
        how["device"] = chance.choice(("cpu", "cuda", None))
        how["partial"] = chance.random() < 0.5
    elif chance.random() < 0.3:
        how["dtype"] = chance.choice(("float", "half"))
    attempt(f"convert to {end}", lambda: cs.convert_file(folder / "bad" / main, folder / "new" / f"c{end}", **how))


def _command(folder: Path, main: str, chance: random.Random, form: str) -> None:
    bad, good = str(folder / "bad" / main), str(folder / "good" / main)
    new = str(folder / "new") + os.sep if form == "index" else str(folder / "new" / main)
    words = chance.choice(
        (
            ["inspect", bad, "--all"],
            ["inspect", bad, "--json"],
            ["clear", bad, "-o", new],
            ["clear", bad, "--dry-run"],
            ["verify", bad, good],
            ["convert", bad, "--to", "nn", "-o", str(folder / "new" / "c.t7")],
        )
    )
    out, err = io.StringIO(), io.StringIO()
    with _quiet(out, err):
        code = attempt("the command", lambda: (run(words),))
    text = err.getvalue()
    if code is None or code[0] not in (0, 1, 2) or "mistake in clearstate" in text or "not enough memory" in text:
        raise Fault(f"the command: {text[:100]}", f"{words[0]}: {code} {text[:300]}")
    if (code[0] == 2) != bool(text) or (text and (not text.startswith("clearstate: ") or text.count("\n") != 1)):
        raise Fault("the command does not say one sentence", f"{words[0]}: {code} {text[:300]}")


@contextlib.contextmanager
def _quiet(out: io.StringIO, err: io.StringIO) -> Iterator[None]:
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
