"""The conformance suite: ``check(algorithm)``, or ``check_file(path)`` for a file of one's own."""

from accord.conformance.checks import CHECKS, common_problem
from accord.conformance.runner import Result, algorithms_of, check, check_file, check_one

__all__ = [
    "CHECKS",
    "Result",
    "algorithms_of",
    "check",
    "check_file",
    "check_one",
    "common_problem",
]
