"""A program as Python source that a person would have written."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import torch

from . import pieces
from .calls import WIDTH, Call, lines
from .grouping import Statement, named, statements_of
from .names import Names
from .program import Layer, Program
from .values import Table, Value, leaves


class Source:
    """The source of a program, and where in the net its layers are."""

    def __init__(self, program: Program, title: str) -> None:
        self.program = program
        self.title = title
        self.statements = statements_of(program)
        self.members = named(self.statements)
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
        head = [f'"""{self.title}"""', "", *imports("\n".join([classes, body, *loading])), "", ""]
        if classes:
            head += [*classes.split("\n"), ""]
        assert code
        self.text = "\n".join([*head, *body.split("\n"), "", "", *loading]) + "\n"
        return self.text

    def _init(self) -> list[str]:
        said = ['    """The net.', "", f"    {_shapes(self.program)}", '    """']
        made = ["class Net(nn.Module):", *said, "", "    def __init__(self) -> None:"]
        made.append("        super().__init__()")
        for member in self.members:
            made += lines(f"self.{member.name} = ", member.constructor(), 8)
        made += [f"        self.{one} = self.{other}" for one, other in self._ties()]
        for tensor, name in {id(t): (t, n) for n, t in reversed(self.tensors().items())}.values():
            if isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad:
                made.append(f"        self.{_attribute(name)}.requires_grad_(False)")
        return made

    def _forward(self) -> list[str]:
        names = Names(self.program, self.statements)
        input, output = self.program.input, self.program.output
        given = "x" if isinstance(input, Value) else "inputs"
        made = ["", f"    def forward(self, {given}: {_kind(input)}) -> {_kind(output)}:"]
        if isinstance(input, Value):
            names.take(input, "x")
        else:
            made += _unpacked(input, "inputs", names)
        last = self.statements[-1] if self.statements else None
        for statement, follower in zip(self.statements, [*self.statements, None][1:], strict=True):
            expression = self._expression(statement, names)
            names.read(statement)
            if follower is not None and self._goes_inside(statement, expression, follower, names):
                names.inside(statement.results[0], str(expression))
                continue
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

    def _goes_inside(self, statement: Statement, expression: str | Call, follower: Statement, names: Names) -> bool:
        """Whether a statement is written within the next: ``F.relu(x + y)``."""
        wraps = follower.member is None and follower.steps[0].layer is not None
        if not wraps or statement.member is not None or isinstance(expression, Call) or len(statement.results) != 1:
            return False
        (value,) = statement.results
        short = len(self._wrapped(follower, expression)) < WIDTH - len("        return ")
        return follower.inputs == [value] and names.left[id(value)] == 1 and short and value is not self.program.output

    @staticmethod
    def _wrapped(statement: Statement, *inputs: str) -> str:
        layer = statement.steps[0].layer
        assert layer is not None
        assert layer.function is not None
        return layer.function.format(*(i if "({0})" in layer.function else f"({i})" for i in inputs))

    def _expression(self, statement: Statement, names: Names) -> str | Call:
        step = statement.steps[0]
        inputs = [names.of(value) for value in statement.inputs]
        if statement.member is None and step.layer is not None:
            return self._wrapped(statement, *inputs) if names.within(statement) else step.layer.function.format(*inputs)  # type: ignore[union-attr]
        layer = f"self.{statement.member.name}" if statement.member is not None else ""
        if isinstance(step.code, Call):
            return _filled(step.code, inputs, layer)
        return step.code.format(*inputs, layer=layer)

    def _load(self, weights: str) -> list[str]:
        types = Counter(tensor.dtype for tensor in self.tensors().values() if tensor.is_floating_point())
        most = types.most_common(1)[0][0] if types else torch.float32
        file = Call("Path(__file__).with_name", (json.dumps(weights, ensure_ascii=False),))
        made = [
            *lines("WEIGHTS = ", file, 0),
            "",
            "",
            "def load(path: str | Path = WEIGHTS) -> Net:",
            '    """The net with its weights and running statistics, in evaluation mode."""',
            "    from safetensors.torch import load_model",
            "",
            f"    net = Net(){'' if most is torch.float32 else f'.to({most})'}",
        ]
        for layer, path in self.paths:
            own = {t.dtype for t in (*layer.module.parameters(), *layer.module.buffers()) if t.is_floating_point()}
            if own and own != {most}:
                made.append(f"    net.{_attribute(path)}.to({own.pop()})")
        if most is not torch.float32:  # buffers are new ones then
            made += [f"    net.{one} = net.{other}" for one, other in self._ties(torch.nn.Parameter)]
        return [*made, "    load_model(net, path)", "    return net.eval()"]

    def _ties(self, but: type | None = None) -> list[tuple[str, str]]:
        """Attributes that are one with another, and that one; not those of the class ``but``."""
        first: dict[int, str] = {}
        made = []
        for name, tensor in self.tensors().items():
            other = first.setdefault(id(tensor), name)
            if other is not name and not (but is not None and isinstance(tensor, but)):
                made.append((_attribute(name), _attribute(other)))
        return made


def _shapes(program: Program) -> str:
    """What goes in and comes out, in words."""

    def sizes(table: Table) -> str:
        if isinstance(table, Value):
            example = table.example
            if not isinstance(example, torch.Tensor):
                return "a number"
            shape = [str(size) for size in example.shape]
            for dim in (1, 0) if program.batch_dim else (0,):
                if program.batch_dim is not None and len(shape) > dim and example.shape[dim] == batch:
                    shape[dim] = "batch"
                    break
            return " x ".join(shape) or "a number"
        if isinstance(table, dict):
            return "a dict"
        whole = f"[{', '.join(map(sizes, table))}]"
        return whole if len(whole) < 40 else f"a list of {len(table)}"

    first = next((v.example for v in leaves(program.input) if isinstance(v.example, torch.Tensor)), None)
    batch = None if first is None or program.batch_dim is None else first.shape[program.batch_dim]
    return f"Compared on {sizes(program.input)} in, {sizes(program.output)} out."


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


def imports(text: str) -> list[str]:
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


def _unpacked(table: Table, name: str, names: Names) -> list[str]:
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


def _pattern(table: Table, names: Names) -> list[str]:
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


def _returned(table: Table, names: Names) -> str | Call:
    if isinstance(table, Value):
        return names.of(table.now)
    if isinstance(table, dict):
        return Call("", tuple(f"{_key(key)}: {_returned(part, names)}" for key, part in table.items()), "{}")
    return Call("", tuple(_returned(part, names) for part in table), "[]")
