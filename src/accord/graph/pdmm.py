"""PDMM on a graph: the primal-dual method of multipliers, node by node and edge by edge.

Problem: minimise sum_i f_i(x_i) subject to B_{i|j} x_i = B_{j|i} x_j on every edge (consensus: B = I).
Node i holds one z_{i|j} for each neighbour. When it wakes:

    x_i = argmin f_i(x) + (rho/2) sum_j ||B_{i|j} x - z_{i|j}||^2
    z_{j|i} <- (1 - theta) z_{j|i} + theta (2 B_{i|j} x_i - z_{i|j})      sent to each neighbour j

Relaxation theta = 1 is PDMM (Peaceman-Rachford splitting), theta = 1/2 is ADMM (Douglas-Rachford).
Synchronous: all nodes wake together and use what was sent in the round before. Asynchronous: one
node, or an independent random set, wakes. For f_i smooth and strongly convex it converges at theta = 1;
for merely convex f_i below it. A lost message leaves the neighbour's old z, which slows but does not bias.
Primal: x_i. Dual: lambda_{i|j} = rho (z_{i|j} - B_{i|j} x_i); sum_j B_{i|j}' lambda_{i|j} = grad f_i(x_i) for
exact local solves, and lambda_{i|j} + lambda_{j|i} = 0 at the optimum.

G. Zhang, R. Heusdens, "Distributed Optimization Using the Primal-Dual Method of Multipliers", IEEE
TSIPN 4(1), 2018; T. Sherson, R. Heusdens, W. B. Kleijn, "Derivation and Analysis of the Primal-Dual Method of
Multipliers Based on Monotone Operator Theory", IEEE TSIPN 5(2), 2019.
"""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp

from accord import tree
from accord.core.ranges import check_hyperparameters


@dataclass(frozen=True)
class PDMM:
    """The primal-dual method of multipliers, a message to each neighbour.

    ``penalty`` rho > 0 (default: from the data and the network, see ``accord.graph.resolve``);
    ``relaxation`` theta in (0, 1], or None for 1 where every f_i is strongly convex and 1/2 elsewhere;
    ``oracle``, the local solver (default: exact where f_i has a proximal step). With linearised steps
    (``accord.oracles.Linearised``) a node starts from its last iterate and shows its neighbours the mean of
    its iterates, which is GPDMM.
    """

    penalty: float | None = None
    relaxation: float | None = 1.0
    oracle: object = None

    source: ClassVar[str] = "zhang2018distributed"
    on_edges: ClassVar[bool] = True
    vectors: ClassVar[int] = 1
    exact: ClassVar[bool] = True

    def __post_init__(self):
        check_hyperparameters(self)

    @property
    def averages(self) -> bool:
        """Whether a node shows the mean of its local iterates instead of the last one."""
        return getattr(self.oracle, "form", "") == "linearised"

    def init_node(self, x):
        """What a node remembers besides x: the oracle's memory, and its last iterate if it averages."""
        return self.oracle.init(x), x if self.averages else ()

    def node(self, x, memory, objective, centre, penalty, key):
        """The local solve: (x, memory, gradients used)."""
        own, last = memory
        start = last if self.averages else x
        # A constant zero, which compiles to nothing, where 0 * centre would be computed.
        zero = jax.tree.map(jnp.zeros_like, centre)
        solution = self.oracle(objective, start, zero, centre, penalty, key, own)
        if self.averages:
            return solution.average, (solution.memory, solution.last), solution.gradients
        return solution.last, (solution.memory, ()), solution.gradients

    def reply(self, image, z):
        """What goes to a neighbour: 2 B_{i|j} x_i - z_{i|j}."""
        return tree.reflect(image, z)

    def receive(self, z, reply):
        """The neighbour's new z."""
        return tree.mix(self.relaxation, z, reply)
