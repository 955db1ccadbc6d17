"""Accord over Flower: the same algorithms where rows stay at the sites. Needs the extra ``accord[flower]``."""

try:
    import flwr  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "accord.flower needs Flower: pip install 'accord[flower]'", name=error.name
    ) from None

from accord.flower.client import client_app
from accord.flower.sites import Terms

__all__ = ["Terms", "client_app"]
