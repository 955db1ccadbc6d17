"""The problems by name: minimise F(x) = sum_i w_i f_i(x).

f_i is the weighted mean loss over client i's rows plus all penalties, so that F is the pooled
mean loss plus the penalties when the weights are the clients' rows. Every function here takes
``weights="rows"`` (w_i = n_i / N, the pooled fit) or ``"equal"`` (w_i = 1/m over the clients with rows; a
client without rows weighs nothing), ``l2`` (adds (l2/2) ||x||^2 to every f_i, never on the intercept),
``intercept`` (adds a last entry, or row, to x) and ``dtype`` ("float64" or "float32"). Those of a linear
predictor take ``l1`` too: F + l1 ||x||_1, the intercept free, with the server's proximal step.
"""

from collections.abc import Callable

import numpy as np

from accord.objectives import (
    BoundedPenalty,
    HuberLoss,
    LogisticLoss,
    PoissonLoss,
    Ridge,
    SoftmaxLoss,
    SquaredLoss,
)
from accord.problems.base import Problem, finite_numbers, non_negative, positive
from accord.problems.custom import CustomProblem
from accord.problems.linear import LinearProblem
from accord.problems.module import TorchProblem
from accord.problems.quadratic import AveragingProblem, QuadraticProblem


def _linear(clients, loss, l2, weights, intercept, dtype, name, l1=0.0, extra=()):
    penalties = (Ridge(non_negative("l2", l2)), *extra)
    l1 = non_negative("l1", l1)
    return LinearProblem(clients, loss, penalties, weights, bool(intercept), dtype, name, l1)


def least_squares(
    clients, l2=0.0, weights="rows", intercept=False, dtype="float64", l1=0.0
) -> Problem:
    """f_i(x) = (1/(2 n_i)) ||A_i x - y_i||^2 + (l2/2) ||x||^2, with x of shape (d,)."""
    return _linear(clients, SquaredLoss(), l2, weights, intercept, dtype, "least_squares", l1)


def logistic(clients, l2=0.0, weights="rows", intercept=False, dtype="float64", l1=0.0) -> Problem:
    """f_i(x) = (1/n_i) sum_r [log(1 + exp(<a_r, x>)) - y_r <a_r, x>] + (l2/2) ||x||^2.

    Labels y_r are 0 or 1; x has shape (d,).
    """
    problem = _linear(clients, LogisticLoss(), l2, weights, intercept, dtype, "logistic", l1)
    _check_binary(clients)
    return problem


def penalised_logistic(
    clients, penalty, alpha=1.0, l2=0.0, weights="rows", intercept=False, dtype="float64"
) -> Problem:
    """Logistic regression plus penalty * sum_j alpha x_j^2 / (1 + alpha x_j^2), which is not convex.

    The experiment of X. Zhang, M. Hong, S. Dhople, W. Yin and Y. Liu, "FedPD: A Federated Learning
    Framework with Adaptivity to Non-IID Data", IEEE TSP, 2021.
    """
    extra = BoundedPenalty(non_negative("penalty", penalty), non_negative("alpha", alpha))
    name = "penalised_logistic"
    problem = _linear(clients, LogisticLoss(), l2, weights, intercept, dtype, name, extra=(extra,))
    _check_binary(clients)
    return problem


def softmax(
    clients, l2=0.0, weights="rows", intercept=False, dtype="float64", classes=None, l1=0.0
) -> Problem:
    """f_i(x) = (1/n_i) sum_r [logsumexp(a_r x) - (a_r x)[y_r]] + (l2/2) ||x||^2.

    Labels are integers 0 .. C - 1; x has shape (d, C). ``classes`` is C; by default one more than the
    largest label of any client.
    """
    _check_labels(clients, None)
    largest = max(int(y.max()) for _, y in clients if len(y))
    classes = max(largest + 1, 2) if classes is None else classes
    if not isinstance(classes, int | np.integer) or classes < 2:
        raise ValueError(f"classes: got {classes!r}; accepted is a whole number >= 2")
    if largest >= classes:
        raise ValueError(
            f"classes: got {classes}, but a label is {largest}; labels are 0 .. classes - 1"
        )
    return _linear(clients, SoftmaxLoss(int(classes)), l2, weights, intercept, dtype, "softmax", l1)


def poisson(clients, l2=0.0, weights="rows", intercept=False, dtype="float64", l1=0.0) -> Problem:
    """f_i(x) = (1/n_i) sum_r [exp(<a_r, x>) - y_r <a_r, x>] + (l2/2) ||x||^2, counts y_r >= 0."""
    problem = _linear(clients, PoissonLoss(), l2, weights, intercept, dtype, "poisson", l1)
    for name, (_, y) in zip(clients.names, clients, strict=True):
        if len(y) and y.min() < 0:
            raise ValueError(f"client {name!r}: a target is {y.min():g}; Poisson counts are >= 0")
    return problem


def huber(
    clients, l2=0.0, weights="rows", intercept=False, dtype="float64", threshold=1.0, l1=0.0
) -> Problem:
    """f_i(x) = (1/n_i) sum_r h(<a_r, x> - y_r) + (l2/2) ||x||^2.

    h(r) = r^2/2 for |r| <= threshold and threshold (|r| - threshold/2) beyond.
    """
    loss = HuberLoss(positive("threshold", threshold))
    return _linear(clients, loss, l2, weights, intercept, dtype, "huber", l1)


def custom(
    loss: Callable, init, clients, l2=0.0, weights="rows", convex=None, dtype="float64"
) -> Problem:
    """f_i(x) = (1/n_i) sum_r loss(x, feature_row_r, target_r) + (l2/2) ||x||^2.

    ``loss`` is differentiable JAX code for **one** row and returns a scalar; ``init`` is the start, any
    pytree of arrays or scalars. ``convex=True`` opens the methods with an exact proximal step
    (PDMM, FedSplit, ...) and ``reference()``. Features may have any number of axes. The loss is compiled
    once for each function object: values that it reads from outside are those of its first use.
    """
    return CustomProblem(loss, init, clients, l2, weights, convex, dtype)


def torch_module(
    module, loss: Callable, clients, l2=0.0, weights="rows", dtype="float32"
) -> Problem:
    """f_i(x) = loss(module(X_i), y_i) + (l2/2) ||x||^2 with a PyTorch module, on its own engine.

    ``loss(outputs, targets)`` gives the mean over the rows, as ``torch.nn.functional.cross_entropy`` does;
    x is a dictionary of the module's parameters, started where they stand. The module is copied, brought
    to ``dtype`` and used as in evaluation, without dropout; one with buffers is refused. Needs the extra
    ``torch``.
    """
    return TorchProblem(module, loss, clients, l2, weights, dtype)


def quadratic(hessians, linears, constants=None, weights=None, dtype="float64") -> Problem:
    """f_i(x) = (1/2) <x, H_i x> - <b_i, x> + c_i from H (m, d, d), b (m, d) and c (m,)."""
    return QuadraticProblem(hessians, linears, constants, weights, dtype)


def averaging(values, dtype="float64") -> Problem:
    """f_i(x) = (1/2) ||x - values_i||^2 with equal weights: the optimum is the mean.

    ``values`` is (m,) or (m, d); x has shape (d,).
    """
    values = finite_numbers("values", values)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not values.size:
        raise ValueError(f"values: shape {values.shape}; expected (clients,) or (clients, d)")
    return AveragingProblem(values, dtype)


def _check_labels(clients, classes) -> None:
    allowed = "0 .. classes - 1" if classes is None else "0 and 1"
    for name, (_, y) in zip(clients.names, clients, strict=True):
        wrong = (y != np.round(y)) | (y < 0) | (y >= (np.inf if classes is None else classes))
        if wrong.any():
            raise ValueError(
                f"client {name!r}: a label is {y[wrong][0]:g}; accepted are {allowed}: "
                "recode the labels first"
            )


def _check_binary(clients) -> None:
    _check_labels(clients, 2)
