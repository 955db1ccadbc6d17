"""Engines that run an algorithm: compiled, debug; and ``run``, which drives them."""

from accord.engines.debug import Debug, StageError
from accord.engines.history import History
from accord.engines.job import Job, make_job
from accord.engines.run import Run, run
from accord.engines.star import Star, State
from accord.engines.stop import Stop

__all__ = [
    "Debug",
    "History",
    "Job",
    "Run",
    "StageError",
    "Star",
    "State",
    "Stop",
    "make_job",
    "run",
]
