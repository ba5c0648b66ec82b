"""Equal modules in a row are shown as one: ``layers.0-31: 32 x LlamaDecoderLayer``. Names with numbers are in order.

Modules are equal where they have the same class and the same below them: names, classes, and of each piece its role,
type, sizes and bytes. A row is modules of one parent whose names differ in one number that counts up by one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

FEWEST = 3
"""Modules that make a row: two are no more lines than a heading and what is in it."""

LONGEST = 18
"""Digits of a number that is counted."""

_NUMBER = re.compile("[0-9]+")


def natural(name: str) -> str:
    """A text whose order among others is that of the name, its numbers by their worth.

    >>> sorted(["10", "9", "1", "block_10", "block_9", "0"], key=natural)
    ['0', '1', '9', '10', 'block_9', 'block_10']
    """
    return _NUMBER.sub(_worth, name)


def _worth(number: re.Match[str]) -> str:
    digits = number[0].lstrip("0")
    return chr(ord("0") + min(len(digits), 60_000 - ord("0"))) + digits  # short of the surrogates


def in_order(names: Sequence[str]) -> list[int]:
    """The places of siblings, in the order in which they are shown.

    What is listed by the alphabet is listed in natural order. Anything else is in the order of its constructor, and
    keeps it: only names that are alike but for their numbers change places.

    >>> in_order(["0", "1", "10", "2"]), in_order(["conv1", "bn1", "block10", "relu", "block9"])
    ([0, 1, 3, 2], [0, 1, 4, 3, 2])
    """
    places = range(len(names))
    keys = [natural(name) for name in names]
    if all(one <= next_ for one, next_ in pairwise(names)):
        return sorted(places, key=lambda i: keys[i])
    groups: dict[str, list[int]] = {}
    for i in places:
        groups.setdefault(_NUMBER.sub("0", names[i]), []).append(i)
    order = list(places)
    for group in groups.values():
        for place, i in zip(group, sorted(group, key=lambda i: keys[i]), strict=True):
            order[place] = i
    return order


def alike(
    above: Sequence[int], labels: Sequence[str], types: Sequence[str], held: Sequence[Sequence[Hashable]]
) -> list[int]:
    """A number for each module, the same for equal ones.

    Args:
        above: of each module the one around it, or -1.
        labels: its name in that one.
        types: its class.
        held: its own pieces, in any order, named from where it is.

    >>> alike([-1, 0, 0, 0], ["", "0", "1", "2"], ["Net", "Linear", "Linear", "Linear"], [[], ["w"], ["w"], ["v"]])
    [2, 0, 0, 1]
    """
    inside: list[list[tuple[str, int]]] = [[] for _ in above]
    numbers: dict[Hashable, int] = {}
    found = [-1] * len(above)
    for i in _inner_first(above):
        what = (types[i], frozenset(Counter(held[i]).items()), frozenset(inside[i]))
        found[i] = numbers.setdefault(what, len(numbers))
        inside[i] = []
        if above[i] >= 0:
            inside[above[i]].append((labels[i], found[i]))
    return found


def _inner_first(above: Sequence[int]) -> Iterator[int]:
    """All modules, each after those inside it."""
    waiting = [0] * len(above)
    for outer in above:
        if outer >= 0:
            waiting[outer] += 1
    ready = [i for i, inner in enumerate(waiting) if not inner][::-1]
    while ready:
        i = ready.pop()
        yield i
        outer = above[i]
        if outer >= 0:
            waiting[outer] -= 1
            if not waiting[outer]:
                ready.append(outer)


def rows(labels: Sequence[str], kinds: Sequence[int]) -> list[tuple[int, int]]:
    """The rows of equal modules among siblings in order, each from its first to behind its last; the others alone.

    >>> rows(["0", "1", "2", "3", "5", "norm"], [7, 4, 4, 4, 4, 8])
    [(0, 1), (1, 4), (4, 5), (5, 6)]
    """
    found: list[tuple[int, int]] = []
    start = 0
    parts = [_parts(label) for label in labels]
    for i in range(1, len(labels) + 1):
        if i < len(labels) and kinds[i] == kinds[i - 1] and _follows(parts[i - 1], parts[i]):
            continue
        found += [(start, i)] if i - start >= FEWEST else [(k, k + 1) for k in range(start, i)]
        start = i
    return found


def _parts(label: str) -> tuple[str, str, str] | None:
    """What stands around the last number of a name, and the number."""
    numbers = list(_NUMBER.finditer(label))
    if not numbers or len(numbers[-1][0]) > LONGEST:
        return None
    last = numbers[-1]
    return label[: last.start()], last[0], label[last.end() :]


def _follows(one: tuple[str, str, str] | None, other: tuple[str, str, str] | None) -> bool:
    if one is None or other is None or (one[0], one[2]) != (other[0], other[2]):
        return False
    return other[1] == str(int(one[1]) + 1).zfill(len(one[1]))


def label(path: str, around: str = "") -> str:
    """How a module is named inside another: ``(3)`` as Torch7 prints it, or its field.

    >>> label("net.modules[3]", "net"), label("model.layers.0", "model.layers")
    ('(3)', '0')
    """
    name = path[len(around) :].lstrip(".")
    number = name.removeprefix("modules[").removesuffix("]")
    return f"({number})" if name == f"modules[{number}]" and number.isdecimal() else name


def name_of(first: str, last: str, around: str = "") -> str:
    """What a row is called: the numbers it goes through, and whose they are.

    >>> name_of("0", "31", "layers"), name_of("0", "3", "2"), name_of("(1)", "(4)"), name_of("block_08", "block_12")
    ('layers.0-31', '0-3', '(1-4)', 'block_08-12')
    """
    begin, end = _parts(first), _parts(last)
    if begin is None or end is None:
        return f"{first}-{last}"
    alone = not begin[0] and not begin[2] and around and not around[-1].isdecimal() and around[-1] not in ")]"
    return f"{around + '.' if alone else ''}{begin[0]}{begin[1]}-{end[1]}{begin[2]}"


def in_words(name: str, count: int, typename: str) -> str:
    """A row in words, as far as its class is known.

    >>> in_words("layers.0-31", 32, "transformers.models.llama.LlamaDecoderLayer"), in_words("(1-4)", 4, "nn.Linear")
    ('layers.0-31: 32 x LlamaDecoderLayer', '(1-4): 4 x nn.Linear')
    >>> in_words("layers.0-31", 32, "")
    'layers.0-31: 32 alike'
    """
    return f"{name}: {count:,} x {short(typename)}" if typename else f"{name}: {count:,} alike"


def short(typename: str) -> str:
    """A class without the modules it is defined in; a class of Torch7 keeps its package.

    >>> short("torch.nn.modules.linear.Linear"), short("nn.Linear"), short("__main__.Block"), short("Net.f.<locals>.G")
    ('Linear', 'nn.Linear', 'Block', 'G')
    """
    package, _, name = typename.rpartition(".")
    return typename if package in TORCH7 else name


TORCH7 = frozenset("nn cudnn inn nngraph rnn dpnn cunn ccn2 nnx stn".split())
"""Packages of Torch7: what is called after them is known by the whole name."""
