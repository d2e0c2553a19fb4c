"""Times in seconds of the processor, peaks of memory in bytes, and how well two results agree."""

import statistics
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np


class Comparison(NamedTuple):
    """One derivative by hand and by meintorch."""

    seconds_by_hand: float
    ratio: float
    peak_by_hand: int
    peak: int
    difference: float


def seconds(call: Callable[[], Any], times: int = 1) -> float:
    """Return the processor time of one call, as the mean of some."""
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def times_for(call: Callable[[], Any], at_least: float) -> int:
    """Return how many calls take that many seconds together."""
    call()
    times = 1
    while (taken := seconds(call, times) * times) < at_least:
        times = max(2 * times, int(times * at_least / max(taken, 1e-4)))
    return times


def fastest(call: Callable[[], Any], rounds: int, at_least: float = 0.01) -> float:
    """Return the least processor time of one call: what disturbs a round only ever adds to it."""
    times = times_for(call, at_least)
    return min([seconds(call, times) for _ in range(rounds)])


def peak(call: Callable[[], Any]) -> int:
    """Return the most memory that a call holds at one time, its result included."""
    call()  # what happens only once is not counted
    tracemalloc.start()
    call()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def difference(result: Any, expected: Any) -> float:
    """Return the largest difference between two arrays or tuples of them, relative to the largest entry of each."""
    if isinstance(expected, tuple):
        return max([difference(*pair) for pair in zip(result, expected, strict=True)])
    assert np.shape(result) == np.shape(expected)
    return float(np.max(np.abs(result - expected)) / np.max(np.abs(expected)))


def compare(workload: Any, n: int, rounds: int, at_least: float = 0.01) -> Comparison:
    """Measure both in turn, so that what slows the machine down slows both; the ratio is the median of all rounds."""
    inputs = workload.inputs(np.random.default_rng(n), n)
    derivative = workload.derive(workload.program)
    calls = [partial(workload.by_hand, *inputs), partial(derivative, *inputs)]
    counts = [times_for(call, at_least) for call in calls]
    taken = [[seconds(call, times) for call, times in zip(calls, counts, strict=True)] for _ in range(rounds)]
    return Comparison(
        seconds_by_hand=min([by_hand for by_hand, _ in taken]),
        ratio=statistics.median([ours / by_hand for by_hand, ours in taken]),
        peak_by_hand=peak(calls[0]),
        peak=peak(calls[1]),
        difference=difference(derivative(*inputs), workload.by_hand(*inputs)),
    )


def growth(workload: Any, sizes: list[int], rounds: int, at_least: float = 0.01) -> list[tuple[float, int]]:
    """Return the time and the peak of meintorch's derivative at each size."""
    derivative = workload.derive(workload.program)
    found = []
    for n in sizes:
        inputs = workload.inputs(np.random.default_rng(n), n)
        call = partial(derivative, *inputs)
        found.append((fastest(call, rounds, at_least), peak(call)))
    return found
