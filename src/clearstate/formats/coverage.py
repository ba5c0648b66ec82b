"""Which elements of a storage do tensors see? Nobody misses the others, and the seen ones can move together.

Views that overlap move as one group, so that they overlap in the same elements afterwards. A group's
new places are the ranks of its seen elements; where a view could not be described by strides on the
ranks, the group stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

SEARCHED = 1 << 24
"""Elements of a group of differently strided views up to which single gaps are looked for (80 MB of work space).

As many elements such a view may have, besides those that repeat: a file can say that they are 2^60.
"""

LOOKS = 1 << 32
"""Elements that are looked at, all views of a group together."""

RUNS = 1 << 15
"""Runs of elements that are kept one by one; a group of more, which are short, stays as it is."""

SHORT = 256
"""Elements, seen and unseen, for each run: longer ones take less memory to note than they have."""

CHECKED = 1 << 16
"""Elements of a view that are compared at a time."""


class View(NamedTuple):
    """A tensor's geometry on its storage. Without dimensions it is one element, as in PyTorch and NumPy."""

    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def numel(self) -> int:
        return math.prod(self.size)

    @property
    def extent(self) -> tuple[int, int]:
        """The first element seen, and the one after the last."""
        reach = [(n - 1) * s for n, s in zip(self.size, self.stride, strict=True)]
        return self.offset + sum(r for r in reach if r < 0), self.offset + sum(r for r in reach if r > 0) + 1

    def steps(self) -> list[tuple[int, int]]:
        """``(stride, size)`` of the dimensions that matter, smallest stride first."""
        return sorted((s, n) for n, s in zip(self.size, self.stride, strict=True) if n > 1 and s)

    def once(self) -> View:
        """The same elements without those dimensions along which they only repeat: these have one place each."""
        size = tuple(n if s else min(n, 1) for n, s in zip(self.size, self.stride, strict=True))
        return View(self.offset, size, self.stride)

    def is_injective(self) -> bool:
        """Whether strides alone show that no element is seen twice, but for expanded dimensions."""
        reach = 0
        for stride, size in self.steps():
            if stride <= reach:
                return False
            reach += stride * (size - 1)
        return True

    def seen(self) -> int:
        """The number of elements seen, of an injective view."""
        count = 1
        for _, size in self.steps():
            count *= size
        return count

    def on(self, array: np.ndarray[Any, Any], base: int) -> np.ndarray[Any, Any]:
        """The view of an array that begins at storage element ``base``."""
        strides = [s * array.itemsize for s in self.stride]
        return np.lib.stride_tricks.as_strided(array[self.offset - base :], self.size, strides)


@dataclass(slots=True)
class Group:
    """Views that overlap: what they see, and where that is once the rest is gone.

    ``runs`` are the ``(start, stop)`` elements kept; ``moved`` gives each member's index in the list of views
    its new offset within the group and its new strides; ``fresh`` how many elements it is the first to see.
    """

    runs: list[tuple[int, int]]
    moved: dict[int, tuple[int, tuple[int, ...]]]
    fresh: dict[int, int]

    @property
    def count(self) -> int:
        return sum(b - a for a, b in self.runs)


def cover(views: Sequence[View]) -> list[Group]:
    """The groups of overlapping views, in storage order. Views without elements are in none.

    >>> columns = View(2, (3, 2), (10, 1))
    >>> (group,) = cover([columns])
    >>> group.runs, group.moved[0], group.fresh
    ([(2, 4), (12, 14), (22, 24)], (0, (2, 1)), {0: 6})
    """
    extents = sorted((*view.extent, i) for i, view in enumerate(views) if view.numel)
    groups: list[Group] = []
    start = stop = -1
    members: list[int] = []
    for first, end, i in extents:
        if first >= stop and members:
            groups.append(_group(views, members, start, stop))
            members = []
        if not members:
            start, stop = first, end
        stop = max(stop, end)
        members.append(i)
    if members:
        groups.append(_group(views, members, start, stop))
    return groups


def shares(views: Sequence[View]) -> tuple[list[int], int]:
    """How many elements each view is the first to see, and how many are seen by any.

    >>> shares([View(0, (2,), (1,)), View(1, (3,), (1,)), View(9, (), ())])
    ([2, 2, 1], 5)
    """
    counts = [0] * len(views)
    groups = cover(views)
    for group in groups:
        for i, count in group.fresh.items():
            counts[i] = count
    return counts, sum(group.count for group in groups)


def _group(views: Sequence[View], members: list[int], start: int, stop: int) -> Group:
    members.sort()
    first = views[members[0]]
    if all(views[i] == first for i in members) and first.is_injective():
        group = _alone(first, start)
        return Group(
            group.runs,
            dict.fromkeys(members, group.moved[0]),
            {i: group.count if i == members[0] else 0 for i in members},
        )
    whole = any(views[i].is_injective() and views[i].seen() == stop - start for i in members)
    once = [views[i].once().numel for i in members]
    looks = sum(once) + len(members) * (stop - start)
    if not whole and max(stop - start, *once) <= SEARCHED and looks <= LOOKS:
        return _searched(views, members, start, stop)
    return _unmoved(views, members, start, stop, _first_seen(views, members))


def _unmoved(views: Sequence[View], members: list[int], start: int, stop: int, fresh: dict[int, int]) -> Group:
    """The group as it is, with what it does not see."""
    return Group([(start, stop)], {i: (views[i].offset - start, views[i].stride) for i in members}, fresh)


def _too_many(runs: int, extent: int) -> bool:
    return runs > max(RUNS, extent // SHORT)


def _alone(view: View, start: int) -> Group:
    """A view that overlaps none: its elements become contiguous, in the order of its strides."""
    steps = view.steps()
    count = 1
    new = {}
    for stride, size in steps:
        new[stride] = count
        count *= size
    run = 1
    while steps and steps[0][0] == run:
        run *= steps.pop(0)[1]
    if not steps:
        return Group([(start, start + run)], {0: (view.offset - start, view.stride)}, {})
    first, stop = view.extent
    if _too_many(math.prod(size for _, size in steps), stop - first):
        return Group([(first, stop)], {0: (view.offset - start, view.stride)}, {})
    starts = np.array([start])
    for stride, size in steps:
        starts = (np.arange(size)[:, None] * stride + starts).ravel()
    strides = tuple(new.get(s, s) if n > 1 else s for n, s in zip(view.size, view.stride, strict=True))
    runs = list(zip(starts.tolist(), (starts + run).tolist(), strict=True))
    return Group(runs, {0: (0, strides)}, {})


def _first_seen(views: Sequence[View], members: Iterable[int]) -> dict[int, int]:
    """How many elements each is the first to see, an extent counted as seen altogether."""
    fresh = {}
    seen: list[tuple[int, int]] = []
    for i in members:
        first, end = views[i].extent
        new = end - first
        kept = []
        for a, b in seen:
            if b < first or a > end:
                kept.append((a, b))
                continue
            new -= max(0, min(b, views[i].extent[1]) - max(a, views[i].extent[0]))
            first, end = min(a, first), max(b, end)
        seen = [*kept, (first, end)]
        fresh[i] = new
    return fresh


def _searched(views: Sequence[View], members: list[int], start: int, stop: int) -> Group:
    mask = np.zeros(stop - start, bool)
    fresh = {}
    total = 0
    for i in members:
        views[i].once().on(mask, start)[...] = True
        now = int(np.count_nonzero(mask))
        fresh[i], total = now - total, now
    moved = {}
    rank = np.empty(stop - start, np.int32)
    before = -1
    for i in range(0, len(mask), CHECKED):
        rank[i : i + CHECKED] = np.cumsum(mask[i : i + CHECKED], dtype=np.int32) + before
        before = int(rank[min(i + CHECKED, len(mask)) - 1])
    for i in members:
        view = views[i].once()
        places = view.on(rank, start)
        origin = int(places[(0,) * places.ndim])
        strides = []
        for axis, (size, stride) in enumerate(zip(view.size, view.stride, strict=True)):
            second = int(places[tuple(int(a == axis) for a in range(places.ndim))]) if size > 1 else origin + stride
            strides.append(second - origin)
        if not _is_regular(places, strides):
            return _unmoved(views, members, start, stop, fresh)
        moved[i] = (origin, tuple(strides))
    del rank
    changes = np.diff(mask, prepend=False, append=False)
    if _too_many(int(np.count_nonzero(changes)) // 2, stop - start):
        return _unmoved(views, members, start, stop, fresh)
    edges = np.flatnonzero(changes)
    return Group([(start + int(a), start + int(b)) for a, b in edges.reshape(-1, 2)], moved, fresh)


def _is_regular(places: np.ndarray[Any, Any], strides: Sequence[int]) -> bool:
    """Whether elements lie where strides say, seen from the first; halved until little is compared at a time."""
    origin = int(places[(0,) * places.ndim])
    if places.size > CHECKED:
        axis = max(range(places.ndim), key=lambda axis: places.shape[axis])
        one, other = np.array_split(places, 2, axis)
        due = origin + one.shape[axis] * strides[axis]
        return int(other[(0,) * places.ndim]) == due and _is_regular(one, strides) and _is_regular(other, strides)
    due = np.array(origin)
    for size, stride in zip(places.shape, strides, strict=True):
        due = np.add.outer(due, np.arange(size) * stride)
    return bool(np.array_equal(places, due))
