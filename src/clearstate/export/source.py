"""A program as Python source that a person would have written."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from typing import Any

import torch

from . import pieces
from .calls import Call, call, lines
from .program import CALLED, Layer, Program, Step
from .values import Table, Value, leaves

NAMES = [*"xyzuvwabcdefghijkmnpqrst"]
"""What values are called, in this order; then ``x1``, ``x2``, ..."""


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


class Source:
    """The source of a program, and where in the net its layers are."""

    def __init__(self, program: Program, title: str) -> None:
        self.program = program
        self.title = title
        self.statements = _statements(program)
        self.members = _named(self.statements)
        self.paths: list[tuple[Layer, str]] = [pair for member in self.members for pair in member.paths()]
        self.text = ""

    def tensors(self) -> dict[str, torch.Tensor]:
        """All parameters and buffers of the net, by name; those that are one are the same object."""
        found: dict[str, torch.Tensor] = {}
        for layer, path in self.paths:
            for name, tensor in (*layer.module.named_parameters(remove_duplicate=False), *layer.module.named_buffers()):
                found[f"{path}.{name}"] = tensor
        return found

    def write(self, weights: str) -> str:
        """The source as text; ``weights`` is the name of the file beside it."""
        init, forward = self._init(), self._forward()
        body = "\n".join([*init, *forward])
        names = pieces.used(body)
        classes = "\n\n".join(pieces.sources(names))
        loading = self._load(weights)
        code = "\n".join(part for part in (classes, body) if part)
        head = [f'"""{self.title}"""', "", *_imports("\n".join([classes, body, *loading])), "", ""]
        if classes:
            head += [*classes.split("\n"), ""]
        assert code
        self.text = "\n".join([*head, *body.split("\n"), "", "", *loading]) + "\n"
        return self.text

    def _init(self) -> list[str]:
        made = ["class Net(nn.Module):", f'    """{self.title}"""', "", "    def __init__(self) -> None:"]
        made.append("        super().__init__()")
        for member in self.members:
            made += lines(f"self.{member.name} = ", member.constructor(), 8)
        first: dict[int, str] = {}
        for name, tensor in self.tensors().items():
            if id(tensor) in first:
                made.append(f"        self.{_attribute(name)} = self.{_attribute(first[id(tensor)])}")
            else:
                first.setdefault(id(tensor), name)
                if isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad:
                    made.append(f"        self.{_attribute(name)}.requires_grad_(False)")
        return made

    def _forward(self) -> list[str]:
        names = _Names(self.program, self.statements)
        input, output = self.program.input, self.program.output
        given = "x" if isinstance(input, Value) else "inputs"
        made = ["", f"    def forward(self, {given}: {_kind(input)}) -> {_kind(output)}:"]
        if isinstance(input, Value):
            names.take(input, "x")
        else:
            names.dying = Counter()
            made += _unpacked(input, "inputs", names)
        last = self.statements[-1] if self.statements else None
        for statement in self.statements:
            expression = self._expression(statement, names)
            names.read(statement)
            if statement is last and isinstance(output, Value) and statement.results == [output.now]:
                made += lines("return ", expression, 8)
                return made
            targets = [names.new(value) for value in statement.results]
            if len(targets) == 1:
                made += lines(f"{targets[0]} = ", expression, 8)
            else:
                made += _assigned(targets, str(expression))
        made += lines("return ", _returned(output, names), 8)
        return made

    def _expression(self, statement: Statement, names: _Names) -> str | Call:
        step = statement.steps[0]
        inputs = [names.of(value) for value in statement.inputs]
        if statement.member is None and step.layer is not None:
            assert step.layer.function is not None
            return step.layer.function.format(*map(_grouped, inputs))
        layer = f"self.{statement.member.name}" if statement.member is not None else ""
        if isinstance(step.code, Call):
            return _filled(step.code, inputs, layer)
        bare = step.code == "{0}"
        return step.code.format(*(inputs if bare else map(_grouped, inputs)), layer=layer)

    def _load(self, weights: str) -> list[str]:
        types = Counter(tensor.dtype for tensor in self.tensors().values() if tensor.is_floating_point())
        most = types.most_common(1)[0][0] if types else torch.float32
        made = [
            f'def load(path: str | Path = Path(__file__).with_name("{weights}")) -> Net:',
            '    """The net with its weights and running statistics, in evaluation mode."""',
            "    from safetensors.torch import load_model",
            "",
            f"    net = Net(){'' if most is torch.float32 else f'.to({most})'}",
        ]
        for layer, path in self.paths:
            own = {t.dtype for t in (*layer.module.parameters(), *layer.module.buffers()) if t.is_floating_point()}
            if own and own != {most}:
                made.append(f"    net.{_attribute(path)}.to({own.pop()})")
        return [*made, "    load_model(net, path)", "    return net.eval()"]


def _grouped(name: str) -> str:
    return name


def _filled(what: Call, inputs: list[str], layer: str) -> Call:
    items = tuple(
        _filled(item, inputs, layer) if isinstance(item, Call) else item.format(*inputs, layer=layer)
        for item in what.items
    )
    return Call(what.function, items, what.brackets)


def _attribute(path: str) -> str:
    """A path of names and numbers as source.

    >>> _attribute("block1.3.weight")
    'block1[3].weight'
    """
    return re.sub(r"\.(\d+)", r"[\1]", path)


def _kind(table: Table) -> str:
    if isinstance(table, Value):
        return "Tensor"
    if isinstance(table, dict):
        return "dict[Any, Any]"
    return "list[Tensor]" if all(isinstance(part, Value) for part in table) else "list[Any]"


def _imports(text: str) -> list[str]:
    """The imports that a source needs, in the usual order."""
    made = ["from __future__ import annotations", ""]
    if "math." in text:
        made.append("import math")
    made.append("from pathlib import Path")
    if re.search(r"\bAny\b", text):
        made.append("from typing import Any")
    made.append("")
    if re.search(r"\btorch\.(?!nn)", text.replace("safetensors.torch", "")):
        made.append("import torch")
    made.append("from torch import Tensor, nn" if re.search(r"\bTensor\b", text) else "from torch import nn")
    if re.search(r"\bF\.", text):
        made.append("from torch.nn import functional as F")
    return made


def _statements(program: Program) -> list[Statement]:
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
        while run[-1].in_chain and reads[id(run[-1].results[0])] == 1:
            follower = after.get(id(run[-1].results[0]))
            if follower is None or not follower.in_chain:
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


def _named(statements: list[Statement]) -> list[Member]:
    members = list(dict.fromkeys(s.member for s in statements if s.member is not None))
    several = [member for member in members if len(member.layers) > 1]
    counts = Counter(member.layers[0].kind for member in members if len(member.layers) == 1)
    numbers: Counter[str] = Counter()
    taken: set[str] = set(dir(torch.nn.Module())) | {"net"}
    for member in members:
        hint = member.layers[0].name if len(member.layers) == 1 else None
        if hint and hint.isidentifier() and not keyword.iskeyword(hint) and hint not in taken:
            member.name = hint
            taken.add(hint)
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


class _Names:
    """Which name each value has, while statements go by: a name is free again once its value is read for the last."""

    def __init__(self, program: Program, statements: list[Statement]) -> None:
        self.names: dict[int, str] = {}
        self.dying = Counter(id(value) for s in statements for value in s.inputs)
        self.dying.update(id(value) for value in leaves(program.output))
        self.left = self.dying.copy()
        self.used: set[str] = set()
        self.freed: list[str] = []
        self.keep: list[Any] = []

    def take(self, value: Value, name: str) -> str:
        self.names[id(value)] = name
        self.used.add(name)
        return name

    def of(self, value: Value) -> str:
        return self.names[id(value)]

    def read(self, statement: Statement) -> None:
        """Notes what this statement reads."""
        self.freed = []
        for value in statement.inputs:
            self.left[id(value)] -= 1
            if self.left[id(value)] == 0 and self.names[id(value)] in self.used:
                self.used.discard(self.names[id(value)])
                self.freed.append(self.names[id(value)])

    def new(self, value: Value) -> str:
        """A name for a result: that of an input that nobody reads any more, or one that is free."""
        if not self.left[id(value)]:
            return "_"
        for name in self.freed:
            if name not in self.used:
                return self.take(value, name)
        numbered = (f"x{i}" for i in range(1, 10**6))
        return self.take(
            value, next(name for name in (*NAMES, *_first(numbered, len(self.used))) if name not in self.used)
        )


def _first(names: Any, count: int) -> list[str]:
    return [next(names) for _ in range(count + 1)]


def _unpacked(table: Table, name: str, names: _Names) -> list[str]:
    """Statements that take a table apart."""
    pattern = _pattern(table, names)
    if isinstance(table, dict):
        made = []
        for key, part in table.items():
            place = f"{name}[{_key(key)}]"
            if isinstance(part, Value):
                if names.left[id(part)]:
                    made.append(f"        {names.new(part)} = {place}")
            else:
                made += _unpacked(part, place, names)
        return made
    return _assigned(pattern, name) if pattern else []


def _key(key: Any) -> str:
    return f'"{key}"' if isinstance(key, str) else repr(key)


def _pattern(table: Table, names: _Names) -> list[str]:
    if isinstance(table, dict):
        return []
    made = []
    for part in table:
        if isinstance(part, Value):
            made.append(names.new(part))
        elif isinstance(part, dict):
            raise ValueError("a table with keys within a list")
        else:
            inner = ", ".join(_pattern(part, names))
            made.append(f"({inner},)" if len(part) == 1 else f"({inner})")
    return made


def _assigned(targets: list[str], expression: str) -> list[str]:
    """``a, b = expression``."""
    whole = f"        {', '.join(targets)}{',' * (len(targets) == 1)} = {expression}"
    if len(targets) == 1:
        whole = f"        ({targets[0]},) = {expression}"
    if len(whole) <= 88:
        return [whole]
    return ["        (", *(f"            {target}," for target in targets), f"        ) = {expression}"]


def _returned(table: Table, names: _Names) -> str | Call:
    if isinstance(table, Value):
        return names.of(table.now)
    if isinstance(table, dict):
        return Call("", tuple(f"{_key(key)}: {_returned(part, names)}" for key, part in table.items()), "{}")
    return Call("", tuple(_returned(part, names) for part in table), "[]")


__all__ = ["CALLED", "Source", "call"]
