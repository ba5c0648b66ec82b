"""Proves attributes unneeded by runs on a sample: without them, they give the same numbers, bit for bit.

Not the model is run, but a stand-in of it, whose buffers and attributes are copies: once in evaluation mode, and once
in training mode, where the gradients of the parameters are the same, too, and what the run leaves in buffers. What
is needed in either mode stays; so does what training could not prove, since the model does not run in that mode, and
what a method reads that did not run.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...roles import Role
from ..bytecode.companions import is_work
from ..bytecode.readers import reader, running
from ..holdings.attributes import Attribute
from ..holdings.modules import Walk, modules
from ..holdings.values import parts
from ..stand_in.copies import Copies
from ..stand_in.stand_in import stand_in_for
from ..tensors.equality import same_bits
from .baseline import Baseline
from .before_work import restore
from .judge import judge
from .judged import EVAL_ALONE, NEEDED_IN_TRAINING, PROVED

Place = tuple[int, str]
"""An attribute: the id of its module, and its name."""


class Proof(NamedTuple):
    """What runs on a sample proved.

    Attributes:
        evidence: of each attribute without which the model gives the same in evaluation mode.
        failure: why nothing could be proved in training mode, in words; empty where it could.
    """

    evidence: dict[Place, str]
    failure: str = ""


def prove(model: torch.nn.Module, sample: Any, baseline: Baseline | None = None) -> Proof:
    """The attributes of unknown role without which the model gives the same on a sample.

    Each run is of a stand-in of the model, with the same random numbers: as the model is, and without the attributes in
    question, two runs one after the other each. Where leaving all out fails, halves are tried. What the class's methods
    read and never write is no leftover of work, and stays.

    Args:
        model: any module.
        sample: an input; a tuple is the arguments, a dict the keyword arguments. It is copied.

    Raises:
        Exception: what the model itself raises on the sample as it is, in evaluation mode.

    >>> class Layer(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.scale, self.last = torch.tensor(2.0), None
    ...     def forward(self, x):
    ...         self.last = x.clone()
    ...         return self.scale * x
    >>> layer = Layer()
    >>> _ = layer(torch.ones(2))
    >>> {name: said for (_, name), said in prove(layer, torch.ones(2)).evidence.items()}
    {'last': 'proved'}
    """
    judged = judge(list(modules(model)), baseline)
    unknown = [
        j.attribute for j in judged if j.role is Role.UNKNOWN and is_work(type(j.attribute.module), j.attribute.name)
    ]
    places = [(id(a.module), a.name) for a in unknown]
    evaluation = _Mode(model, sample, training=False)
    expected = evaluation.run(())
    if not places or not _equal(evaluation.run(()), expected):
        return Proof({})  # a model that is never twice the same proves nothing
    proved = evaluation.search(expected, places)
    if not proved:
        return Proof({})
    training = _Mode(model, sample, training=True)
    try:
        expected = training.run(())
        if not _equal(training.run(()), expected):
            return Proof(dict.fromkeys(proved, EVAL_ALONE), "two runs with the same random numbers differ")
    except Exception as error:
        return Proof(dict.fromkeys(proved, EVAL_ALONE), f"{type(error).__name__}: {error}")
    both = set(training.search(expected, proved))
    ran, attributes = evaluation.ran | training.ran, dict(zip(places, unknown, strict=True))
    evidence = {place: PROVED if place in both else NEEDED_IN_TRAINING for place in proved}
    for place in both - evaluation.again:
        if (method := reader(type(attributes[place].module), place[1], ran, made=place in evaluation.made)) is not None:
            evidence[place] = f"read by {method}, of which the sample proves nothing"
    return Proof(evidence)


class _Mode:
    """Runs of a model's stand-in in one mode.

    Attributes:
        ran: the code of all functions that ran.
        made: the places that runs without them filled again.
        again: those of them that have the very same values then.
    """

    def __init__(self, model: torch.nn.Module, sample: Any, *, training: bool) -> None:
        self.model, self.sample, self.training = model, sample, training
        self.walk = list(modules(model))
        self.gathered: dict[int, Any] = {}
        self.ran: set[CodeType] = set()
        self.made: set[Place] = set()
        self.again: set[Place] = set()

    def search(self, expected: Any, places: Sequence[Place]) -> list[Place]:
        """Those of the places without which runs give what is expected."""
        try:
            if _equal(self.run(places), expected):
                return list(places)
        except Exception:  # whatever the model raises without them, it needs them
            pass
        if len(places) == 1:
            return []
        half = len(places) // 2
        return self.search(expected, places[:half]) + self.search(expected, places[half:])

    def run(self, without: Sequence[Place]) -> Any:
        """What two runs give, one after the other: outputs, gradients, and what they leave in buffers."""
        with torch.inference_mode(False):
            other, made = stand_in_for(self.model, copies=Copies(self.walk, self.gathered))
        for number, name in without:
            module = made[number]
            restore(Attribute("", module, name, module.__dict__[name]), None, [])
        for module in made.values():
            if isinstance(module, torch.jit.ScriptModule):
                module.train(self.training)
                continue
            module.__dict__["training"] = self.training
            if "require_backward_grad_sync" in module.__dict__:  # DDP: the gradients of this run are no one else's
                module.__dict__["require_backward_grad_sync"] = False
        outputs = [self._outputs(other) for _ in range(2)]
        self._note(made, without)
        return [*outputs, [dict(module.__dict__.get("_buffers") or {}) for module in made.values()]]

    def _note(self, made: Mapping[int, torch.nn.Module], without: Sequence[Place]) -> None:
        """Notes which of the places that were emptied before a run are full after it."""
        old = {id(module): module.__dict__ for _, module in self.walk}
        for number, name in without:
            now = Attribute("", made[number], name, made[number].__dict__.get(name))
            if now.tensors():
                self.made.add((number, name))
                if _equal(now.value, old[number][name]):
                    self.again.add((number, name))

    def _outputs(self, model: Any) -> Any:
        with ExitStack() as stack:
            stack.enter_context(_fixed_random(self.walk))
            stack.enter_context(running(self.ran))
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(self.training))
            sample = _copied(self.sample)
            if isinstance(sample, dict):
                output = model(**sample)
            else:
                output = model(*sample) if isinstance(sample, tuple) else model(sample)
            return [output, *_gradients(model, output)] if self.training else output


def _gradients(model: torch.nn.Module, output: Any) -> Sequence[Tensor | None]:
    """The gradients of the parameters, where the output has a graph. Those that a parameter keeps stay as they are."""
    results = [t for t in Attribute("", model, "", output).tensors() if t.tensor.grad_fn is not None]
    inputs = [p for p in model.parameters() if p.requires_grad and not p._backward_hooks]
    if not results or not inputs:
        return ()
    tensors = [found.tensor for found in results]
    weights = [torch.rand_like(tensor.detach()) for tensor in tensors]
    return torch.autograd.grad(tensors, inputs, weights, allow_unused=True)


def _copied(sample: Any) -> Any:
    """The sample with copies of its tensors: a model may write its input."""
    if isinstance(sample, Tensor):
        return sample.detach().clone().requires_grad_(sample.requires_grad)
    if type(sample) in (tuple, list):
        return type(sample)(map(_copied, sample))
    return {key: _copied(item) for key, item in sample.items()} if type(sample) is dict else sample


@contextmanager
def _fixed_random(walk: Walk) -> Iterator[None]:
    """The same random numbers inside, and outside those that would have come."""
    numpy = sys.modules.get("numpy")
    kinds = {p.device.type for _, m in walk for p in (m.__dict__.get("_parameters") or {}).values() if p is not None}
    state, arrays = random.getstate(), numpy.random.get_state() if numpy else None
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        for kind in kinds - {"cpu", "meta"}:
            devices = range(torch.get_device_module(kind).device_count())
            stack.enter_context(torch.random.fork_rng(devices=devices, device_type=kind))
        torch.manual_seed(0)
        random.seed(0)
        if numpy:
            numpy.random.seed(0)
        try:
            yield
        finally:
            random.setstate(state)
            if numpy:
                numpy.random.set_state(arrays)


def _equal(a: Any, b: Any) -> bool:
    """Whether two outputs have the same form and the same bits."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return same_bits(a, b)
    if type(a) is not type(b):
        return False
    ours, theirs = dict(parts(a)), dict(parts(b))
    if ours or theirs:
        return ours.keys() == theirs.keys() and all(_equal(ours[key], theirs[key]) for key in ours)
    return bool(a == b) if isinstance(a, int | float | str | bool | None) else True
