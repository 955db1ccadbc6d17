"""Methods that mix neighbours' models by weights: what PDMM is compared with.

W is the matrix of Metropolis weights: symmetric, rows that sum to one, w_ij = 0 without an edge. All of them
minimise sum_i f_i(x) over x_1 = x_2 = ..., in synchronous rounds, from gradients at the nodes.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from accord import tree
from accord.core.ranges import check_hyperparameters


@dataclass(frozen=True)
class _Mixing:
    """A method with ``step_size`` eta > 0 (default: from L and the network, see ``accord.graph.resolve``).

    A method has ``init(x, gradient)``, its state with the nodes' models in a field ``x``, and
    ``step(state, mix, gradient)``, one round: ``mix(v)`` is W v (one exchange with the neighbours) and
    ``gradient(x)`` every node's own.
    """

    step_size: float | None = None

    on_edges: ClassVar[bool] = False
    vectors: ClassVar[int] = 1
    """Vectors of the model's size that a node sends to each neighbour in a round."""
    exact: ClassVar[bool] = True
    gradients: ClassVar[int] = 1

    def __post_init__(self):
        check_hyperparameters(self)


class Models(NamedTuple):
    """``x``: the nodes' models."""

    x: Any


@dataclass(frozen=True)
class DGD(_Mixing):
    """Decentralised gradient descent, which stops short of the optimum.

    x <- W x - eta grad f(x). The distance that stays is proportional to eta.
    A. Nedic, A. Ozdaglar, "Distributed Subgradient Methods for Multi-Agent Optimization", IEEE TAC 54(1),
    2009; K. Yuan, Q. Ling, W. Yin, "On the Convergence of Decentralized Gradient Descent", SIAM J. Optim.
    26(3), 2016.
    """

    source: ClassVar[str] = "nedic2009distributed"
    exact: ClassVar[bool] = False

    def init(self, x, gradient):
        """The state before the first round."""
        return Models(x)

    def step(self, state, mix, gradient):
        """One round."""
        return Models(tree.add_scaled(mix(state.x), -self.step_size, gradient(state.x)))


class ExtraState(NamedTuple):
    """``x``: the nodes' models; of the round before: ``last`` x, ``mixed`` W x and ``slope`` grad f(x)."""

    x: Any
    last: Any
    mixed: Any
    slope: Any


@dataclass(frozen=True)
class EXTRA(_Mixing):
    """Decentralised gradient descent, corrected by the round before.

    x^1 = W x^0 - eta g^0, then x^{k+2} = x^{k+1} + W x^{k+1} - (x^k + W x^k)/2 - eta (g^{k+1} - g^k).
    W. Shi, Q. Ling, G. Wu, W. Yin, "EXTRA: An Exact First-Order Algorithm for Decentralized Consensus
    Optimization", SIAM J. Optim. 25(2), 2015.
    """

    source: ClassVar[str] = "shi2015extra"

    def init(self, x, gradient):
        """The state before the first round, which is that of the others after x, W x = x and no slope."""
        return ExtraState(x, x, x, tree.zeros_like(x))

    def step(self, state, mix, gradient):
        """One round."""
        mixed, slope = mix(state.x), gradient(state.x)
        after = tree.map(
            lambda x, wx, g, x0, wx0, g0: wx - self.step_size * (g - g0) + x - 0.5 * (x0 + wx0),
            state.x, mixed, slope, state.last, state.mixed, state.slope,
        )  # fmt: skip
        return ExtraState(after, state.x, mixed, slope)


class TrackingState(NamedTuple):
    """``x``: the nodes' models; ``tracker`` y: estimates of the mean gradient; ``slope``: grad f(x)."""

    x: Any
    tracker: Any
    slope: Any


@dataclass(frozen=True)
class GradientTracking(_Mixing):
    """Descent along every node's estimate of the mean gradient.

    x <- W x - eta y, y <- W y + grad f(x^+) - grad f(x), with y^0 = grad f(x^0): a message is x and y.
    A. Nedic, A. Olshevsky, W. Shi, "Achieving Geometric Convergence for Distributed Optimization over
    Time-Varying Graphs", SIAM J. Optim. 27(4), 2017, where it is called DIGing.
    """

    source: ClassVar[str] = "nedic2017achieving"
    vectors: ClassVar[int] = 2

    def init(self, x, gradient):
        """The state before the first round."""
        slope = gradient(x)
        return TrackingState(x, slope, slope)

    def step(self, state, mix, gradient):
        """One round."""
        x = tree.add_scaled(mix(state.x), -self.step_size, state.tracker)
        slope = gradient(x)
        tracker = tree.add(mix(state.tracker), tree.subtract(slope, state.slope))
        return TrackingState(x, tracker, slope)


@dataclass(frozen=True)
class Gossip:
    """Repeated averaging with the neighbours, for averaging problems only.

    x <- W x from each node's own minimiser.
    L. Xiao, S. Boyd, "Fast linear iterations for distributed averaging", Systems & Control Letters 53, 2004.
    """

    source: ClassVar[str] = "xiao2004fast"
    on_edges: ClassVar[bool] = False
    vectors: ClassVar[int] = 1
    exact: ClassVar[bool] = True
    gradients: ClassVar[int] = 0

    def init(self, x, gradient):
        """The nodes' own values: one gradient step of f_i(x) = (1/2) ||x - a_i||^2 from anywhere."""
        return Models(tree.subtract(x, gradient(x)))

    def step(self, state, mix, gradient):
        """One round."""
        return Models(mix(state.x))
