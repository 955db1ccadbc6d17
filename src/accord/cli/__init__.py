"""The command ``accord``."""

from accord.cli import compare, datasets, inform, network
from accord.cli.app import app
from accord.cli.shared import parse_methods

__all__ = ["app", "compare", "datasets", "inform", "network", "parse_methods"]
