"""The contract of an algorithm and what every engine shares: messages, keys, checks, statuses."""

from accord.core.contract import Algorithm, Exactness, Model, complete, next_server
from accord.core.loops import repeat
from accord.core.parameters import static
from accord.core.status import Status

__all__ = [
    "Algorithm",
    "Exactness",
    "Model",
    "Status",
    "complete",
    "next_server",
    "repeat",
    "static",
]
