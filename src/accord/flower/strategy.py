"""For those who use Flower's own loop: one strategy for all algorithms."""

import time
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from accord.flower.events import logger
from accord.flower.session import Options, Session
from accord.flower.sites import ChangedError
from accord.flower.tasks import OwnRun
from accord.flower.wire import as_record, flatten, unflatten


class AccordStrategy(Strategy):
    """Any of Accord's algorithms as a Flower strategy, with ``accord.flower.client_app`` at the sites.

        strategy = AccordStrategy(accord.AGPDMM(local_steps=5), np.zeros(20))
        result = strategy.start(grid, strategy.initial_arrays, num_rounds=50)
        strategy.model

    ``initial`` is the model to start from, a tree of arrays; ``weights`` and ``classes`` are those of
    ``server_app``, ``options`` says who takes part. Flower's loop cannot stop early nor start in the middle,
    so there is no checkpoint: ``server_app`` has both. What Flower's loop does not get back is asked for
    again here, so that a round has the replies that the algorithm needs.

    The metrics of a round are ``objective`` and ``gradient_norm`` of F at the model that the round started
    from.
    """

    def __init__(
        self, algorithm: Any, initial: Any, *, weights: str = "rows", classes: Iterable[type] = (),
        options: Options | None = None,
    ):  # fmt: skip
        options = options or Options()
        if options.output is not None:
            raise ValueError(
                f"options: got output {str(options.output)!r}; AccordStrategy keeps no files: use server_app"
            )
        self._task = OwnRun(algorithm, initial, 1, weights=weights, classes=tuple(classes))
        self._options = options
        self._session: Any = None
        self._engine: Any = None
        self._began = time.monotonic()

    @property
    def initial_arrays(self) -> ArrayRecord:
        """The start, as ``Strategy.start`` wants it."""
        return _record(self._task.initial)

    @property
    def model(self) -> Any:
        """The model so far, in the structure of ``initial``."""
        if self._engine is None:
            return jax.tree.map(np.asarray, self._task.initial)
        return self._engine.rounds.x

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The letters of the round; before the first, the sites are met and the method is resolved."""
        if self._session is None:
            task = self._task
            self._session = Session(grid, task.task(), task.greeting(), self._options, task.check)
            self._session.open()
            self._session.sites.gather()
            given = {name: array.numpy() for name, array in arrays.items()}
            self._begin(unflatten(given, task.initial, "x"))
        letters = self._session.sites.letters(self._rounds, True)
        return [Message(content, node, "train") for node, content in letters.items()]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The server's step; replies that are missing or refused are asked for again first."""
        session, engine = self._session, self._engine
        if engine is None:
            raise RuntimeError(
                "aggregate_train: no round was configured; call configure_train first"
            )
        try:
            heard = session.sites.heard(self._rounds, True, replies)
            ready = session.sites.round(self._rounds, True, heard)
        except ChangedError as change:
            self._anew(change)
            return _record(self.model), None
        row = engine.measured(self._problem, ready, self._began)
        engine.advance(ready)
        names = ("objective", "gradient_norm")
        metrics = None if row is None else MetricRecord({name: row[name] for name in names})
        return _record(self.model), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nothing: sites measure F as they work."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Nothing."""
        return None

    def summary(self) -> None:
        """Tells the algorithm and who takes part."""
        logger.info("%r; %r", self._task.algorithm, self._options.terms)

    @property
    def _rounds(self):
        return self._engine.rounds

    def _begin(self, x) -> None:
        """The method's start at x, with the sites that there are when it has begun."""
        while True:
            try:
                self._problem, self._engine = self._task.opened(self._session)
                self._engine.start(self._task.algorithm, self._problem, self._options.seed, x)
                return
            except ChangedError as change:
                self._session.begin_anew(change)

    def _anew(self, change: ChangedError) -> None:
        """The method begins again at the model so far."""
        self._session.begin_anew(change)
        self._begin(self.model)


def _record(x) -> ArrayRecord:
    return ArrayRecord({name: as_record(a) for name, a in flatten(x, "x").items()})
