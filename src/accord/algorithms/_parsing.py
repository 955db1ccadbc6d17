"""Methods as one writes them on a command line or in a configuration."""

import ast
import dataclasses
from collections.abc import Mapping
from typing import Any

from accord import oracles
from accord.core.checks import closest


def parse_method(text: str, known: Mapping[str, type] | None = None):
    """One instance from ``"GPDMM:local_steps=5"``."""
    chosen = parse_methods(text, known)
    if len(chosen) > 1:
        raise ValueError(f"method: got {len(chosen)} methods; accepted is one")
    return chosen[0]


def parse_methods(text: str, known: Mapping[str, type] | None = None) -> list:
    """Instances from ``"GPDMM,FedPD:skip_probability=0.3"``, of the classes ``known`` by name (None: the
    registry's)."""
    from accord.algorithms import REGISTRY

    return [
        _method(entry.strip(), REGISTRY if known is None else known) for entry in text.split(",")
    ]


def _method(entry: str, classes: Mapping[str, Any]):
    name, *given = entry.split(":")
    if name not in classes:
        raise ValueError(closest(name, classes, "methods"))
    cls = classes[name]
    known = [field.name for field in dataclasses.fields(cls)]
    chosen = {}
    for parameter in given:
        key, found, value = parameter.partition("=")
        if not found:
            raise ValueError(f"methods: {entry!r}: write parameters as {name}:parameter=value")
        if key not in known:
            raise ValueError(closest(key, known, f"methods: {name}"))
        chosen[key] = _oracle(value) if key == "oracle" else literal(value)
    return cls(**chosen)


def literal(text: str):
    """A Python literal, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _oracle(name: str):
    named = {n: getattr(oracles, n) for n in oracles.__all__ if n != "Oracle"}
    solvers = [n for n, o in named.items() if isinstance(o, type) and issubclass(o, oracles.Oracle)]
    if name not in solvers:
        raise ValueError(closest(name, solvers, "methods: oracle"))
    return getattr(oracles, name)()
