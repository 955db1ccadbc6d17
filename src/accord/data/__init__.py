"""Data: from arrays and tables to clients."""

from accord.data.clients import Clients

__all__ = ["Clients"]
