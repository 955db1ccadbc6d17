"""Splits an algorithm into its numbers and the rest.

Compiled code takes the numbers as arguments, so that another step size does not compile again; the
rest (class, strings, callables, fields marked static) is hashable and identifies the program.
Dataclasses inside (oracles, schedules) are split the same way.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np


class Structure(NamedTuple):
    """What identifies the compiled program of an algorithm: hashable, without numbers."""

    cls: type
    fields: tuple[tuple[str, Any], ...]


def static(default=dataclasses.MISSING):
    """A dataclass field whose value shapes the program: another value compiles anew."""
    return dataclasses.field(default=default, metadata={"static": True})


def _is_number(value) -> bool:
    if isinstance(value, bool | str) or value is None:
        return False
    return isinstance(value, int | float | np.number | np.ndarray) or hasattr(value, "aval")


def split(algorithm) -> tuple[dict[str, Any], Structure]:
    """(numbers, structure) of a dataclass instance; ``join`` is the inverse."""
    numbers, fields = {}, []
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            numbers[field.name], value = split(value)
        elif _is_number(value) and not field.metadata.get("static"):
            # A NumPy scalar has a dtype of its own, which would decide that of the whole run.
            numbers[field.name] = value.item() if isinstance(value, np.generic) else value
            continue
        fields.append((field.name, value))
    return numbers, Structure(type(algorithm), tuple(fields))


def join(numbers: dict[str, Any], structure: Structure):
    """The algorithm with these numbers, which may be traced: nothing is validated again."""
    algorithm: Any = object.__new__(structure.cls)
    values = dict(numbers)
    for name, value in structure.fields:
        nested = isinstance(value, Structure)
        values[name] = join(numbers[name], value) if nested else value
    for name, value in values.items():
        object.__setattr__(algorithm, name, value)
    return algorithm
