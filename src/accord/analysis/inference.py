"""Standard errors, intervals and likelihoods of a fit, from sums over the sites."""

from typing import NamedTuple

import numpy as np

from accord.analysis.schema import INTERCEPT
from accord.theory import DENSE_LIMIT

LEVEL = 0.95

_FAINT = 1e-9
"""Relative to the largest, an eigenvalue of the scaled information that rounding leaves seven digits of."""

_PART = 0.3


class Coefficient(NamedTuple):
    """One number of a model, on the scale of the table.

    ``term``: a column, a category or "(intercept)"; ``label``: the class, for softmax ("b against a" for
    a fit without penalties, whose coefficients are only determined as differences), or "";
    ``estimate``; ``error_bound`` >= |estimate - pooled estimate|. For a fit without penalties that has a
    likelihood: ``standard_error``, ``statistic`` (t for linear models, else z), ``p_value``, ``low`` and
    ``high``, the 95 % interval; else None.
    """

    term: str
    label: str
    estimate: float
    error_bound: float | None = None
    standard_error: float | None = None
    statistic: float | None = None
    p_value: float | None = None
    low: float | None = None
    high: float | None = None


def coefficients(model, problem, certificate, totals, exact_law: bool):
    """(a ``Coefficient`` for each number of the model, notes).

    ``totals`` are the sites' statistics together; ``exact_law`` says that the fit maximises a likelihood.
    The information is N times the Hessian of F, the sum of the sites' Fisher informations.
    """
    terms = [*model.schema.columns, *([INTERCEPT] if model.intercept else [])]
    x = model.x.reshape(len(terms), -1)
    notes: list[str] = []
    variance = None
    freedom = totals["rows"] - model.x.size
    if exact_law and model.x.size <= DENSE_LIMIT:
        if model.kind == "linear" and freedom <= 0:
            notes.append("No standard errors: there are no more rows than coefficients.")
        else:
            linear = model.kind == "linear"
            dispersion = totals["residual_squares"] / freedom if linear else 1.0
            information = totals["rows"] * problem.hessian(model.x)
            # Along shifts of all classes alike the information of softmax is nothing, exactly.
            gauge = len(terms) if model.kind == "softmax" else 0
            variance, faint = covariance(information, dispersion, gauge)
            if variance is None:
                notes.append(
                    f"No standard errors: {involved(faint, x.shape, terms)} are so nearly dependent that "
                    "rounding would decide them; exclude one, or give l2 > 0."
                )
            else:
                variance = variance.reshape(2 * x.shape)
    T = model.schema.matrix()
    bounds = certificate.coefficients
    if bounds is not None:
        bounds = np.reshape(bounds, x.shape)
    found = []
    for label, contrast in _contrasts(model, exact_law):
        estimate = T @ (x @ contrast)
        columns = {"estimate": estimate}
        if bounds is not None:
            columns["error_bound"] = abs(T) @ (bounds @ abs(contrast))
        if variance is not None:
            V = np.einsum("icjk,c,k->ij", variance, contrast, contrast)
            error = np.sqrt(np.maximum(np.diag(T @ V @ T.T), 0))
            law = "t" if model.kind == "linear" else "z"
            names = ("statistic", "p_value", "low", "high")
            told = intervals(estimate, error, law, freedom)
            columns |= {"standard_error": error} | dict(zip(names, told, strict=True))
        for k, term in enumerate(terms):
            numbers = {name: float(column[k]) for name, column in columns.items()}
            found.append(Coefficient(term, label, **numbers))
    return found, notes


def _contrasts(model, exact_law: bool):
    """(label, weights over the classes) of every column of coefficients that is told."""
    if model.kind != "softmax":
        return [("", np.ones(1))]
    units = np.eye(len(model.classes))
    if not exact_law:
        return [(str(c), u) for c, u in zip(model.classes, units, strict=True)]
    first = model.classes[0]
    return [(f"{c} against {first}", units[k] - units[0]) for k, c in enumerate(model.classes) if k]


def covariance(information: np.ndarray, dispersion: float, gauge: int = 0):
    """(the covariance of the estimates, None): dispersion x the inverse of the summed Fisher information.

    ``gauge`` is the number of directions that are known to have no information, for softmax, where the
    pseudo-inverse serves differences between classes. Where another has none to rounding: (None, it).
    """
    units = np.sqrt(np.where(np.diag(information) > 0, np.diag(information), 1.0))
    values, vectors = np.linalg.eigh(information / np.outer(units, units))
    if not values[gauge] > _FAINT * values[-1]:
        return None, vectors[:, gauge]
    scaled = vectors[:, gauge:] / units[:, None]
    return dispersion * (scaled / values[gauge:]) @ scaled.T, None


def involved(direction, shape, terms) -> str:
    """The names of the terms that a direction of the coefficients is mostly made of."""
    shares = abs(direction.reshape(shape[0], -1)).max(1)
    named = [terms[k] for k in np.argsort(-shares)[:6] if shares[k] > _PART * shares.max()]
    return ", ".join(repr(name) for name in named)


def intervals(estimate, standard_error, statistic: str, freedom: float):
    """(statistic, p value, low, high) of every estimate: two-sided, Student's t or the normal law."""
    # scipy.stats has the same under other names, and takes a second to import.
    from scipy.special import ndtr, ndtri, stdtr, stdtrit

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = estimate / standard_error
    upper = 0.5 + LEVEL / 2
    if statistic == "t":
        p_value, quantile = 2 * stdtr(freedom, -abs(ratio)), stdtrit(freedom, upper)
    else:
        p_value, quantile = 2 * ndtr(-abs(ratio)), ndtri(upper)
    half = quantile * standard_error
    return ratio, p_value, estimate - half, estimate + half


def log_likelihood(kind: str, totals: dict[str, float]) -> float:
    """The log-likelihood at the model whose sites' sums are ``totals``; the normal law at its best
    variance, RSS/n.
    """
    n = totals["rows"]
    if kind == "linear":
        with np.errstate(divide="ignore"):
            return float(-n / 2 * (np.log(2 * np.pi * totals["residual_squares"] / n) + 1))
    return -totals["loss"] - totals.get("log_factorials", 0.0)
