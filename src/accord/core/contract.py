"""The contract: an algorithm is a frozen dataclass of hyper-parameters and five pure functions.

``Algorithm`` holds the defaults of the optional parts, so that a method's file holds only the
method. A class that defines everything itself need not inherit from it.
"""

import functools
from typing import Any, ClassVar, NamedTuple

from accord.core.ranges import check_hyperparameters

Tree = Any
"""A pytree of arrays."""


class Exactness(NamedTuple):
    """Whether a method reaches the minimiser of F, and under which condition.

    ``absent``: also where the clients of each round are drawn at random. Of fixed orders only the methods
    with exact local solves of the PDMM family made light in trials.
    """

    reaches: bool
    when: str
    absent: bool = True


class Model(NamedTuple):
    """The server state of a method that keeps the model and nothing else."""

    x: Tree


class Algorithm:
    """Defaults of the contract.

    A method defines, as pure functions over pytrees:

    - ``init_server(x)``: the server state, with a field ``x``: the model to report. If it has a
      field ``key`` too, the engine puts the round's own random key there before each broadcast.
    - ``init_client(x, objective)``: what a client remembers between rounds.
    - ``broadcast(server)``: the inbox, the same for every client.
    - ``client(state, inbox, objective, key)``: ``(state, message, info)``; ``info`` is a dictionary
      of what one looks at: ``x`` (the local model), ``gradients`` (local gradients evaluated, a
      minibatch of B of n rows counting B/n), ``iterations`` (local iterations).
    - ``server(server, mean, share)``: the next server state from the weighted mean of the
      messages; ``share`` is the weight of the clients heard, in (0, 1].

    Optional:

    - ``init_message(x)``: the message that a client not heard yet is taken to have sent (wanted where
      ``absent`` says "latest").
    - ``recover_client(x, message)``: a client's state from its latest message; None where a lost state
      would bias the method for ever.
    - ``dual(state, x)``: the dual lambda_{s|i} of a client given the server's model, equal to
      -grad f_i(x*) at the optimum.
    - ``proximal_step``: the s > 0 for which x <- prox_{s h}(x) after ``server`` makes the method
      minimise sum_i w_i f_i + h, h the problem's regulariser.
    - ``regularised(server, mean, share, regulariser)``: the server's step with h, for a method that needs
      more than that. ``proximal`` is True where it has one of the two.
    """

    def __post_init__(self):
        check_hyperparameters(self)

    @property
    def needs(self) -> frozenset[str]:
        """What the method calls of an objective: ``grad``, ``prox``, ``minibatch``, ..."""
        own = {"grad"} | ({"minibatch"} if getattr(self, "batch_size", None) else set())
        return frozenset(own) | getattr(getattr(self, "oracle", None), "needs", frozenset())

    @property
    def exact(self) -> Exactness:
        """Whether the method reaches the minimiser of F."""
        return Exactness(not self.noisy, self.exact_when)

    @property
    def noisy(self) -> bool:
        """Whether its local gradients carry minibatch noise that does not vanish."""
        oracle = getattr(self, "oracle", None)
        return bool(getattr(self, "batch_size", None)) or getattr(oracle, "noisy", False)

    exact_when: ClassVar[str] = "full gradients"
    """The condition under which the method is exact, in words."""

    absent: ClassVar[Any] = "participants"
    """Which messages the mean runs over when clients are absent: ``"latest"`` (every client's latest
    one), ``"participants"`` (those heard this round), a tree of these in the message's structure, or
    None for a method that is only defined with every client in every round."""

    state_in_message: ClassVar[bool] = False
    """True where ``recover_client`` rebuilds the client's state exactly from its message."""

    step_bound: ClassVar[float] = 1.0
    """The largest safe ``step_size``, in units of 1/L."""

    delayed: ClassVar[bool] = False
    """True where absent clients count with old gradients, so that the step must shrink with absence."""

    safeguarded: ClassVar[bool] = False
    """True where the method itself takes back a step that makes F grow: no single round is divergence."""

    oracle_memory: ClassVar[bool] = False
    """True where the client keeps an oracle's memory, and starts each call where the last one ended."""

    may_be_zero: ClassVar[tuple[str, ...]] = ()
    """Hyper-parameters for which zero has a meaning."""

    local: ClassVar[str] = ""
    """The form of the local steps: "gradient" (on the whole sub-problem), "linearised", "exact"."""

    source: ClassVar[str] = ""
    """Key of the paper in ``accord.sources``."""

    reveals: ClassVar[str] = "a vector of the model's shape, made of its rows' gradients"
    """What a message tells of a client's rows, in words."""

    proximal: Any = False
    """Whether the method takes a regulariser h, which the server meets."""

    proximal_step: Any = None

    def init_client(self, x, objective):
        return ()

    recover_client: Any = None

    def regularised(self, server, mean, share, regulariser):
        """The next server state where F has a regulariser."""
        after = self.server(server, mean, share)
        return after._replace(x=regulariser.prox(after.x, self.proximal_step))

    def broadcast(self, server):
        return server.x


def next_server(algorithm, server, mean, share, regulariser):
    """The server's step, with the problem's regulariser or None."""
    if regulariser is None:
        return algorithm.server(server, mean, share)
    return algorithm.regularised(server, mean, share, regulariser)


FUNCTIONS = ("init_server", "init_client", "broadcast", "client", "server")
"""The names of the five functions, in the order of a round."""


def complete(algorithm):
    """The algorithm with the contract's defaults, where its class does not inherit from ``Algorithm``."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    completed = object.__new__(_completed_class(type(algorithm)))
    for name, value in vars(algorithm).items():
        object.__setattr__(completed, name, value)
    return completed


@functools.cache
def _completed_class(cls: type) -> type:
    return type(cls.__name__, (cls, Algorithm), {"__module__": cls.__module__})
