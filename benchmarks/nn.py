"""nn's modules against the same nets of stock ``torch.nn`` modules: what the protocol, its tape and clearing cost.

Both nets have the same weights and get the same batch, in turn, on one thread: what is compared is how they are
called, not how the machine shares its cores. So is the clock: it counts this process's time only. A ratio is the median
of those of neighbours in time, and the time of clearing is the least: others slow it down, and nothing speeds it up.
"""

from __future__ import annotations

import ctypes
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import nets
import torch
from measure import Row, Rows, in_turn, ratio
from reading import in_memory

import clearstate as cs
import clearstate.nn as nn

RATE = 1e-3
CLOCK = time.process_time


class Pair(NamedTuple):
    """A net of our modules, the same of stock modules, and a batch for both."""

    name: str
    ours: nn.Module
    stock: torch.nn.Module
    input: torch.Tensor
    target: torch.Tensor
    repeats: int
    """How often a job is done to be timed once."""


def pairs(example: Path) -> list[Pair]:
    """The nets that are measured."""
    torch.manual_seed(0)
    digits, resnet = cs.load(example), nets.resnet18(10)
    return [
        Pair("digits net", digits, nets.stock_digits(digits), torch.rand(32, 1, 8, 8), torch.arange(32) % 10, 20),
        Pair("ResNet-18", resnet, nets.stock_resnet18(resnet), torch.rand(16, 3, 64, 64), torch.arange(16) % 10, 1),
    ]


def modules(example: Path, folder: Path, rounds: int) -> Rows:
    """All rows about live modules."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    _keep_heap()
    try:
        for pair in pairs(example):
            yield from _called(pair, rounds)
            yield _cleared(pair, rounds)
        yield _loaded(folder / "hundred.t7", rounds)
    finally:
        torch.set_num_threads(threads)


def _keep_heap() -> None:
    """Has the C library keep freed memory, where it is glibc.

    When what is free reaches the end of its heap it goes back to the system, page by page, at the cost of whoever freed
    last. Which net that meets is chance: it is left out for both.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""``mallopt``'s numbers for how much stays, and for what is no part of the heap."""


def _called(pair: Pair, rounds: int) -> Rows:
    def forward(net: torch.nn.Module) -> None:
        with torch.no_grad():
            net(pair.input)

    def compared(what: str, ours: Callable[[], None], theirs: Callable[[], None], limit: float) -> Row:
        jobs = _repeated(ours, pair.repeats), _repeated(theirs, pair.repeats)
        in_turn(2, *jobs)
        taken = [in_turn(1, *jobs, clock=CLOCK) for _ in range(rounds)]
        mine, other = (statistics.median(seconds) / pair.repeats for seconds in zip(*taken, strict=True))
        pair.ours.clear_state()
        row = ratio(what, mine, other, "torch.nn", limit)
        return replace(row, value=statistics.median(ours / theirs for ours, theirs in taken))

    with torch.no_grad():
        difference = (pair.ours.eval()(pair.input) - pair.stock.eval()(pair.input)).abs().max()
    assert difference < 1e-4, f"the two nets of {pair.name} are not the same: {difference}"
    pair.ours.train()
    pair.stock.train()
    step = _step(pair.stock, torch.nn.NLLLoss(), pair)
    yield compared(f"{pair.name}: model(x)", lambda: forward(pair.ours), lambda: forward(pair.stock), 1.05)
    yield compared("  a training step, torch.optim", _step(pair.ours, nn.ClassNLLCriterion(), pair), step, 1.05)
    yield compared("  a step, forward and backward", _protocol(pair.ours, nn.ClassNLLCriterion(), pair), step, 1.25)


def _step(net: torch.nn.Module, loss: Callable[..., Any], pair: Pair) -> Callable[[], None]:
    optimizer = torch.optim.SGD(net.parameters(), RATE, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        loss(net(pair.input), pair.target).backward()
        optimizer.step()

    return step


def _protocol(net: nn.Module, loss: nn.Criterion, pair: Pair) -> Callable[[], None]:
    def step() -> None:
        output = net.forward(pair.input)
        loss.forward(output, pair.target)
        net.zero_grad_parameters()
        net.backward(pair.input, loss.backward(output, pair.target))
        net.update_parameters(RATE)

    return step


def _repeated(job: Callable[[], None], count: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(count):
            job()

    return repeated


def _cleared(pair: Pair, rounds: int) -> Row:
    """Microseconds a module, after a forward and a backward; beside it, what deleting the same by hand takes.

    That is the time in which PyTorch and Python free the graph, the outputs and the gradients.
    """
    work = _protocol(pair.ours, nn.ClassNLLCriterion(), pair)
    modules = [module for module in pair.ours.list_modules() if isinstance(module, nn.Module)]

    def by_hand() -> None:
        for module in modules:
            for name in LEFT:
                vars(module).pop(name, None)

    taken = [(_timed(work, pair.ours.clear_state), _timed(work, by_hand)) for _ in range(rounds * min(pair.repeats, 5))]
    count = len(modules)
    each, freed = (min(seconds) / count * 1e6 for seconds in zip(*taken, strict=True))
    other = f"{freed:.1f} us deleted by hand"
    return Row(f"  clear_state(), {count} modules", f"{each:.1f} us", other, each, "microseconds a module", 5)


LEFT = ("_tape", "output", "grad_input")
"""Attributes that a forward and a backward leave on every module."""


def _timed(before: Callable[[], object], job: Callable[[], object]) -> float:
    before()
    start = CLOCK()
    job()
    return CLOCK() - start


def _loaded(path: Path, rounds: int) -> Row:
    """A net of 100 modules, as training left it, made alive, against reading all its numbers."""
    net = nets.resnet18(10)
    x = torch.rand(16, 3, 64, 64)
    net.backward(x, torch.ones_like(net.forward(x)))
    cs.save(net, path)
    jobs = (lambda: cs.load(path), lambda: in_memory(path))
    in_turn(1, *jobs)
    live, read = in_turn(rounds, *jobs, clock=CLOCK)
    what = f"cs.load, {len(net.list_modules())} modules, {path.stat().st_size / 1e6:.0f} MB"
    path.unlink()
    return ratio(what, live, read, "reading its numbers", 2)
