"""A mutant is a seed with a few stretches of its bytes replaced: a recipe that one line of JSON holds."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from .places import (
    FLOATS,
    OPCODES,
    SPECIAL,
    WORDS,
    Place,
    encoded,
    of_json,
    of_pickles,
    of_t7,
    of_tar,
    of_zip,
    value_at,
)
from .seeds import NAMES, WEIGHTS, Seed, seed_of


class Edit(NamedTuple):
    """Bytes from ``start`` to ``stop`` of a part of a seed, and what takes their place."""

    part: str
    start: int
    stop: int
    new: bytes


@dataclass(frozen=True)
class Mutant:
    """What is changed in which seed.

    Attributes:
        seed: the name of the seed.
        edits: what is changed.
        whole: whether in the files, so that a container's checksums are wrong; else in the parts.
    """

    seed: str
    edits: tuple[Edit, ...]
    whole: bool = False

    def files(self) -> dict[str, bytes]:
        """The files of the mutant."""
        seed = seed_of(self.seed)
        parts = dict(seed.files if self.whole else seed.parts)
        for edit in sorted(self.edits, key=lambda edit: -edit.start):
            data = parts[edit.part]
            parts[edit.part] = data[: edit.start] + edit.new + data[edit.stop :]
        return parts if self.whole else seed.joined(parts)

    def recipe(self) -> str:
        """One line that says what it is."""
        edits = [[edit.part, edit.start, edit.stop, edit.new.hex()] for edit in self.edits]
        return json.dumps({"seed": self.seed, "whole": self.whole, "edits": edits})

    def smaller(self) -> list[Mutant]:
        """The same with one edit less, each."""
        without = [self.edits[:i] + self.edits[i + 1 :] for i in range(len(self.edits))]
        return [replace(self, edits=edits) for edits in without if edits]


def of_recipe(line: str) -> Mutant:
    """The mutant of a line that `Mutant.recipe` gave."""
    said = json.loads(line)
    edits = tuple(Edit(part, start, stop, bytes.fromhex(new)) for part, start, stop, new in said["edits"])
    return Mutant(said["seed"], edits, said["whole"])


@cache
def places_in(name: str, part: str, whole: bool) -> tuple[list[Place], list[Place]]:
    """The numbers in a part of a seed, and the opcodes of its pickles."""
    seed = seed_of(name)
    data = (seed.files if whole else seed.parts)[part]
    if seed.form == "t7":
        return of_t7(data), []
    if part.endswith(".json") or part == "header":
        return list(of_json(data)), []
    if part.endswith(".safetensors"):
        length = 8 + int.from_bytes(data[:8], "little")
        texts = [place for place in of_json(data) if place.start >= 8 and place.stop <= length]
        return [Place(0, 8, "<Q")] * 8 + texts, []
    if data[:4] == b"PK\x03\x04":
        return of_zip(data), []
    if seed.form == "tar" and whole:
        return of_tar(data), []
    if seed.form == "zip" and not part.endswith(".pkl"):
        return [], []
    return of_pickles(data)


def mutant(seed: int, number: int, form: str | None = None) -> Mutant:
    """The mutant of a number: always the same of the same seed, where it is asked for any form or for one."""
    chance = random.Random(f"{seed}:{number}")
    any_form = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    form = form or any_form
    made = seed_of(chance.choice(NAMES[form]))
    whole = made.form in ("zip", "tar", "safetensors") and chance.random() < 0.25
    parts = made.files if whole else made.parts
    count = chance.choice((1, 1, 1, 2, 2, 3, 4))
    if chance.random() < 0.4:
        edits = _neighbours(chance, made, _part(chance, parts), whole, count + 1)
    else:
        edits = tuple(_edit(chance, made, _part(chance, parts), whole) for _ in range(count))
    return Mutant(made.name, edits, whole)


def _neighbours(chance: random.Random, seed: Seed, part: str, whole: bool, count: int) -> tuple[Edit, ...]:
    """Changes some of the numbers that stand together: the sizes and strides of a tensor."""
    numbers, _ = places_in(seed.name, part, whole)
    if not numbers:
        return (_edit(chance, seed, part, whole),)
    data = (seed.files if whole else seed.parts)[part]
    longs = [i for i, place in enumerate(numbers) if place.kind in ("<q", ">q", "pickle")]
    first = chance.choice(longs) if longs and chance.random() < 0.8 else chance.randrange(len(numbers))
    near = numbers[first : first + 6]
    chosen = chance.sample(near, min(count, len(near)))
    return tuple(Edit(part, place.start, place.stop, _number(chance, place, data)) for place in chosen)


def _part(chance: random.Random, parts: dict[str, bytes]) -> str:
    telling = [name for name in parts if name.endswith((".pkl", ".json")) or name in ("header", "tensors", "storages")]
    names = list(parts)
    return chance.choice(telling if telling and chance.random() < 0.8 else names)


def _edit(chance: random.Random, seed: Seed, part: str, whole: bool) -> Edit:
    data = (seed.files if whole else seed.parts)[part]
    numbers, ops = places_in(seed.name, part, whole)
    dice = chance.random()
    if numbers and dice < 0.65:
        telling = [place for place in numbers if place.kind[-1:] in "qdQ"] or numbers
        place = chance.choice(telling if chance.random() < 0.3 else numbers)
        return Edit(part, place.start, place.stop, _number(chance, place, data))
    if ops and dice < 0.8:
        one, other = chance.choice(ops), chance.choice(ops)
        new = chance.choice((b"", data[other.start : other.stop], data[one.start : one.stop] * 2, _opcode(chance)))
        return Edit(part, one.start, one.stop, new)
    return _bytes(chance, part, data)


def _number(chance: random.Random, place: Place, data: bytes) -> bytes:
    if place.kind == "json" and chance.random() < 0.3:
        return chance.choice(WORDS)
    if place.kind == "pickle" and chance.random() < 0.4:
        return _opcode(chance)
    was = value_at(place, data)
    kinds = (chance.choice(SPECIAL), chance.choice(SPECIAL), place.start, None, chance.choice(FLOATS))
    value: Any = chance.choice(kinds)
    if value is None:
        whole = int(was) if was == was and abs(was) < 2**63 else 1
        value = chance.choice((whole + 1, whole - 1, whole * 2, -whole, whole << 32, whole ^ 1 << chance.randrange(62)))
    if isinstance(value, float) and place.kind not in ("text", "json", "pickle") and place.kind[1] not in "df":
        value = chance.choice(SPECIAL)
    return encoded(place, value)


def _opcode(chance: random.Random) -> bytes:
    return chance.choice(OPCODES)


def _bytes(chance: random.Random, part: str, data: bytes) -> Edit:
    at = chance.randrange(len(data) + 1)
    kind = chance.choice(("set", "set", "flip", "cut", "insert", "copy", "end", "run"))
    if kind == "set":
        return Edit(part, at, at + 1, bytes([chance.randrange(256)]))
    if kind == "flip":
        return Edit(part, at, at + 1, bytes(each ^ 1 << chance.randrange(8) for each in data[at : at + 1]))
    if kind == "cut":
        return Edit(part, at, at + chance.randint(1, 40), b"")
    if kind == "insert":
        return Edit(part, at, at, chance.randbytes(chance.randint(1, 8)))
    if kind == "copy":
        other, length = chance.randrange(len(data) + 1), chance.choice((4, 8, 16, 40))
        return Edit(part, at, at + length, data[other : other + length])
    if kind == "end":
        return Edit(part, at, len(data), b"")
    return Edit(part, at, at + 8, chance.choice((b"\xff" * 8, b"\0" * 8, b"\xff" * 7 + b"\x7f", b"\0" * 7 + b"\x80")))
