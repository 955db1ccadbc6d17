"""Problems: clients, their objectives f_i and weights w_i, together F(x) = sum_i w_i f_i(x)."""

from accord.problems.base import (
    Prepared,
    Problem,
    value_and_client_gradients,
    with_regulariser,
)
from accord.problems.custom import CustomProblem
from accord.problems.linear import LinearProblem
from accord.problems.module import TorchProblem
from accord.problems.quadratic import QuadraticProblem
from accord.problems.spectra import extreme_eigenvalues
from accord.problems.zoo import (
    averaging,
    custom,
    huber,
    least_squares,
    logistic,
    penalised_logistic,
    poisson,
    quadratic,
    softmax,
    torch_module,
)

__all__ = [
    "CustomProblem",
    "LinearProblem",
    "Prepared",
    "Problem",
    "QuadraticProblem",
    "TorchProblem",
    "averaging",
    "custom",
    "extreme_eigenvalues",
    "huber",
    "least_squares",
    "logistic",
    "penalised_logistic",
    "poisson",
    "quadratic",
    "softmax",
    "torch_module",
    "value_and_client_gradients",
    "with_regulariser",
]
