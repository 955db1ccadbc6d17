"""Hyper-parameters from the data, and the bounds that a given one must respect."""

import dataclasses
import math
import warnings
from typing import Any

from accord.core import fact
from accord.oracles import Exact, GradientDescent
from accord.theory.constants import Constants, constants
from accord.theory.heterogeneity import adapted_skip_probability

MOST_LOCAL_STEPS = 100
UNKNOWN_LOCAL_STEPS = 10


def resolve(algorithm, problem):
    """The algorithm with every ``None`` among the standard hyper-parameters chosen from the data.

    - ``oracle``: exact where the objective has a proximal step, else gradient descent.
    - ``local_steps`` K: about sqrt(kappa), at most 100; 10 where kappa is not known.
    - ``penalty`` rho: sqrt(L mu) for exact local solves (with F's own mu where a client has none, L/10
      where that is 0 too); else max(L/K, sqrt(L mu)), which is max(1/(K eta), sqrt(L mu)) at the default
      step; L/K for FedProx; at least L/0.3 where convexity is not known and the method wants it (FedPD,
      ADMM, FedDyn).
    - ``step_size`` eta: 1/L, or 1/(L + rho) where the steps are on the whole sub-problem.
    - ``communication_probability``: 1/sqrt(kappa). ``relaxation``: 1 where every f_i is strongly convex,
      else 1/2. ``skip_probability``: from the clients' heterogeneity.

    A ``step_size`` above its stable bound is kept, with a warning that quotes the bound.
    """
    c = constants(problem)
    missing = {f.name for f in dataclasses.fields(algorithm) if getattr(algorithm, f.name) is None}
    missing -= {f.name for f in dataclasses.fields(algorithm) if f.metadata.get("static")}
    chosen = {}
    if "local_steps" in missing:
        chosen["local_steps"] = _local_steps(c)
    if "oracle" in missing:
        chosen["oracle"] = Exact() if "prox" in problem.offers else GradientDescent()
    algorithm = dataclasses.replace(algorithm, **chosen)
    oracle = getattr(algorithm, "oracle", None)
    if getattr(oracle, "local_steps", 0) is None:
        oracle = dataclasses.replace(oracle, local_steps=_local_steps(c))
    chosen = {"oracle": oracle} if oracle is not None else {}
    if "penalty" in missing:
        chosen["penalty"] = _penalty(algorithm, oracle, c)
    if "relaxation" in missing:
        chosen["relaxation"] = 1.0 if c.strong_convexity else 0.5
    if "communication_probability" in missing:
        chosen["communication_probability"] = 1 / math.sqrt(c.condition or UNKNOWN_LOCAL_STEPS**2)
    algorithm = dataclasses.replace(algorithm, **chosen)
    algorithm = _with_step_size(algorithm, c)
    if "skip_probability" in missing:
        p = adapted_skip_probability(problem, c.smoothness, 1 / algorithm.penalty)
        algorithm = dataclasses.replace(algorithm, skip_probability=p)
    return algorithm


def _local_steps(c: Constants) -> int:
    if c.condition is None:
        return UNKNOWN_LOCAL_STEPS
    return max(1, min(MOST_LOCAL_STEPS, round(math.sqrt(c.condition))))


def _penalty(algorithm, oracle, c: Constants) -> float:
    L, mu = c.smoothness, c.strong_convexity or c.global_strong_convexity or 0.0
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


def _with_step_size(algorithm, c: Constants):
    """Fills the step size of the method, or of its oracle, and warns above the stable bound."""
    L, rho = c.smoothness, getattr(algorithm, "penalty", None) or 0.0
    own = hasattr(algorithm, "step_size")
    holder: Any = algorithm if own else getattr(algorithm, "oracle", None)
    if not hasattr(holder, "step_size"):
        return algorithm
    on_subproblem = getattr(holder, "form", fact(algorithm, "local")) == "gradient"
    safe = 1 / (L + rho if on_subproblem else L)
    # An estimate of L is doubled for the default; a given step is held against the estimate itself.
    bound = fact(algorithm, "step_bound") * safe * (2 if c.estimated else 1)
    if holder.step_size is None:
        holder = dataclasses.replace(holder, step_size=safe)
    elif holder.step_size > bound * (1 + 1e-9):
        known = "L estimated locally" if c.estimated else "L computed from the data"
        warnings.warn(
            f"step_size: {holder.step_size:g} is above the stable bound {bound:g} "
            f"({known}); the run may diverge",
            UserWarning,
            stacklevel=6,
        )
    return holder if own else dataclasses.replace(algorithm, oracle=holder)
