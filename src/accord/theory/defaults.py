"""Hyper-parameters from the data, and the bounds that a given one must respect."""

import dataclasses
import math
import warnings
from typing import Any

from accord.oracles import Exact, GradientDescent
from accord.theory.constants import Constants, constants, has_bounds
from accord.theory.heterogeneity import adapted_skip_probability

MOST_LOCAL_STEPS = 100
TINY = 1e-11
UNKNOWN_LOCAL_STEPS = 10


def resolve(algorithm, problem, absence: float = 1.0):
    """The algorithm with every ``None`` among the standard hyper-parameters chosen from the data.

    - ``oracle``: exact where the objective has a proximal step, else gradient descent.
    - ``local_steps`` K: about sqrt(kappa), at most 100; 10 where kappa is not known.
    - ``penalty`` rho: sqrt(L mu) for exact local solves (with F's own mu where a client has none, L/10
      where that is 0 too); else max(L/K, sqrt(L mu)), which is max(1/(K eta), sqrt(L mu)) at the default
      step; L/K for FedProx; L/0.3 for methods with an oracle where convexity is not known;
      8 L/(sqrt(5) - 1) for a FedPD whose skip probability is to be chosen.
    - ``step_size`` eta: 1/L, or 1/(L + rho) where the steps are on the whole sub-problem; divided by
      ``absence``, the age of an absent client's gradient in rounds, for the methods that go on using it.
    - ``communication_probability``: 1/sqrt(kappa), at least 1/100. ``relaxation``: 1 where every f_i is
      strongly convex, else 1/2. ``skip_probability``: from the clients' heterogeneity.

    A ``step_size`` above its stable bound is kept, with a warning that quotes the bound.
    """
    missing = _missing(algorithm) | _missing(getattr(algorithm, "oracle", None))
    stepping = any(
        hasattr(part, "step_size") for part in (algorithm, getattr(algorithm, "oracle", None))
    )
    if not missing and not (
        stepping and has_bounds(problem) and constants(problem).smoothness > TINY
    ):
        # All is given, and L would have to be estimated, at a cost, or is of no use: nothing to add.
        return algorithm
    c = constants(problem)
    if not (math.isfinite(c.smoothness) and c.smoothness > TINY):
        raise ValueError(
            f"{type(algorithm).__name__}: no {', no '.join(sorted(missing)) or 'bound'} can be chosen: the "
            f"objective's smoothness L is {c.smoothness:g} (all features zero, a loss without curvature such "
            "as |r|, or values out of range); scale the data, add l2, or give every hyper-parameter"
        )
    chosen: dict[str, Any] = {}
    if "local_steps" in _missing(algorithm):
        chosen["local_steps"] = _local_steps(c)
    if "oracle" in missing:
        chosen["oracle"] = Exact() if "prox" in problem.offers else GradientDescent()
    algorithm = dataclasses.replace(algorithm, **chosen)
    oracle: Any = getattr(algorithm, "oracle", None)
    if "local_steps" in _missing(oracle):
        oracle = dataclasses.replace(oracle, local_steps=_local_steps(c))
    chosen = {"oracle": oracle} if oracle is not None else {}
    if "penalty" in missing:
        chosen["penalty"] = _penalty(algorithm, oracle, c, "skip_probability" in missing)
    if "relaxation" in missing:
        chosen["relaxation"] = 1.0 if c.strong_convexity else 0.5
    if "communication_probability" in missing:
        chosen["communication_probability"] = 1 / _local_steps(c, whole=False)
    algorithm = dataclasses.replace(algorithm, **chosen)
    algorithm = _with_step_size(algorithm, c, absence)
    if "skip_probability" in missing:
        p = adapted_skip_probability(problem, c.smoothness, 1 / algorithm.penalty)
        algorithm = dataclasses.replace(algorithm, skip_probability=p)
    return algorithm


def _missing(part) -> set[str]:
    """The fields of an algorithm or oracle that are to be chosen."""
    if not dataclasses.is_dataclass(part):
        return set()
    fields = [f for f in dataclasses.fields(part) if not f.metadata.get("static")]
    return {f.name for f in fields if getattr(part, f.name) is None}


def _local_steps(c: Constants, whole: bool = True):
    """About sqrt(kappa), between 1 and the most allowed."""
    root = UNKNOWN_LOCAL_STEPS if c.condition is None else math.sqrt(c.condition)
    return max(1, min(MOST_LOCAL_STEPS, round(root) if whole else root))


def _penalty(algorithm, oracle, c: Constants, skips: bool) -> float:
    L, mu = c.smoothness, c.strong_convexity or c.global_strong_convexity or 0.0
    if skips:
        return 8 * L / (math.sqrt(5) - 1)
    exact = math.sqrt(L * mu) if mu else L / 10
    local_steps = getattr(algorithm, "local_steps", getattr(oracle, "local_steps", None))
    if c.strong_convexity is None and not hasattr(algorithm, "local_steps"):
        return L / 0.3
    if local_steps is None:
        return exact
    step = getattr(algorithm, "step_size", getattr(oracle, "step_size", None)) or 1 / L
    if not hasattr(algorithm, "dual"):
        return 1 / (local_steps * step)
    return max(1 / (local_steps * step), math.sqrt(L * mu))


def _with_step_size(algorithm, c: Constants, absence: float):
    """Fills the step size of the method, or of its oracle, and warns above the stable bound."""
    L, rho = c.smoothness, getattr(algorithm, "penalty", None) or 0.0
    own = hasattr(algorithm, "step_size")
    holder: Any = algorithm if own else getattr(algorithm, "oracle", None)
    if not hasattr(holder, "step_size"):
        return algorithm
    on_subproblem = getattr(holder, "form", algorithm.local) == "gradient"
    safe = 1 / (L + rho if on_subproblem else L)
    # An estimate of L is doubled for the default; a given step is held against the estimate itself.
    bound = algorithm.step_bound * safe * (2 if c.estimated else 1)
    if holder.step_size is None:
        shortened = safe / absence if algorithm.delayed else safe
        holder = dataclasses.replace(holder, step_size=shortened)
    elif holder.step_size > bound * (1 + 1e-9):
        known = "L estimated locally" if c.estimated else "L computed from the data"
        warnings.warn(
            f"step_size: {holder.step_size:g} is above the stable bound {bound:g} "
            f"({known}); the run may diverge",
            UserWarning,
            stacklevel=6,
        )
    return holder if own else dataclasses.replace(algorithm, oracle=holder)
