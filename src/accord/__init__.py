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
from accord.analysis.describe import describe
from accord.analysis.fit import Fit, fit
from accord.analysis.model import Model
from accord.analysis.validate import leave_one_out
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
    "FederatedElasticNet",
    "FederatedLasso",
    "FederatedLinearRegression",
    "FederatedLogisticRegression",
    "FederatedPoissonRegressor",
    "FederatedRidge",
    "Fit",
    "GradientDescent",
    "InexactFedSplit",
    "LinearDecay",
    "Model",
    "Newton",
    "Run",
    "Scaffnew",
    "Status",
    "Stop",
    "compare",
    "data",
    "describe",
    "fit",
    "graph",
    "leave_one_out",
    "oracles",
    "problems",
    "report",
    "run",
    "sources",
    "theory",
]


def __getattr__(name: str):
    """The estimators, imported at their first use: scikit-learn takes its time."""
    if name.startswith("Federated") and name in __all__:
        from accord import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'accord' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
