"""The ranges of the standard hyper-parameters."""

import dataclasses
import math
import numbers

from jax.core import Tracer

# name: (accepts, in words); bounds that all algorithms and oracles share.
_RANGES = {
    "local_steps": (lambda v: v >= 1 and float(v).is_integer(), "a whole number >= 1"),
    "restart_interval": (lambda v: v >= 1 and float(v).is_integer(), "a whole number >= 1"),
    "batch_size": (lambda v: v >= 1 and float(v).is_integer(), "a whole number >= 1"),
    "max_iterations": (lambda v: v >= 1 and float(v).is_integer(), "a whole number >= 1"),
    "iterations": (lambda v: v >= 1 and float(v).is_integer(), "a whole number >= 1"),
    "step_size": (lambda v: v > 0, "a number > 0, or None: from the data"),
    "server_step_size": (lambda v: v > 0, "a number > 0"),
    "penalty": (lambda v: v > 0, "a number > 0, or None: from the data"),
    "tolerance": (lambda v: v >= 0, "a number >= 0"),
    "relaxation": (lambda v: 0 < v <= 1, "a number in (0, 1]"),
    "skip_probability": (
        lambda v: 0 <= v < 1,
        "a number in [0, 1), a function of the iteration, or None",
    ),
    "communication_probability": (lambda v: 0 < v <= 1, "a number in (0, 1]"),
}


def check_hyperparameters(algorithm) -> None:
    """Raises where a standard hyper-parameter is out of range; others are the method's own affair."""
    cls = type(algorithm).__name__
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        known = field.name in _RANGES
        if not known or value is None or callable(value) or isinstance(value, Tracer):
            continue
        accepts, words = _RANGES[field.name]
        if field.name in getattr(algorithm, "may_be_zero", ()) and value == 0:
            continue
        if isinstance(value, bool) or (
            not isinstance(value, numbers.Real) and not hasattr(value, "dtype")
        ):
            raise TypeError(
                f"{cls}({field.name}=...): got {value!r} of type {type(value).__name__}; "
                f"accepted is {words}"
            )
        if not (math.isfinite(value) and accepts(value)):
            raise ValueError(f"{cls}({field.name}=...): got {value}; accepted is {words}")
