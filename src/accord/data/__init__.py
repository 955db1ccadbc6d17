"""Data: from arrays and tables to clients."""

from accord.data import partition
from accord.data.bundled import digits
from accord.data.catalogue import CARDS, DataCard, card
from accord.data.clients import Clients
from accord.data.fetching import fetch, load
from accord.data.sites import Site, read_sites
from accord.data.tables import read_columns, read_table

__all__ = [
    "CARDS",
    "Clients",
    "DataCard",
    "Site",
    "card",
    "digits",
    "fetch",
    "load",
    "partition",
    "read_columns",
    "read_sites",
    "read_table",
]
