"""How much the clients differ, and how often that lets FedPD skip its communication."""

import math

from accord import tree


def dissimilarity(problem, x) -> float:
    """G(x) = max_i ||grad f_i(x) - grad F(x)||, over the clients of positive weight."""
    return float(problem.survey(x)[2])


def skip_probability(tolerance: float, dissimilarity: float, smoothness: float, s: float) -> float:
    """FedPD's skip probability p from the heterogeneity of the clients.

    ``tolerance`` eps bounds the **squared** gradient norm, ``dissimilarity`` is G, ``s`` = 1/penalty.
    With u = eps / (s^2 G^2), C(p) = (p (1 + L s) + L s)/(1 - L s) and
    thr = (1 - 2 L s)/(1 + L s): p = sqrt(u/36) while that is below thr, p = thr in the gap, then the
    root of C(p)^(2/(1-p)) = u/42. Always in [0, 1). It is a scaling law, not a guarantee. Where L s is
    1/2 or more the theory has nothing to say, and p = 0.

    X. Zhang, M. Hong, S. Dhople, W. Yin, Y. Liu, "FedPD", IEEE TSP 69, 2021, Table III, with s^2 under
    both branches and the log C term that the printed formula drops.
    """
    from scipy.optimize import brentq

    given = {
        "tolerance": tolerance,
        "dissimilarity": dissimilarity,
        "smoothness": smoothness,
        "s": s,
    }
    for name, value in given.items():
        if not (math.isfinite(value) and value >= 0):
            raise ValueError(f"{name}: got {value}; accepted is a finite number >= 0")
    Ls = smoothness * s
    if Ls >= 0.5 or tolerance == 0:
        return 0.0
    if s * dissimilarity == 0:
        return _LARGEST
    u = tolerance / (s * dissimilarity) ** 2
    threshold = (1 - 2 * Ls) / (1 + Ls)
    low = math.sqrt(u / 36)
    if low < threshold:
        return low

    def excess(p):
        C = (p * (1 + Ls) + Ls) / (1 - Ls)
        return 2 / (1 - p) * math.log(C) - math.log(u / 42)

    if excess(threshold) >= 0:
        return threshold
    if excess(_LARGEST) <= 0:
        return _LARGEST
    return float(brentq(excess, threshold, _LARGEST))


_LARGEST = 1 - 1e-3
"""The largest skip probability ever returned: a thousand local iterations a communication."""


def adapted_skip_probability(problem, smoothness: float, s: float, accuracy: float = 1e-2) -> float:
    """``skip_probability`` with G estimated on a short path of gradient descent from x0.

    The tolerance is (accuracy ||grad F(x0)||)^2.
    """
    x = problem.initial()
    start, largest = float(tree.norm(problem.gradient(x))), 0.0
    for _ in range(10):
        largest = max(largest, dissimilarity(problem, x))
        x = tree.add_scaled(x, -1 / smoothness, problem.gradient(x))
    return skip_probability((accuracy * start) ** 2, largest, smoothness, s)
