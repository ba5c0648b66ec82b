"""The same work on many files: one after another, in several processes, or on a cluster of Dask's.

Whatever goes wrong with one file is that file's outcome, and does not stop the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ClearstateError

Call = Mapping[str, Any]
Step = tuple[Callable[..., Any], tuple[Any, ...]]

SOME = 64
"""Files from which on starting processes pays, however small they are."""

MUCH = 32 << 20
"""Bytes from which on it does, however few they are."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one call.

    Attributes:
        number: which of the calls it was.
        value: what it returned.
        error: what it raised, or ``None``.
    """

    number: int
    value: Any = None
    error: Exception | None = None


def each(
    function: Callable[..., Any],
    calls: Sequence[Call],
    *,
    processes: int = 1,
    dask: str | None = None,
    before: Sequence[Step] = (),
    begin: Callable[[int], None] | None = None,
) -> Iterator[Outcome]:
    """Calls a function with each of these keyword arguments; gives the outcomes as they come.

    Args:
        function: what to call; for processes and clusters one that can be imported there.
        calls: the keyword arguments of each call.
        processes: how many work at a time; 1 is this one.
        dask: the address of a scheduler (``tcp://host:8786``). Its workers need clearstate, and see files by the same
            names.
        before: functions and their arguments, called first wherever work is done.
        begin: told the number of a call before it is made; of calls made elsewhere, before it is sent there.

    Raises:
        ClearstateError: there is no such scheduler, or Dask is not installed.

    >>> [outcome.value for outcome in each(max, [{"iterable": [1, 2]}][:0])]
    []
    >>> [str(outcome.error) for outcome in each(int, [{"base": 2}])]
    ['int() missing string argument']
    """
    if dask is not None:
        yield from _on_cluster(function, calls, dask, before, begin)
    elif processes > 1 and len(calls) > 1:
        yield from _in_processes(function, calls, processes, before, begin)
    else:
        _prepare(before)
        for number, call in enumerate(calls):
            if begin is not None:
                begin(number)
            yield _outcome(number, function, call)


def processes_for(sizes: Sequence[int]) -> int:
    """How many processes are worth starting for files of these sizes, in bytes.

    >>> processes_for([1000, 1000])
    1
    """
    if len(sizes) < 2 or (len(sizes) < SOME and sum(sizes) < MUCH):
        return 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, len(sizes))


def _prepare(before: Sequence[Step]) -> None:
    for function, arguments in before:
        function(*arguments)


def _outcome(number: int, function: Callable[..., Any], call: Call) -> Outcome:
    try:
        return Outcome(number, function(**call))
    except Exception as error:
        return Outcome(number, error=error)


def _in_processes(
    function: Callable[..., Any],
    calls: Sequence[Call],
    processes: int,
    before: Sequence[Step],
    begin: Callable[[int], None] | None,
) -> Iterator[Outcome]:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed

    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(calls)), context, _prepare, (tuple(before),)) as pool:
        futures = {}
        for number, call in enumerate(calls):
            if begin is not None:
                begin(number)
            futures[pool.submit(_outcome, number, function, call)] = number
        try:
            for future in as_completed(futures):
                error = future.exception()
                if isinstance(error, Exception):
                    yield Outcome(futures[future], error=error)
                else:
                    yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _on_cluster(
    function: Callable[..., Any],
    calls: Sequence[Call],
    address: str,
    before: Sequence[Step],
    begin: Callable[[int], None] | None,
) -> Iterator[Outcome]:
    try:
        import distributed
    except ImportError:
        raise ClearstateError("--dask needs dask.distributed: pip install clearstate[dask]") from None
    try:
        client: Any = distributed.Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClearstateError(f"no scheduler of Dask answers at {address}: {error}") from None
    completed: Any = distributed.as_completed
    with client:
        futures = {}
        for number, call in enumerate(calls):
            if begin is not None:
                begin(number)
            futures[client.submit(_there, tuple(before), number, function, dict(call), pure=False)] = number
        for future in completed(list(futures), loop=client.loop):
            lost = future.exception()
            if isinstance(lost, Exception):
                yield Outcome(futures[future], error=lost)
            else:
                yield future.result()


def _there(before: Sequence[Step], number: int, function: Callable[..., Any], call: Call) -> Outcome:
    _prepare(before)
    return _outcome(number, function, call)
