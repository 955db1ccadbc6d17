"""The command ``accord``."""

from accord.cli import compare, datasets, fit, flower, inform, network
from accord.cli.app import app

__all__ = ["app", "compare", "datasets", "fit", "flower", "inform", "network"]
