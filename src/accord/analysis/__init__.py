"""Analyses of tables whose rows stay at their sites."""

from accord.analysis.agreement import agree
from accord.analysis.schema import Feature, Schema, Target, Term
from accord.analysis.solve import Choice, Solution, default_algorithm, solve
from accord.analysis.summaries import Column, Request, Summary, merged, summarise

__all__ = [
    "Choice",
    "Column",
    "Feature",
    "Request",
    "Schema",
    "Solution",
    "Summary",
    "Target",
    "Term",
    "agree",
    "default_algorithm",
    "merged",
    "solve",
    "summarise",
]
