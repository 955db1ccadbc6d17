"""Two things timed in turn, so that a machine that drifts drifts for both."""

import statistics
import time
from collections.abc import Callable

PAUSE = 0.3
"""Seconds of rest before each timing: the threads of a BLAS go on spinning for a while."""


def in_turn(first: Callable[[], object], second: Callable[[], object], runs: int = 9):
    """(median seconds of the first, of the second, median ratio second/first), after one warm-up."""
    first(), second()
    pairs = []
    for _ in range(runs):
        pairs.append((_seconds(first), _seconds(second)))
    a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
    return a, b, statistics.median(y / x for x, y in pairs)


def _seconds(function) -> float:
    time.sleep(PAUSE)
    began = time.perf_counter()
    function()
    return time.perf_counter() - began
