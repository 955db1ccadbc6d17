"""Gradient descent on F, with each client's gradient as its message.

Problem: minimise F(x) = sum_i w_i f_i(x). One round:

    client   g_i = grad f_i(x)                                     up
    server   x <- x - eta sum_i w_i g_i                            down

Linear rate 1 - mu/L at eta = 1/L, sublinear for convex F; stable for eta < 2/L.

A.-L. Cauchy, "Méthode générale pour la résolution des systèmes d'équations simultanées", Comptes Rendus
25, 1847; Y. Nesterov, "Lectures on Convex Optimization", Springer 2018, section 2.1.5.
"""

from dataclasses import dataclass

from accord import tree
from accord.core import Algorithm, Model


@dataclass(frozen=True)
class GradientDescent(Algorithm):
    """Gradient descent. ``step_size`` eta (default 1/L).

    An absent client counts with the last gradient it sent, so that the method stays exact; the default step
    is then up to 3 times shorter, or by the longest absence in a schedule.
    """

    step_size: float | None = None

    absent = "latest"
    delayed = True
    step_bound = 2.0
    proximal = True
    reveals = "the gradient at the model"
    source = "nesterov2018lectures"

    @property
    def proximal_step(self):
        return self.step_size

    def init_server(self, x):
        return Model(x)

    def init_message(self, x):
        return tree.zeros_like(x)

    def client(self, state, inbox, objective, key):
        gradient = objective.grad(inbox)
        return state, gradient, {"x": inbox, "gradients": 1}

    def server(self, server, mean, share):
        return Model(tree.add_scaled(server.x, -self.step_size, mean))
