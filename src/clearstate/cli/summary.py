"""What came of clearing files: bytes before and after by role, what went, and what to know besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import clearstate as cs
from clearstate.wording import some

from .drawing import Line, Part, Screen, clean, counted, fit, percent, wrapped
from .jobs import Job

REBUILD = """\
local p, g = net:parameters(); local z = {}
for i, w in ipairs(p) do
  local s = w:storage(); local k = torch.pointer(s)
  z[k] = z[k] or w.new(s:size()):zero()
  g[i]:set(z[k]:storage(), w:storageOffset(), w:size(), w:stride())
end"""
"""Lua that gives every parameter its gradient again, laid out and shared as the parameters are."""

SAID = 8
"""How many of the changes, and of the notes, are told."""

NAMED = (cs.Role.OPTIMIZER, cs.Role.TRAINING)
"""Roles that a person may miss: what went is named."""

GONE = 5
"""How many of the pieces that went are named."""


@dataclass(slots=True)
class Tally:
    """What came of all files together."""

    files: list[Job] = field(default_factory=list)
    failed: int = 0
    size_before: int = 0
    size_after: int = 0
    before: Counter[cs.Role] = field(default_factory=Counter)
    after: Counter[cs.Role] = field(default_factory=Counter)
    named: dict[cs.Role, list[str]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)
    left_out: list[tuple[str, Exception]] = field(default_factory=list)

    def add(self, job: Job, done: cs.Cleared, *, several: bool) -> None:
        """Counts one file."""
        self.files.append(job)
        self.size_before += done.before.size
        self.size_after += done.after.size
        after = done.after.by_role()
        self.before.update(done.before.by_role())
        self.after.update(after)
        self.notes.update(dict.fromkeys(done.after.notes))
        self.done.extend(f"{job.path}: {what}" if several else f"{what[:1].upper()}{what[1:]}" for what in done.done)
        for gone in done.dropped:
            if gone.role in NAMED:
                name = f"{job.path}: {gone}" if several else str(gone)
                self.named.setdefault(gone.role, []).append(name)
        self.unknown.extend(_names(job, done.after, cs.Role.UNKNOWN, several))


def _names(job: Job, inventory: cs.Inventory, role: cs.Role, several: bool) -> list[str]:
    """The pieces of a role by name, the largest first."""
    pieces = sorted((entry for entry in inventory.select(role) if entry.bytes), key=lambda entry: -entry.bytes)
    names = [entry.path or entry.type for entry in pieces]
    return [f"{job.path}: {name}" for name in names] if several else names


def row(job: Job, done: cs.Cleared, on: Screen) -> Line:
    """What `clear` prints of one file among several, once it is done."""
    from clearstate.wording import size_text

    sizes = f"  {size_text(done.before.size):>8} → {size_text(done.after.size):>8}  "
    name = clean(job.path)
    return [Part(sizes), Part(name if len(name) <= on.width - len(sizes) else fit(name, on.width - len(sizes)))]


def summary(tally: Tally, on: Screen, dropping: Iterable[cs.Role], *, dry_run: bool) -> list[Line]:
    """What `clear` prints at its end: bytes before and after, by role, and what to know besides."""
    from clearstate.wording import size_text

    if not tally.files:
        return [[], *_left_out(tally, on)]
    lines = _title(tally, dry_run)
    lines.append([Part(f"  {'':<10} {'before':>10} {'after':>10}", "faint")])
    for role, count in tally.before.most_common():
        left = tally.after[role]
        style = "goes" if left < count and role is not cs.Role.METADATA else ""
        lines.append([Part(f"  {role!s:<10} {size_text(count):>10} {size_text(left) if left else '-':>10}", style)])
    freed = tally.size_before - tally.size_after
    saved = f"{size_text(freed)} less ({percent(freed, tally.size_before)})" if freed > 0 else "nothing to clear"
    sizes = f"{size_text(tally.size_before):>10} {size_text(tally.size_after):>10}"
    lines.append([Part(f"  {counted(len(tally.files), 'file'):<10} {sizes}", "strong"), Part(f"   {saved}", "stays")])
    return [*lines, *_besides(tally, on, frozenset(dropping))]


def _left_out(tally: Tally, on: Screen) -> list[Line]:
    """Files of which nothing would be left: the old ones are as they were, and there are no new ones."""
    if not tally.left_out:
        return []
    names = some([path for path, _ in tally.left_out], 3)
    text = f"Left alone, since nothing would be left of them: {names}. They are no part of the model."
    return wrapped(text, on.width, "", "  ")


def _title(tally: Tally, dry_run: bool) -> list[Line]:
    job = tally.files[0]
    if len(tally.files) + tally.failed == 1:
        where = f" → {job.target}" if job.target is not None and job.target != job.path else ""
        dry = " (dry run: nothing was written)" if dry_run else ""
        return [[Part(job.path, "strong"), Part(where), Part(dry, "faint")]]
    failed = f", {tally.failed} could not be" if tally.failed else ""
    verb = "would be cleared (dry run: nothing was written)" if dry_run else "cleared"
    return [[], [Part(f"{counted(len(tally.files), 'file')} {verb}{failed}", "strong")]]


def _besides(tally: Tally, on: Screen, dropping: frozenset[cs.Role]) -> list[Line]:
    from clearstate.wording import size_text

    lines: list[Line] = []
    for what in tally.done[:SAID]:
        lines += wrapped(f"{what}.", on.width, "", "  ")
    if len(tally.done) > SAID:
        lines.append([Part(f"… {counted(len(tally.done) - SAID, 'more change')}", "faint")])
    lines += _left_out(tally, on)
    for role, names in tally.named.items():
        if names:
            text = f"Dropped: {some(names, GONE)}; --keep {role} leaves it."
            lines += wrapped(text, on.width, "", "  ")
    if tally.unknown:
        lines += wrapped(f"Kept, since nobody declared what they are: {some(tally.unknown, 3)}.", on.width, "", "  ")
    if cs.Role.GRADIENT in dropping and tally.before[cs.Role.GRADIENT]:
        text = "The gradients went. The model runs without; to train it, Torch7 needs gradWeight and gradBias rebuilt:"
        lines += wrapped(text, on.width)
        lines += ([Part(f"  {lua}", "command")] for lua in REBUILD.splitlines())
    elif left := tally.after[cs.Role.GRADIENT]:
        lines.append([Part(f"Gradients of weights stay, {size_text(left)}: --drop gradient drops them too.")])
    for note in list(tally.notes)[:SAID]:
        lines += wrapped(note, on.width, "note: ", "      ")
    if len(tally.notes) > SAID:
        more = counted(len(tally.notes) - SAID, "more note")
        lines.append([Part(f"      … {more}: clearstate inspect --all", "faint")])
    return [[], *lines] if lines else []
