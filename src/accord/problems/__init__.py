"""Problems: clients, their objectives f_i and weights w_i, together F(x) = sum_i w_i f_i(x)."""

from accord.problems.base import (
    Prepared,
    Problem,
    value_and_client_gradients,
    with_regulariser,
)
from accord.problems.custom import CustomProblem
from accord.problems.linear import LinearProblem
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
)

__all__ = [
    "CustomProblem",
    "LinearProblem",
    "Prepared",
    "Problem",
    "QuadraticProblem",
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
    "value_and_client_gradients",
    "with_regulariser",
]
