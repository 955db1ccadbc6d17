"""Accord: primal-dual federated and distributed optimisation.

Many data holders agree on one model without pooling their rows, and reach the optimum that pooling
would have given.
"""

from accord import data, graph, oracles, problems, report, sources, theory
from accord.algorithms import (
    ADMM,
    AGPDMM,
    GPDMM,
    PDMM,
    REGISTRY,
    SCAFFOLD,
    FedAvg,
    FedDyn,
    FedPD,
    FedProx,
    FedSplit,
    GradientDescent,
    InexactFedSplit,
    LinearDecay,
    Newton,
    Scaffnew,
)
from accord.core import Algorithm, Exactness, Status
from accord.data import Clients
from accord.engines import Run, Stop, run
from accord.report import Comparison, compare

__version__ = "0.1.0"
__all__ = [
    "ADMM",
    "AGPDMM",
    "GPDMM",
    "PDMM",
    "REGISTRY",
    "SCAFFOLD",
    "Algorithm",
    "Clients",
    "Comparison",
    "Exactness",
    "FedAvg",
    "FedDyn",
    "FedPD",
    "FedProx",
    "FedSplit",
    "GradientDescent",
    "InexactFedSplit",
    "LinearDecay",
    "Newton",
    "Run",
    "Scaffnew",
    "Status",
    "Stop",
    "compare",
    "data",
    "graph",
    "oracles",
    "problems",
    "report",
    "run",
    "sources",
    "theory",
]
