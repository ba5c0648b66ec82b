"""Which layers of a program stand together in a ``nn.Sequential``, and what the attributes of the net are called."""

from __future__ import annotations

import keyword
from collections import Counter

import torch

from .calls import Call
from .program import Layer, Program, Step
from .values import Value, leaves


class Member:
    """An attribute of the net: one layer, or several in a ``nn.Sequential``."""

    def __init__(self, layers: list[Layer]) -> None:
        self.layers = layers
        self.name = ""

    def constructor(self) -> Call:
        if len(self.layers) == 1:
            return self.layers[0].constructor
        return Call("nn.Sequential", tuple(layer.constructor for layer in self.layers))

    def paths(self) -> list[tuple[Layer, str]]:
        """Each layer with its path in the net."""
        if len(self.layers) == 1:
            return [(self.layers[0], self.name)]
        return [(layer, f"{self.name}.{i}") for i, layer in enumerate(self.layers)]


class Statement:
    """A line of ``forward``: steps that are one call, or one step."""

    def __init__(self, steps: list[Step], member: Member | None) -> None:
        self.steps = steps
        self.member = member

    @property
    def inputs(self) -> list[Value]:
        return self.steps[0].inputs

    @property
    def results(self) -> list[Value]:
        return self.steps[-1].results


def statements_of(program: Program) -> list[Statement]:
    """The steps with those that follow each other and nothing else reads, as one call of a ``nn.Sequential``."""
    reads = Counter(id(value) for step in program.steps for value in step.inputs)
    reads.update(id(value) for value in leaves(program.output))
    after = {id(value): step for step in program.steps for value in step.inputs}
    runs: list[list[Step]] = []
    taken: set[int] = set()
    for step in program.steps:
        if id(step) in taken:
            continue
        run = [step]
        while _joins(run[-1]) and reads[id(run[-1].results[0])] == 1:
            follower = after.get(id(run[-1].results[0]))
            if follower is None or not _joins(follower):
                break
            run.append(follower)
        taken.update(map(id, run))
        runs.append(run)
    runs = _apart(runs)
    members: dict[tuple[int, ...], Member] = {}
    made = []
    for run in runs:
        layers = [step.layer for step in run if step.layer is not None]
        member = None
        if layers and not (len(run) == 1 and run[0].in_chain and layers[0].function is not None):
            key = tuple(map(id, layers))
            member = members.setdefault(key, Member(layers))
        made.append(Statement(run, member))
    return made


def _joins(step: Step) -> bool:
    """Whether a step may stand in a ``nn.Sequential``: what its author gave a name keeps that."""
    return step.in_chain and not (step.layer is not None and _is_name(step.layer.name))


def _is_name(hint: str | None) -> bool:
    return bool(hint) and str(hint).isidentifier() and not keyword.iskeyword(str(hint))


def _apart(runs: list[list[Step]]) -> list[list[Step]]:
    """Runs in which a layer is that another run has otherwise are taken apart: a layer is in one place only."""
    while True:
        places: dict[int, set[tuple[int, ...]]] = {}
        for run in runs:
            key = tuple(id(step.layer) for step in run)
            for i in key:
                places.setdefault(i, set()).add(key if key.count(i) == 1 else (*key, 0))
        wrong = [
            len(run) > 1 and any(len(places[id(s.layer)]) > 1 or (0 in next(iter(places[id(s.layer)]))) for s in run)
            for run in runs
        ]
        if not any(wrong):
            return runs
        runs = [part for run, bad in zip(runs, wrong, strict=True) for part in ([[s] for s in run] if bad else [run])]


def named(statements: list[Statement]) -> list[Member]:
    members = list(dict.fromkeys(s.member for s in statements if s.member is not None))
    several = [member for member in members if len(member.layers) > 1]
    numbers: Counter[str] = Counter()
    taken: set[str] = set(dir(torch.nn.Module())) | {"net"}
    for member in members:
        hint = member.layers[0].name if len(member.layers) == 1 else None
        if hint and _is_name(hint) and hint not in taken:
            member.name = hint
            taken.add(hint)
    counts = Counter(m.layers[0].kind for m in members if len(m.layers) == 1 and not m.name)
    for member in members:
        if member.name:
            continue
        kind = "block" if len(member.layers) > 1 else member.layers[0].kind
        single = counts[kind] == 1 and len(member.layers) == 1
        if len(member.layers) > 1 and len(several) == 1:
            kind, single = "layers", True
        while True:
            numbers[kind] += 1
            name = kind if single and numbers[kind] == 1 else f"{kind}{numbers[kind]}"
            if name not in taken:
                break
        member.name = name
        taken.add(name)
    return members
