"""When a run is good enough: always an optimality measure, never a change in loss."""

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Stop:
    """Stops a run at the first recorded round at which every given bound holds.

    ``gradient_norm`` bounds ||grad F(x)||; ``distance`` bounds the certificate ||grad F(x)||/mu >=
    ||x - x*|| (F must be strongly convex); ``gap`` bounds F(x) - F(x*) (needs the reference optimum).
    """

    gradient_norm: float | None = None
    distance: float | None = None
    gap: float | None = None

    def __post_init__(self):
        given = [f.name for f in fields(self) if getattr(self, f.name) is not None]
        if not given:
            raise ValueError("Stop: give at least one of gradient_norm, distance, gap")
        for name in given:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"Stop({name}=...): got {value}; accepted is a number > 0")

    def thresholds(self, mu: float | None) -> tuple[float, float]:
        """(bound on the gradient norm, bound on the gap), infinite where not asked for."""
        norm = math.inf if self.gradient_norm is None else self.gradient_norm
        if self.distance is not None:
            if not mu:
                raise ValueError(
                    "Stop(distance=...): F is not known to be strongly convex, so there is no "
                    "certificate of distance; add l2 > 0 without an intercept, or use gradient_norm"
                )
            norm = min(norm, self.distance * mu)
        return norm, math.inf if self.gap is None else self.gap

    def sentence(self) -> str:
        """The bounds in words."""
        names = {
            "gradient_norm": "the gradient norm of F",
            "distance": "the certified distance",
            "gap": "F(x) - F(x*)",
        }
        given = [
            f"{names[f.name]} is at most {v:g}"
            for f in fields(self)
            if (v := getattr(self, f.name)) is not None
        ]
        return " and ".join(given)
