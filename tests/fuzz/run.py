"""Many mutants in a few processes: each has so much memory and so much time, and what dies is told and replaced."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from .mutants import Mutant, mutant, of_recipe
from .verbs import OUTCOMES, PLACELESS, Fault, TimeUp, tried

TIMES = 4
"""Memory that a mutant may take: so many times its own bytes ..."""

CONSTANT = 24 << 20
"""... and these, for buffers and what the interpreter keeps."""

LONGEST = 10.0
"""Seconds of a processor that one mutant may take, with all that is done to it."""

STUCK = 120.0
"""Seconds after which a process that says nothing is ended."""

FOUND = Path(__file__).parents[2] / "build" / "fuzz"
"""Where the mutants go that show a fault."""

FASTEST = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where files are written: in memory where there is a place, since each new file waits for its disk."""

TURNS = 8
"""Ways in which each mutant of the corpus is tried."""

REPORT_EVERY = 200


class Plan(NamedTuple):
    """Which mutants of which seed, in how many processes, and the seconds for each."""

    seed: int
    first: int
    mutants: int
    workers: int
    seconds: float
    form: str | None = None


@contextlib.contextmanager
def limited(size: int, seconds: float = LONGEST, memory: int | None = CONSTANT) -> Iterator[None]:
    """So much memory and time for what is done in here: `MemoryError` and `TimeUp` are raised beyond."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    if memory is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (held + TIMES * size + memory, hard))
    before = signal.signal(signal.SIGPROF, _time_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _time_up(*_: Any) -> None:
    raise TimeUp


def fault_of(
    what: Mutant, salt: str, folder: Path, seconds: float = LONGEST, memory: int | None = CONSTANT
) -> Fault | None:
    """What goes wrong with a mutant, if anything does; ``salt`` says what is done with it."""
    size = sum(map(len, what.files().values()))
    try:
        with limited(size, seconds, memory):
            tried(what, folder, random.Random(salt))
    except Fault as fault:
        return fault
    except TimeUp:
        return Fault("too long", "between two verbs")
    except MemoryError:
        return Fault("MemoryError", "between two verbs")
    return None


def smallest(what: Mutant, salt: str, folder: Path, kind: str) -> Mutant:
    """The mutant with the fewest edits that shows the same fault."""
    for smaller in what.smaller():
        fault = fault_of(smaller, salt, folder)
        if fault is not None and fault.kind == kind:
            return smallest(smaller, salt, folder, kind)
    return what


def _work(plan: Plan, numbers: range, to: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder = Path(tempfile.mkdtemp(dir=FASTEST))
    met: set[str] = set()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            _warm(folder)
        OUTCOMES.clear()
        PLACELESS.clear()
        for done, number in enumerate(numbers):
            to.send(("begins", number))
            what = mutant(plan.seed, number, plan.form)
            salt = f"{plan.seed}:{number}:verbs"
            fault = fault_of(what, salt, folder, plan.seconds)
            if fault is not None:
                small = what if fault.kind in met else smallest(what, salt, folder, fault.kind)
                met.add(fault.kind)
                to.send(("fault", number, fault.kind, str(fault), small.recipe()))
            if done % REPORT_EVERY == REPORT_EVERY - 1 or number == numbers[-1]:
                to.send(("counts", dict(OUTCOMES), dict(PLACELESS)))
                OUTCOMES.clear()
                PLACELESS.clear()
        to.send(("ends",))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _warm(folder: Path) -> None:
    """Every room is entered once, so that no mutant is charged for an import."""
    from .seeds import NAMES

    for names in NAMES.values():
        for turn, name in enumerate(names[:4] * 2):
            tried(Mutant(name, ()), folder, random.Random(turn))


def fuzz(plan: Plan) -> int:
    """Runs a plan; prints what was found, writes the mutants to `FOUND`; 1 where there was a fault, else 0."""
    FOUND.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("fork")
    running: dict[Any, tuple[Any, range, int, float]] = {}
    faults: dict[str, list[tuple[int, str, str]]] = {}
    outcomes: Counter[str] = Counter()
    placeless: Counter[str] = Counter()

    def start(numbers: range) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(plan, numbers, theirs))
        process.start()
        theirs.close()
        running[ours] = (process, numbers, numbers.start - numbers.step, time.monotonic())

    begun = time.monotonic()
    last = plan.first + plan.mutants
    for worker in range(plan.workers):
        if plan.first + worker < last:
            start(range(plan.first + worker, last, plan.workers))
    told = done = 0
    while running:
        ready: list[Any] = wait(list(running), timeout=5.0)
        for ours in ready:
            process, numbers, at, _ = running[ours]
            try:
                message = ours.recv()
            except EOFError:
                process.join()
                del running[ours]
                faults.setdefault(f"the process died ({process.exitcode})", []).append(
                    (at, "", mutant(plan.seed, max(at, 0), plan.form).recipe())
                )
                rest = range(at + numbers.step, numbers.stop, numbers.step)
                if rest:
                    start(rest)
                continue
            if message[0] == "begins":
                done += 1
                running[ours] = (process, numbers, message[1], time.monotonic())
            elif message[0] == "fault":
                _, number, kind, text, recipe = message
                if kind not in faults:
                    print(f"\n{kind}\n  {number}: {recipe}\n{_indented(text)}", flush=True)
                faults.setdefault(kind, []).append((number, text, recipe))
            elif message[0] == "counts":
                outcomes.update(message[1])
                placeless.update(message[2])
            else:
                process.join()
                del running[ours]
        for _ours, (process, _, _, since) in list(running.items()):
            if time.monotonic() - since > STUCK:
                process.kill()
        if done // 5000 > told:
            told = done // 5000
            print(
                f"{done} mutants, {sum(map(len, faults.values()))} faults, {time.monotonic() - begun:.0f} s", flush=True
            )
    _report(plan, faults, outcomes, placeless, time.monotonic() - begun)
    return int(bool(faults))


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[-14:])


def _report(
    plan: Plan,
    faults: dict[str, list[tuple[int, str, str]]],
    outcomes: Counter[str],
    placeless: Counter[str],
    seconds: float,
) -> None:
    for what, count in sorted(outcomes.items()):
        print(f"{count:9d}  {what}")
    print("\nrefusals without a place:")
    for what, count in placeless.most_common(25):
        print(f"{count:9d}  {what}")
    for kind, all_of in sorted(faults.items(), key=lambda item: -len(item[1])):
        number, _, recipe = min(all_of, key=lambda each: len(each[2]))
        print(f"\n{len(all_of)} x {kind}\n  {number}: {recipe[:600]}")
        for number, _text, recipe in all_of[:3]:
            for name, data in of_recipe(recipe).files().items():
                (FOUND / f"{plan.seed}-{number}-{name}").write_bytes(data)
    with open(FOUND / f"faults-{plan.seed}-{plan.first}.jsonl", "w") as out:
        for kind, all_of in faults.items():
            for number, _text, recipe in all_of[:20]:
                out.write(json.dumps({"kind": kind, "number": number, "recipe": json.loads(recipe)}) + "\n")
    which = f"{plan.mutants} mutants of seed {plan.seed} from {plan.first} on"
    print(f"\n{which}: {len(faults)} kinds of fault, {seconds:.0f} s")


def again() -> int:
    """Tries the mutants of the corpus, each in several ways; prints the faults."""
    recipes = Path(__file__).with_name("corpus.jsonl").read_text().splitlines()
    faults: dict[str, str] = {}
    with tempfile.TemporaryDirectory(dir=FASTEST) as name:
        folder = Path(name)
        _warm(folder)
        for recipe in recipes:
            for turn in range(TURNS):
                if fault := fault_of(of_recipe(recipe), str(turn), folder):
                    faults.setdefault(fault.kind, f"{recipe[:600]}\n{_indented(str(fault))}")
    for kind, text in faults.items():
        print(f"{kind}\n  {text}\n")
    print(f"{len(recipes)} recipes, {len(faults)} kinds of fault")
    return int(bool(faults))


def shown(recipe: str) -> int:
    """Tries the mutant of one recipe, with several ways of the verbs; prints the first fault."""
    what = of_recipe(recipe)
    with tempfile.TemporaryDirectory() as folder:
        _warm(Path(folder))
        for turn in range(40):
            if fault := fault_of(what, str(turn), Path(folder)):
                print(f"{fault.kind}\n{fault}")
                return 1
    print("no fault")
    return 0
