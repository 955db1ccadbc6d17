"""The server app: one for every algorithm."""

import io
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from accord.files import write_whole
from accord.flower.events import logger
from accord.flower.session import Options, Session
from accord.flower.settings import options_of, table_fit_of
from accord.flower.tasks import OwnRun, TableFit
from accord.flower.wire import flatten


def server_app(
    algorithm: Any = None,
    initial: Any = None,
    *,
    rounds: int = 100,
    stop: Any = None,
    weights: str = "rows",
    classes: Iterable[type] = (),
    options: Options | None = None,
    on_end: Callable[[Any], None] | None = None,
) -> ServerApp:
    """A Flower server app that runs an algorithm over the sites of ``client_app``.

    Without ``algorithm`` it makes the joint fit of the sites' tables, which the run's configuration
    describes (``accord.flower.settings``); ``accord fit`` on the union of the tables gives the same model.

    With one, it minimises F = sum_i w_i f_i for the sites' own problems, from ``initial``, a tree of arrays:
    ``rounds``, ``stop`` and ``weights`` are those of ``accord.run`` and ``accord.problems``, ``classes``
    are algorithms of your own. ``options`` says who takes part and where files go; None: the run's
    configuration does. ``on_end`` is called with the ``accord.Fit`` or ``accord.Run``.

    The folder ``output`` gets log.jsonl, a checkpoint while the run goes on, and at the end model.json,
    fit.json and report.html, or model.npz and history.csv.
    """
    own = None
    if algorithm is not None:
        if initial is None:
            raise TypeError("initial: got None; give the model to start from, a tree of arrays")
        own = OwnRun(algorithm, initial, rounds, stop, weights, tuple(classes))
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        show_log()
        config = dict(context.run_config)
        with _told():
            task = own or table_fit_of(config)
            chosen = options or options_of(config)
        found = carry_out(grid, task, chosen)
        if on_end:
            on_end(found)

    return app


def carry_out(grid: Grid, task: TableFit | OwnRun, options: Options) -> Any:
    """The ``accord.Fit`` or ``accord.Run`` of a task over a grid, its results written to ``output``."""
    with _told():
        session = Session(grid, task.task(), task.greeting(), options, task.check)
        return session.run(task.once, lambda found: deliver(found, options.output))


@contextmanager
def _told() -> Iterator[None]:
    """Says what went wrong in one line, before Flower adds its own."""
    try:
        yield
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        logger.error("%s", " ".join(str(error).split()))
        raise


def deliver(found, output: Path | None) -> None:
    """Writes a run's results into its folder, and tells how it ended."""
    logger.info("%s", found.status)
    if output is None:
        return
    if hasattr(found, "model"):
        written = found.save(output)
    else:
        buffer = io.BytesIO()
        leaves: dict[str, Any] = flatten(found.x, "x")
        np.savez(buffer, **leaves)
        written = {"model": write_whole(output / "model.npz", buffer.getvalue())}
        found.history.write_csv(output / "history.csv")
        written["history"] = output / "history.csv"
    for name, path in written.items():
        logger.info("%-8s %s", name, path)


def show_log() -> None:
    """Lets the log of a server app be seen, unless the user has set up logging."""
    if not logger.handlers and not logger.isEnabledFor(logging.INFO):
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("accord: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
