"""Newton's method on F: clients send value, gradient and Hessian, the server sums and steps.

Problem: minimise F(x) = sum_i w_i f_i(x) + h(x), h the server's regulariser or 0. One round:

    client   f_i(x), grad f_i(x), hess f_i(x)                                     up
    server   v = argmin <g, v> + (1/2) <v, H v> + h(x + v);  x <- x + v           down

For a generalised linear model this is iteratively reweighted least squares. One round solves least
squares, with an l1 penalty too; elsewhere convergence is quadratic near the optimum of a strictly convex
F. Where the full step does not make F smaller by Armijo's rule, the next round tries half of it. The
message has 1 + P + P^2 numbers for P parameters, so this is for few parameters. It tells more of a
client's rows than a gradient does: for least squares, X'X/n itself.

P. J. Green, "Iteratively Reweighted Least Squares for Maximum Likelihood Estimation, and some Robust
and Resistant Alternatives", JRSS B 46, 1984; S. Boyd, L. Vandenberghe, "Convex Optimization", Cambridge
University Press 2004, Algorithm 9.5; with h: J. D. Lee, Y. Sun, M. A. Saunders, "Proximal Newton-Type
Methods for Minimizing Composite Functions", SIAM J. Optimization 24, 2014.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from accord import tree
from accord.core import Algorithm
from accord.core.messages import choose
from accord.oracles import newton_step

_ARMIJO = 1e-4
_ROUNDING = 64


class Server(NamedTuple):
    """The search along a step.

    ``x`` = base + length * step, the model that is tried; ``value`` F(base); ``decrease`` of F per unit of
    length at base, to first order.
    """

    x: Any
    base: Any
    step: Any
    length: Any
    value: Any
    decrease: Any


class Message(NamedTuple):
    """f_i(x), grad f_i(x) and the Hessian (P, P) over the raveled parameters."""

    value: Any
    gradient: Any
    hessian: Any


@dataclass(frozen=True)
class Newton(Algorithm):
    """Newton's method, damped by halving. Defined with every client in every round.

    A round's Hessian counts as P gradients, as P Hessian products would.
    """

    absent = None
    proximal = True
    reveals = "value, gradient and Hessian: of a client with few rows, much of its columns"
    safeguarded = True
    source = "green1984iteratively"
    exact_when = "every client in every round; convex F"

    @property
    def needs(self):
        return frozenset({"grad", "second_derivative"})

    def init_server(self, x):
        still = tree.zeros_like(x)
        zero = tree.dot(x, still)
        return Server(x, x, still, zero, zero + float("inf"), zero)

    def client(self, state, inbox, objective, key):
        hessian = objective.second_derivative(inbox)
        message = Message(objective.value(inbox), objective.grad(inbox), hessian)
        return state, message, {"x": inbox, "gradients": 1 + len(hessian)}

    def server(self, server, mean, share):
        return self.regularised(server, mean, share, None)

    def regularised(self, server, mean, share, regulariser):
        """The next server state; ``regulariser`` is h, or None."""
        x, base, step, length, value, decrease = server
        here = mean.value if regulariser is None else mean.value + regulariser.value(x)
        # A step at the end changes F by less than its rounding.
        noise = _ROUNDING * np.finfo(here.dtype).eps * abs(value)
        enough = value + _ARMIJO * length * decrease + noise
        accepted = here <= enough
        new_step, new_decrease = newton_step(x, mean.gradient, mean.hessian, regulariser)
        base, step = choose(accepted, (x, new_step), (base, step))
        length = choose(accepted, length**0, length / 2)
        value, decrease = choose(accepted, (here, new_decrease), (value, decrease))
        return Server(tree.add_scaled(base, length, step), base, step, length, value, decrease)
