"""Analyses of tables whose rows stay at their sites."""

from accord.analysis.schema import Feature, Schema, Target, Term, agree
from accord.analysis.summaries import Column, Request, Summary, merged, summarise

__all__ = [
    "Column",
    "Feature",
    "Request",
    "Schema",
    "Summary",
    "Target",
    "Term",
    "agree",
    "merged",
    "summarise",
]
