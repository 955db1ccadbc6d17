"""Hyper-parameters of graph methods, from the data and the network."""

import dataclasses
import math

import numpy as np

from accord import algorithms, theory
from accord.graph.mixing import GradientTracking

_LEAST_GAP = 1e-4


def resolve(method, problem, network, pulls=None):
    """The method with every ``None`` chosen from the data and the network.

    - PDMM's ``oracle`` and ``relaxation`` as on the star. ``penalty``: a node's proximal term has the weight
      rho * degree, and rho = P / (mean degree * sqrt(1 - c^2)) with P the star's penalty, but at least
      sqrt(L mu) with F's own mu, and c the network's ``mixing_rate``. For averaging on a regular
      network this is the fastest rho: the error falls by c / (1 + sqrt(1 - c^2)) a round. With
      constraints the eigenvalues of sum_j B' B (``pulls``) stand in for the degrees.
    - ``step_size``: (1 + w)/(2 L) for DGD and EXTRA, half their bounds, with w the least eigenvalue of W; for
      gradient tracking min((1 + w)^2/4, 1 - v)/L, with v the largest |eigenvalue| of W but 1.
    """
    if method.on_edges:
        pulls = network.degrees if pulls is None else pulls
        used = pulls[pulls > 0]
        mean, most = (float(f(used)) for f in (np.mean, np.max))
        return _resolve_pdmm(method, problem, network, mean, most)
    if getattr(method, "step_size", 0.0) is not None:
        return method
    L = theory.constants(problem).smoothness
    return dataclasses.replace(method, step_size=_step(method, network) / L)


def _step(method, network) -> float:
    """The default step size of a mixing method, times L."""
    least, second = network.mixing_spectrum
    if not isinstance(method, GradientTracking):
        return 0.5 * (1 + least)
    slow = max(1 - max(abs(least), second), _LEAST_GAP)
    return min(0.25 * (1 + least) ** 2, slow)


def _resolve_pdmm(method, problem, network, mean, most):
    """PDMM for a network whose nodes are pulled, at penalty 1, by ``mean`` and at the most by ``most``."""
    star = algorithms.PDMM(None, method.relaxation, method.oracle)
    if method.penalty is None:
        star = theory.resolve(star, problem)
        c = network.mixing_rate
        known = theory.constants(problem)
        # Neighbours lend each other curvature: F's own counts, where it is known.
        common = math.sqrt(known.smoothness * (known.global_strong_convexity or 0.0))
        wanted = max(star.penalty, common)
        penalty = wanted / (mean * math.sqrt(max(1 - c * c, _LEAST_GAP)))
    else:
        penalty = method.penalty
    # A gradient step on the whole sub-problem has to suit the node with most neighbours.
    most = penalty * most
    star = theory.resolve(dataclasses.replace(star, oracle=method.oracle, penalty=most), problem)
    return dataclasses.replace(
        method, penalty=penalty, relaxation=star.relaxation, oracle=star.oracle
    )
