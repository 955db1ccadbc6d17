"""Methods on a network side by side: the comparison of ``accord.compare(..., network=...)``."""

import numpy as np

from accord.graph.drawing import NAMED, PLACED, draw, png, snapshots, traces
from accord.report.comparison import MEGABYTE, Column, Comparison, problem_facts
from accord.report.style import scientific
from accord.theory import constants

AXES = {
    "rounds": "rounds",
    "messages": "messages sent, all nodes",
    "megabytes": "megabytes sent, all nodes",
    "gradients": "local gradients, a node's mean",
    "seconds": "seconds, compilation apart",
}
MEASURES = {
    "distance": ("relative distance", "sqrt(mean_i ||x_i - x_i*||^2) over its start"),
    "consensus": ("consensus error", "sqrt(mean_i ||x_i - mean_j x_j||^2)"),
    "residual": ("constraint residual", "max |B_{i|j} x_i - B_{j|i} x_j - c|"),
}


class NetworkComparison(Comparison):
    """The outcome of ``accord.compare`` on a network.

    As ``Comparison``, with what is sent on the edges counted. ``measure`` is "distance", or where no optimum
    is known "consensus" ("residual" with constraints), which are not divided by their start.
    """

    axes = AXES
    measures = MEASURES
    subtitle = "minimise sum_i f_i(x_i) where neighbours agree, without a server"

    def __init__(self, network, conditions, *rest):
        self.network, self.conditions = network, conditions
        super().__init__(*rest)

    @property
    def caption(self) -> str:
        """What the pictures are of."""
        edges = len(self.network.source) // 2
        return f"{self.problem.name}, {len(self.network)} nodes, {edges} edges"

    def _measure(self) -> str:
        for name in ("distance", "consensus"):
            if all(name in r.history for r in self.runs.values()):
                return name
        return "residual"

    @property
    def floor(self) -> float:
        """The least measure that is drawn: what lies below is rounding."""
        return 1e-16 if self.measure == "distance" else 1e-15

    def _costs(self):
        return [
            ("rounds", "rounds", "rounds to a {} of"),
            ("messages", "messages", "messages to"),
            ("megabytes", "MB", "MB to"),
            ("gradients", "grads", "local gradients to"),
        ]

    def _at_end(self):
        columns = []
        if self.measure == "distance":
            columns.append(Column("distance", "distance", "at end", "distance", scientific, min))
        apart = "consensus" if self.network.constraints is None else "residual"
        return [*columns, Column(apart, apart, "at end", apart, scientific, min)]

    def _row(self, entry):
        row = super()._row(entry)
        if entry.run is not None:
            for name in ("consensus", "residual"):
                if name in row and np.isfinite(entry.run.history[name][-1]):
                    row[name] = float(entry.run.history[name][-1])
        return row

    def _drawn_against(self, history):
        return {
            "rounds": history["round"],
            "messages": history["messages"],
            "megabytes": history["bytes"] / MEGABYTE,
            "gradients": history.get("gradients"),
            "seconds": history["seconds"],
        }

    def _curve(self, run):
        values, axes = super()._curve(run)
        if self.measure != "distance":
            values = np.concatenate([[run.start[self.measure]], run.history[self.measure]])
        return values, axes

    def _spent(self, history, at: int):
        spent = {
            "rounds": int(history["round"][at]),
            "messages": int(history["messages"][at]),
            "megabytes": float(history["bytes"][at]) / MEGABYTE,
        }
        if "gradients" in history:
            spent["gradients"] = float(history["gradients"][at])
        return spent

    def facts(self):
        """What was run, on which network, and what theory knows of the problem."""
        n = self.network
        return [
            ("nodes", str(len(n))),
            ("edges", f"{len(n.source) // 2:,}"),
            ("degrees", " to ".join(str(d) for d in np.unique([n.degrees.min(), n.degrees.max()]))),
            *(_spread(n) if len(n) <= PLACED else ()),
            ("mixing rate", f"{n.mixing_rate:.4f}"),
            *problem_facts(self.problem, constants(self.problem)),
            *self.conditions.items(),
            ("rounds", str(self.rounds)),
            ("seed", str(self.seed)),
            ("dtype", self.problem.dtype),
        ]

    def _counted(self) -> str:
        return (
            "Messages go to one neighbour each, lost ones counted, MB are 1e6 bytes, both of all nodes "
            "together; gradients are a node's mean. A round of single activations is as many as there "
            "are nodes. At the end: distance sqrt(mean_i ||x_i - x_i*||^2), consensus "
            "sqrt(mean_i ||x_i - mean_j x_j||^2). PDMM(relaxation=0.5) is ADMM."
        )

    def figures(self):
        """The network, and the first method's values over the rounds where models were kept."""
        if len(self.network) > PLACED:
            return []
        found = [
            (
                "The network",
                "Nodes and who talks to whom.",
                png(draw(self.network, names=len(self.network) <= NAMED).figure),
            )
        ]
        for entry in self.entries:
            run = entry.run
            if run is None or not isinstance(run.xs, np.ndarray):
                continue
            which = "" if run.xs[0, 0].size == 1 else ", first coordinate"
            found += [
                (
                    f"{entry.name}: the nodes' values{which}",
                    "The network after some rounds, one colour scale for all.",
                    snapshots(run),
                ),
                ("The same against the rounds", "One line a node.", traces(run)),
            ]
            break
        return found


def _spread(network) -> list[tuple[str, str]]:
    return [
        ("diameter", f"{network.diameter:g}"),
        ("algebraic connectivity", f"{network.algebraic_connectivity:.4g}"),
    ]
