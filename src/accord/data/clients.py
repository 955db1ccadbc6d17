"""Clients: ragged data, packed into a few buckets of clients of similar size."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

PADDING_LIMIT = 1.2
"""Padded rows over true rows that the packing aims at."""


class Bucket(NamedTuple):
    """Clients padded to one number of rows n.

    ``features`` (m, n, ...), ``targets`` (m, n), ``row_weights`` (m, n) with zeros on padding,
    ``clients`` (m,): their positions among all clients.
    """

    features: np.ndarray
    targets: np.ndarray
    row_weights: np.ndarray
    clients: np.ndarray


def aligned_empty(shape, dtype) -> np.ndarray:
    """An uninitialised array that JAX can use in place on a CPU (it asks for 64-byte alignment)."""
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def bucket_sizes(sizes: Sequence[int], limit: float = PADDING_LIMIT) -> list[int]:
    """The fewest row counts to pad to, such that padded rows stay within ``limit`` x true rows.

    Every client is padded to the smallest of them that holds it. Found by dynamic programming over
    the sorted sizes; more than 200 distinct sizes are first rounded up on a geometric grid.
    """
    rows = np.maximum(np.asarray(sizes), 1)
    true = int(rows.sum())
    distinct, counts = np.unique(rows, return_counts=True)
    if len(distinct) > 200:
        grid = np.unique(np.ceil(np.geomspace(distinct[0], distinct[-1], 200)).astype(int))
        grid[-1] = distinct[-1]
        counts = np.bincount(np.searchsorted(grid, rows), minlength=len(grid))
        distinct, counts = grid[counts > 0], counts[counts > 0]
    below = np.concatenate([[0], np.cumsum(counts)])
    k = len(distinct)
    # cost[j]: least padded rows for the j smallest sizes; cut[b][j]: where the last bucket starts.
    cost, cuts = np.concatenate([[0.0], np.full(k, np.inf)]), []
    for _ in range(k):
        total = cost[:, None] + (below[None, :] - below[:, None]) * np.concatenate([[0], distinct])
        total[np.tril_indices(k + 1)] = np.inf
        cuts.append(total.argmin(0))
        cost = np.concatenate([[np.inf], total.min(0)[1:]])
        if cost[k] <= limit * true:
            break
    chosen, j = [], k
    for cut in reversed(cuts):
        chosen.append(int(distinct[j - 1]))
        j = cut[j]
    return chosen[::-1]


class Clients:
    """The rows of many data holders, which are never pooled.

    Build them with ``Clients.from_arrays``; ``clients[i]`` is the pair (features, targets) of one
    client, ``clients.sizes`` its number of rows, ``clients.names`` its name.
    """

    def __init__(self, buckets: Sequence[Bucket], sizes: np.ndarray, names: Sequence[Any]):
        self.buckets = tuple(buckets)
        self.sizes = sizes
        self._names = names

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The clients' names."""
        return tuple(str(name) for name in self._names)

    @functools.cached_property
    def _place(self) -> dict[int, tuple[int, int]]:
        """Where each client lies: (bucket, row)."""
        return {
            int(c): (b, row)
            for b, bucket in enumerate(self.buckets)
            for row, c in enumerate(bucket.clients)
        }

    @classmethod
    def without_data(cls, count: int, features: int) -> "Clients":
        """Clients of problems that are given by other things than rows, each counting as one row."""
        nothing = np.broadcast_to(0.0, (count, 1, features))
        ones = np.ones((count, 1))
        bucket = Bucket(nothing, nothing[..., 0], ones, np.arange(count))
        return cls([bucket], np.ones(count, int), range(count))

    @classmethod
    def from_arrays(
        cls, arrays: Iterable[Sequence[Any]], names: Iterable | None = None
    ) -> "Clients":
        """Clients from ``[(X_1, y_1), (X_2, y_2), ...]``, or with row weights ``(X, y, weights)``.

        X_i is (rows x features), y_i is (rows,); sizes may differ, and a client may be empty. The
        rows are copied once, into a few blocks of clients of similar size.

        Raises ``ValueError`` for a wrong shape, a NaN or infinite cell, a negative row weight, or if
        no client has a row, and names the client.
        """
        entries = [_entry(i, e) for i, e in enumerate(arrays)]
        if not entries:
            raise ValueError("arrays: there are no clients; give a list of (X, y) pairs")
        names = (
            [str(n) for n in names] if names is not None else [str(i) for i in range(len(entries))]
        )
        _check_names(names, len(entries))
        _check_agreement(entries, names)
        sizes = np.array([len(y) for _, y, _ in entries])
        return cls(_pack(entries, sizes), sizes, names)

    @classmethod
    def from_pooled(cls, features, targets, parts: Sequence[Any], names=None) -> "Clients":
        """Clients from pooled arrays and one array of row indices per client (see ``partition``)."""
        features, targets = np.asarray(features), np.asarray(targets)
        if features.shape[:1] != targets.shape[:1]:
            raise ValueError(
                f"targets: {len(targets)} for {len(features)} rows of features; one a row is expected"
            )
        pairs = []
        for i, part in enumerate(np.asarray(p) for p in parts):
            if part.size and part.dtype.kind not in "iu":
                raise ValueError(
                    f"parts[{i}]: dtype {part.dtype}; expected row indices, as integers"
                )
            pairs.append((features[part.astype(int)], targets[part.astype(int)]))
        return cls.from_arrays(pairs, names)

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        bucket, row, n = self._locate(i)
        return bucket.features[row, :n], bucket.targets[row, :n]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (self[i] for i in range(len(self)))

    def row_weights(self, i: int) -> np.ndarray:
        """The row weights of client i, all ones unless given."""
        bucket, row, n = self._locate(i)
        return bucket.row_weights[row, :n]

    def _locate(self, i: int):
        if not -len(self) <= i < len(self):
            raise IndexError(f"client {i} of {len(self)} clients")
        b, row = self._place[i % len(self)]
        return self.buckets[b], row, self.sizes[i]

    @property
    def features(self) -> tuple[int, ...]:
        """The shape of one row's features."""
        return self.buckets[0].features.shape[2:]

    @property
    def rows(self) -> int:
        """The number of rows of all clients together."""
        return int(self.sizes.sum())

    @property
    def padding(self) -> float:
        """Stored rows over true rows (an empty client counting one): what raggedness costs."""
        stored = sum(b.row_weights.size for b in self.buckets)
        return stored / int(np.maximum(self.sizes, 1).sum())

    def __repr__(self) -> str:
        low, mid, high = (int(f(self.sizes)) for f in (np.min, np.median, np.max))
        shape = " x ".join(str(s) for s in self.features)
        return (
            f"Clients({len(self)} clients, {self.rows} rows ({low}/{mid}/{high}), {shape} features)"
        )


def _entry(i: int, entry) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not isinstance(entry, tuple | list) or len(entry) not in (2, 3):
        raise ValueError(f"arrays[{i}]: expected a pair (X, y) or a triple (X, y, row_weights)")
    weights = entry[2] if len(entry) == 3 else np.ones(np.shape(entry[1])[:1])
    X, y, w = (
        _array(i, n, a) for n, a in (("X", entry[0]), ("y", entry[1]), ("row_weights", weights))
    )
    for name, a in (("X", X), ("y", y), ("row_weights", w)):
        if a.dtype.kind not in "fiub":
            raise ValueError(
                f"arrays[{i}]: {name} has dtype {a.dtype}; accepted are numbers: encode text first"
            )
    if X.ndim < 2:
        raise ValueError(
            f"arrays[{i}]: X has shape {X.shape}; expected (rows, features): use X.reshape(-1, 1) "
            "for one feature"
        )
    if y.shape != X.shape[:1]:
        raise ValueError(
            f"arrays[{i}]: y has shape {y.shape}; expected {X.shape[:1]}, one per row of X"
        )
    if X.size == 0 and len(X):
        raise ValueError(f"arrays[{i}]: X has shape {X.shape}; at least one feature is needed")
    if w.shape != y.shape:
        raise ValueError(f"arrays[{i}]: row weights have shape {w.shape}; expected {y.shape}")
    return X, y, w.astype(float)


def _array(i: int, name: str, value) -> np.ndarray:
    if np.ma.is_masked(value):
        raise ValueError(f"arrays[{i}]: {name} has masked values; drop or fill them first")
    try:
        return np.asarray(value)
    except ValueError:
        raise ValueError(f"arrays[{i}]: {name} is ragged; its rows want one length") from None


def _check_names(names: list[str], count: int) -> None:
    if len(names) != count:
        raise ValueError(f"names: {len(names)} names for {count} clients")
    if len(set(names)) != count:
        twice = next(n for n in names if names.count(n) > 1)
        raise ValueError(f"names: {twice!r} names two clients; every client wants its own name")


def _check_agreement(entries, names) -> None:
    shapes = [X.shape[1:] for X, _, _ in entries]
    for name, shape in zip(names, shapes, strict=True):
        if shape != shapes[0]:
            raise ValueError(
                f"client {name!r} has features of shape {shape}, client {names[0]!r} {shapes[0]}; "
                "all clients want the same columns in the same order"
            )
    for name, (X, y, w) in zip(names, entries, strict=True):
        for what, a in (("X", X), ("y", y), ("row weights", w)):
            if a.dtype.kind == "f" and not np.isfinite(a).all():
                cell = np.argwhere(~np.isfinite(a))[0]
                raise ValueError(
                    f"client {name!r}: {what} has a NaN or infinite value at {tuple(map(int, cell))}; "
                    "drop or fill such rows first"
                )
        if (w < 0).any():
            raise ValueError(f"client {name!r}: row weights must be >= 0, one is {w.min():g}")
    if not any(len(y) for _, y, _ in entries):
        raise ValueError("arrays: no client has a row; at least one row is needed")


def _pack(entries, sizes) -> list[Bucket]:
    widths = bucket_sizes(sizes)
    home = np.searchsorted(widths, np.maximum(sizes, 1))
    X_type = np.result_type(*(X.dtype for X, _, _ in entries))
    y_type = np.result_type(*(y.dtype for _, y, _ in entries))
    spare = next((X[0], y[0]) for X, y, _ in entries if len(y))
    buckets = []
    for b, n in enumerate(widths):
        members = np.flatnonzero(home == b)
        features = aligned_empty((len(members), n, *entries[0][0].shape[1:]), X_type)
        targets = aligned_empty((len(members), n), y_type)
        row_weights = np.zeros((len(members), n))
        for row, i in enumerate(members):
            X, y, w = entries[i]
            # Padding repeats a real row, at weight zero, so that no loss meets a value out of range.
            features[row, len(y) :] = X[0] if len(y) else spare[0]
            targets[row, len(y) :] = y[0] if len(y) else spare[1]
            features[row, : len(y)], targets[row, : len(y)], row_weights[row, : len(y)] = X, y, w
        for array in (features, targets, row_weights):
            # The device may use this memory in place.
            array.flags.writeable = False
        buckets.append(Bucket(features, targets, row_weights, members))
    return buckets
