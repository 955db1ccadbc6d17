"""The solving of an analysis: a method, run until the certificate is tight enough."""

from typing import Any, NamedTuple

import numpy as np

from accord import algorithms, tree
from accord.engines import Stop, run
from accord.theory import certificate


class Choice(NamedTuple):
    """A method, and why it was taken, in words."""

    algorithm: Any
    reason: str


class Solution(NamedTuple):
    """A model, the run that found it and its certificate."""

    x: Any
    run: Any
    certificate: Any


def default_algorithm(problem):
    return Choice(algorithms.Newton(), "few columns")


def solve(problem, algorithm=None, tolerance=1e-8, max_rounds=None, seed=0, progress=None):
    algorithm = algorithm or default_algorithm(problem).algorithm
    bound = 1e-6
    for _ in range(6):
        r = run(
            algorithm,
            problem,
            max_rounds or (100 if isinstance(algorithm, algorithms.Newton) else 2000),
            seed,
            stop=Stop(gradient_norm=bound),
            reference=False,
            progress=progress,
        )
        c = certificate(problem, r.x)
        if r.status.name != "converged" or (
            c.distance is not None and c.distance <= tolerance * max(1, float(tree.norm(r.x)))
        ):
            break
        bound *= 0.1 if c.distance is None else max(1e-4, min(0.1, 0.5 * tolerance / c.distance))
    return Solution(np.asarray(r.x), r, c)
