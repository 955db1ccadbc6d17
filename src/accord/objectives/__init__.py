"""Client objectives f_i: mean loss over a client's rows plus penalties."""

from accord.objectives.custom import CustomObjective
from accord.objectives.linear import LinearObjective
from accord.objectives.losses import (
    HuberLoss,
    LogisticLoss,
    PoissonLoss,
    SoftmaxLoss,
    SquaredLoss,
)
from accord.objectives.module import TorchHost, TorchObjective
from accord.objectives.penalties import BoundedPenalty, Lasso, Ridge
from accord.objectives.quadratic import (
    FactoredQuadratic,
    Quadratic,
    SquaredDistance,
    diagonalised,
    factored,
)

__all__ = [
    "BoundedPenalty",
    "CustomObjective",
    "FactoredQuadratic",
    "HuberLoss",
    "Lasso",
    "LinearObjective",
    "LogisticLoss",
    "PoissonLoss",
    "Quadratic",
    "Ridge",
    "SoftmaxLoss",
    "SquaredDistance",
    "SquaredLoss",
    "TorchHost",
    "TorchObjective",
    "diagonalised",
    "factored",
]
