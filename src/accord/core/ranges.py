"""The ranges of the standard hyper-parameters."""

import dataclasses
import math
import numbers

import numpy as np
from jax.core import Tracer

# name: (accepts, in words); bounds that all algorithms and oracles share.
_WHOLE = ("local_steps", "restart_interval", "batch_size", "max_iterations", "iterations")

_CHOICES = {
    "start": ("dual", "primal", "warm"),
    "form": ("gradient", "linearised"),
    "method": ("auto", "newton", "newton-cg"),
}

_RANGES = {
    "local_steps": (lambda v: v >= 1, "a whole number >= 1"),
    "restart_interval": (lambda v: v >= 1, "a whole number >= 1"),
    "batch_size": (lambda v: v >= 1, "a whole number >= 1"),
    "max_iterations": (lambda v: v >= 1, "a whole number >= 1"),
    "iterations": (lambda v: v >= 1, "a whole number >= 1"),
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
        choices = _CHOICES.get(field.name)
        if choices and isinstance(value, str) and value not in choices:
            raise ValueError(
                f"{cls}({field.name}=...): got {value!r}; accepted are {', '.join(choices)}"
            )
        known = field.name in _RANGES
        if not known or value is None or isinstance(value, Tracer):
            continue
        if callable(value) and field.name == "skip_probability":
            continue
        accepts, words = _RANGES[field.name]
        if field.name in getattr(algorithm, "may_be_zero", ()) and value == 0:
            continue
        if (
            np.ndim(value)
            or isinstance(value, bool)
            or (not isinstance(value, numbers.Real) and not hasattr(value, "dtype"))
        ):
            raise TypeError(
                f"{cls}({field.name}=...): got {value!r} of type {type(value).__name__}; "
                f"accepted is {words}"
            )
        whole = field.name not in _WHOLE or isinstance(value, numbers.Integral)
        if not (math.isfinite(value) and accepts(value) and whole):
            raise ValueError(f"{cls}({field.name}=...): got {value}; accepted is {words}")
