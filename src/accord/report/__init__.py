"""Reports of finished runs: tables, pictures and one HTML page."""

from accord.report.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
