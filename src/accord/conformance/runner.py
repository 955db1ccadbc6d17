"""Runs the checks: one, all of them, or those of every algorithm that a Python file defines."""

import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from accord.conformance.checks import CHECKS, BrokenError, InapplicableError
from accord.core import checks, complete


class Result(NamedTuple):
    """One check on one algorithm: ``passed`` is None where the check does not apply."""

    algorithm: str
    name: str
    passed: bool | None
    detail: str


def check_one(algorithm, name: str) -> Result:
    """One check on one algorithm."""
    label = type(algorithm).__name__
    try:
        checks.check_algorithm(algorithm)
        return Result(label, name, True, CHECKS[name](complete(algorithm)))
    except InapplicableError as reason:
        return Result(label, name, None, str(reason))
    except BrokenError as failure:
        return Result(label, name, False, str(failure))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        first = str(error).splitlines()[0] if str(error) else ""
        return Result(label, name, False, f"{type(error).__name__} in {where}: {first}")


def check(algorithm, progress: Callable[[Result], None] | None = None) -> list[Result]:
    """Every check on one algorithm; ``progress`` is called with each result."""
    results = []
    for name in CHECKS:
        results.append(check_one(algorithm, name))
        if progress:
            progress(results[-1])
    return results


def algorithms_of(path) -> list:
    """An instance, with default hyper-parameters, of every algorithm that a Python file defines.

    Raises ``ValueError`` where the file cannot be read or defines none.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"path: there is no file {path}")
    name = f"accord_checked_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"path: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"path: {path} fails on import: {type(error).__name__}: {error}"
        ) from error
    found = [
        cls
        for cls in vars(module).values()
        if isinstance(cls, type)
        and cls.__module__ == name
        and callable(getattr(cls, "init_server", None))
        and callable(getattr(cls, "client", None))
    ]
    if not found:
        raise ValueError(f"path: {path} defines no class with init_server, client and server")
    return [cls() for cls in found]


def check_file(path, progress: Callable[[Result], None] | None = None) -> list[Result]:
    """Every check on every algorithm that a Python file defines."""
    return [r for algorithm in algorithms_of(path) for r in check(algorithm, progress)]
