"""Hyper-parameters of graph methods, from the data and the network."""

import dataclasses
import math

import numpy as np

from accord import algorithms, theory

_LEAST_GAP = 1e-4


def resolve(method, problem, network, pulls=None):
    """The method with every ``None`` chosen from the data and the network.

    - PDMM's ``oracle`` and ``relaxation`` as on the star. ``penalty``: a node's proximal term has the weight
      rho * degree, and rho = P / (mean degree * sqrt(1 - c^2)) with the star's penalty P and c the
      network's ``mixing_rate``. For averaging on a regular network this is the fastest rho: the error falls
      by c / (1 + sqrt(1 - c^2)) a round. With constraints the eigenvalues of sum_j B' B (``pulls``) stand in
      for the degrees.
    - ``step_size``: 1/L for DGD; (1 + w)/(2 L) for EXTRA, half its bound, with w the least eigenvalue of W,
      at least -c; for gradient tracking ((1 + w)/2)^2 (1 - c) / L, at most 1/(3 L).
    """
    if method.on_edges:
        pulls = network.degrees if pulls is None else pulls
        used = pulls[pulls > 0]
        mean, most = (float(f(used)) for f in (np.mean, np.max))
        return _resolve_pdmm(method, problem, network, mean, most)
    if not any(f.name == "step_size" for f in dataclasses.fields(method)):
        return method
    if method.step_size is not None:
        return method
    L = theory.constants(problem).smoothness
    return dataclasses.replace(method, step_size=_step(type(method).__name__, network) / L)


def _step(name: str, network) -> float:
    slow = max(1 - network.mixing_rate, _LEAST_GAP)
    if name == "DGD":
        return 1.0
    if name == "EXTRA":
        return 0.5
    return min(1 / 3, slow)


def _resolve_pdmm(method, problem, network, mean, most):
    star = algorithms.PDMM(None, method.relaxation, method.oracle)
    if method.penalty is None:
        star = theory.resolve(star, problem)
        c = network.mixing_rate
        penalty = star.penalty / (mean * math.sqrt(max(1 - c * c, _LEAST_GAP)))
    else:
        penalty = method.penalty
    # A gradient step on the whole sub-problem has to suit the node with most neighbours.
    most = penalty * most
    star = theory.resolve(dataclasses.replace(star, oracle=method.oracle, penalty=most), problem)
    return dataclasses.replace(
        method, penalty=penalty, relaxation=star.relaxation, oracle=star.oracle
    )
