"""The registry of algorithms: one line each."""

from accord.algorithms._parsing import literal, parse_method, parse_methods
from accord.algorithms.admm import ADMM
from accord.algorithms.agpdmm import AGPDMM
from accord.algorithms.fedavg import FedAvg
from accord.algorithms.feddyn import FedDyn
from accord.algorithms.fedpd import FedPD, LinearDecay
from accord.algorithms.fedprox import FedProx
from accord.algorithms.fedsplit import FedSplit
from accord.algorithms.gpdmm import GPDMM
from accord.algorithms.gradient_descent import GradientDescent
from accord.algorithms.inexact_fedsplit import InexactFedSplit
from accord.algorithms.newton import Newton
from accord.algorithms.pdmm import PDMM
from accord.algorithms.scaffnew import Scaffnew
from accord.algorithms.scaffold import SCAFFOLD

REGISTRY = {
    algorithm.__name__: algorithm
    for algorithm in (
        GradientDescent,
        Newton,
        FedAvg,
        FedProx,
        SCAFFOLD,
        Scaffnew,
        FedDyn,
        ADMM,
        FedPD,
        PDMM,
        FedSplit,
        InexactFedSplit,
        GPDMM,
        AGPDMM,
    )
}
"""Every algorithm by its name."""

__all__ = [*REGISTRY, "REGISTRY", "LinearDecay", "literal", "parse_method", "parse_methods"]
