"""The table of a run: one row a recorded round, columns as NumPy arrays."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

INTEGERS = ("round", "iterations", "uplink_bytes", "downlink_bytes")

COLUMNS = {
    "round": "communication rounds done",
    "iterations": "local iterations done, where the method counts them",
    "gradients": "local gradients, a client's mean (B of n rows: B/n; a factorised solve: 1)",
    "uplink_bytes": "bytes sent by all clients together",
    "downlink_bytes": "bytes received by all clients together",
    "objective": "F(x)",
    "gap": "F(x) - F(x*)",
    "gradient_norm": "||grad F(x)||",
    "distance": "||x - x*||",
    "consensus": "sqrt(sum_i w_i ||x_i - x||^2) over the clients heard",
    "dual_residual": "rho max_i ||x_i - x||_inf, the step the duals would take",
    "seconds": "time in the rounds so far, measuring included, compilation apart",
}
"""Every column and its meaning. A column that cannot be had is absent."""


class History(Mapping):
    """A mapping from column names to arrays, one entry a recorded round."""

    def __init__(self, columns: dict[str, np.ndarray], known: Mapping[str, str] = COLUMNS):
        self._columns = {name: columns[name] for name in known if name in columns}

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns:
            raise KeyError(f"{name!r}: this run has the columns {', '.join(self._columns)}")
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def rows(self) -> int:
        """The number of recorded rounds."""
        return len(self._columns["round"])

    def followed_by(self, later: "History", seconds: float) -> "History":
        """This table and a later one, whose clock began at ``seconds``, with the columns of both."""
        columns = {n: np.concatenate([self[n], later[n]]) for n in later if n in self}
        columns["seconds"][self.rows :] += seconds
        return History(columns)

    def dataframe(self):
        """The table as a polars DataFrame."""
        import polars

        return polars.DataFrame(dict(self._columns))

    def write_csv(self, path) -> None:
        """Writes the table as CSV, whole or not at all."""
        from accord.files import write_whole

        write_whole(Path(path), self.dataframe().write_csv())

    def __repr__(self) -> str:
        return f"History({self.rows} rows: {', '.join(self._columns)})"
