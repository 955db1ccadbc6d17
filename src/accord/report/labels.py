"""The names of algorithms in tables and legends."""

import dataclasses
from collections import Counter
from typing import Any


def spelled(value: Any) -> str:
    """A hyper-parameter as one would write it: 0.3, "dual", GradientDescent(local_steps=5)."""
    if isinstance(value, str):
        return f'"{value}"'
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _call(value, [f.name for f in dataclasses.fields(value)])
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, float) or getattr(value, "shape", None) == ():
        return f"{float(value):.6g}"
    return str(value)


def _call(instance, names) -> str:
    """The constructor's call with those of the fields ``names`` that are not at their default."""
    given = [
        f"{f.name}={spelled(getattr(instance, f.name))}"
        for f in dataclasses.fields(instance)
        if f.name in names and not _same(getattr(instance, f.name), f.default)
    ]
    return f"{type(instance).__name__}({', '.join(given)})"


def _same(a, b) -> bool:
    return a is b or (type(a) is type(b) and bool(a == b))


def labels(algorithms) -> list[str]:
    """One name each: the class, with the hyper-parameters that tell it from others of its class."""
    names = []
    for algorithm in algorithms:
        kin = [a for a in algorithms if type(a) is type(algorithm)]
        differing = [
            f.name
            for f in dataclasses.fields(algorithm)
            if not all(_same(getattr(a, f.name), getattr(algorithm, f.name)) for a in kin)
        ]
        names.append(_call(algorithm, differing).removesuffix("()"))
    seen: Counter[str] = Counter()
    for k, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[k] = f"{name} #{seen[name]}"
    return names
