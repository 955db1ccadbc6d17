"""Accord over Flower: the same algorithms where rows stay at the sites (the extra ``flower``)."""

try:
    import flwr  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "accord.flower needs Flower: pip install 'accord[flower]'", name=error.name
    ) from None

from accord.flower.client import client_app
from accord.flower.server import server_app
from accord.flower.session import Options
from accord.flower.sites import Terms
from accord.flower.strategy import AccordStrategy

__all__ = ["AccordStrategy", "Options", "Terms", "client_app", "server_app"]
