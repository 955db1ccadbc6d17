"""The command ``accord``."""

from accord.cli import compare, datasets, fit, inform, network
from accord.cli.app import app
from accord.cli.shared import parse_methods

__all__ = ["app", "compare", "datasets", "fit", "inform", "network", "parse_methods"]
