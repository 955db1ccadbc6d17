"""Partitioners: pooled rows -> clients, as one array of row indices per client.

Every function returns a list of increasing index arrays that are complete and disjoint: each row
goes to exactly one client, since every list is cut from one permutation of the rows. The same
arguments give the same parts. ``accord.Clients.from_pooled(X, y, parts)`` makes clients of them.
"""

import operator

import numpy as np

LARGEST_ALPHA = 1e9
"""Beyond it a Dirichlet split is even to the row, and its sum may overflow."""


def iid(rows: int, clients: int, seed: int = 0) -> list[np.ndarray]:
    """``rows`` shuffled and cut into ``clients`` parts whose sizes differ by one at most."""
    rows, clients = _count("rows", rows, 1), _count("clients", clients, 1)
    if clients > rows:
        raise ValueError(f"clients: got {clients} for {rows} rows; accepted is up to {rows}")
    order = _generator(seed).permutation(rows)
    return [np.sort(part) for part in np.array_split(order, clients)]


def dirichlet(labels, clients: int, alpha: float, seed: int = 0, minimum_rows: int = 0):
    """Heterogeneous labels: every class is dealt to the clients in Dirichlet(alpha) proportions.

    For each class of ``labels`` (rows,) a vector of ``clients`` proportions is drawn from a
    symmetric Dirichlet(alpha), and the shuffled rows of the class are cut so. A **smaller** alpha
    is **more** heterogeneous: near 0 a class goes to one client, near infinity to all equally.

    A client may end up without rows when alpha is small or clients are many. ``minimum_rows`` > 0
    repairs this: rows chosen by the seed move, one at a time, from the then largest client to the
    first one that is short.

    T.-M. H. Hsu, H. Qi and M. Brown, "Measuring the Effects of Non-Identical Data Distribution for
    Federated Visual Classification", 2019, draw a client's class proportions so; drawing a class's
    client proportions is due to M. Yurochkin et al., "Bayesian Nonparametric Federated Learning of
    Neural Networks", ICML 2019.
    """
    codes, classes = _codes(labels)
    clients = _count("clients", clients, 1)
    minimum_rows = _count("minimum_rows", minimum_rows, 0)
    if not isinstance(alpha, int | float | np.number) or not 0 < alpha <= LARGEST_ALPHA:
        raise ValueError(f"alpha: got {alpha!r}; accepted is a number > 0, up to {LARGEST_ALPHA:g}")
    if clients * minimum_rows > len(codes):
        raise ValueError(
            f"minimum_rows: got {minimum_rows} for {clients} clients and {len(codes)} rows; "
            f"accepted is a number up to {len(codes) // clients}"
        )
    generator = _generator(seed)
    pieces: list[list] = [[] for _ in range(clients)]
    for c in range(len(classes)):
        rows = generator.permutation(np.flatnonzero(codes == c))
        shares = generator.dirichlet(np.full(clients, float(alpha)))
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for own, piece in zip(pieces, np.split(rows, cuts), strict=True):
            own.append(piece)
    parts = [np.concatenate(own) for own in pieces]
    if minimum_rows:
        parts = _filled([generator.permutation(p) for p in parts], minimum_rows)
    return [np.sort(part) for part in parts]


def by_label(labels, clients: int, classes_per_client: int, seed: int = 0) -> list[np.ndarray]:
    """Every client holds exactly ``classes_per_client`` classes of ``labels`` (rows,).

    Every class is held by somebody, and its rows are split evenly among its holders. Classes have
    equally many holders, up to one, except where a class has too few rows for that.
    """
    codes, classes = _codes(labels)
    clients = _count("clients", clients, 1)
    each = _count("classes_per_client", classes_per_client, 1)
    rows = np.bincount(codes)
    places, most = clients * each, int(np.minimum(rows, clients).sum())
    if each > len(classes):
        raise ValueError(
            f"classes_per_client: got {each} for {len(classes)} classes; "
            f"accepted is a number up to {len(classes)}"
        )
    if places < len(classes):
        raise ValueError(
            f"classes_per_client: got {each} for {clients} clients, which leaves some of the "
            f"{len(classes)} classes without a holder; accepted is "
            f"{-(-len(classes) // clients)} or more"
        )
    if places > most:
        raise ValueError(
            f"classes_per_client: got {each} for {clients} clients, which takes {places} holders; "
            f"the classes have rows for {most}: take fewer clients or classes per client"
        )
    generator = _generator(seed)
    holders = _holders(np.minimum(rows, clients), places, generator)
    left = holders.copy()
    held: list[list[int]] = [[] for _ in classes]
    for i in range(clients):
        # The classes that lack most holders; the random order breaks ties. This meets every count
        # exactly, since no class lacks more holders than there are clients to come (Gale-Ryser).
        order = generator.permutation(len(classes))
        chosen = order[np.argsort(-left[order], kind="stable")[:each]]
        left[chosen] -= 1
        for c in chosen:
            held[c].append(i)
    pieces: list[list] = [[] for _ in range(clients)]
    for c, own in enumerate(held):
        shuffled = generator.permutation(np.flatnonzero(codes == c))
        for i, piece in zip(own, np.array_split(shuffled, len(own)), strict=True):
            pieces[i].append(piece)
    return [np.sort(np.concatenate(own)) for own in pieces]


def shards(labels, clients: int, shards_per_client: int, seed: int = 0) -> list[np.ndarray]:
    """Rows sorted by label, cut into shards of equal size up to one row, and dealt at random.

    ``labels`` is (rows,); each client gets ``shards_per_client`` shards, and no row is dropped.
    H. B. McMahan, E. Moore, D. Ramage, S. Hampson and B. Agüera y Arcas, "Communication-Efficient
    Learning of Deep Networks from Decentralized Data", AISTATS 2017, deal two shards each.
    """
    codes, _ = _codes(labels)
    clients = _count("clients", clients, 1)
    each = _count("shards_per_client", shards_per_client, 1)
    if clients * each > len(codes):
        raise ValueError(
            f"shards_per_client: got {each} for {clients} clients, which takes {clients * each} "
            f"shards; accepted is a product up to the {len(codes)} rows"
        )
    cut = np.array_split(np.argsort(codes, kind="stable"), clients * each)
    deal = _generator(seed).permutation(clients * each).reshape(clients, each)
    return [np.sort(np.concatenate([cut[s] for s in own])) for own in deal]


def by_column(values) -> tuple[list[np.ndarray], list[str]]:
    """One client per distinct value of ``values`` (rows,): the parts, and the clients' names.

    Clients come in **sorted** order of their values (numbers by size, text alphabetically), so that
    neither the order of the rows nor another table of the same clients changes it.
    """
    codes, distinct = _codes(values, "values")
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    return parts, [str(v) for v in distinct]


def _codes(values, name: str = "labels") -> tuple[np.ndarray, np.ndarray]:
    """(the place of each value among the distinct ones, the sorted distinct values)."""
    values = np.asarray(values)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"{name}: got shape {values.shape}; accepted is (rows,), a row or more")
    missing = np.flatnonzero([values.dtype.kind in "fmMO" and _is_missing(v) for v in values])
    if len(missing):
        raise ValueError(
            f"{name}: {len(missing)} missing, the first in row {missing[0]}; drop or fill such rows"
        )
    try:
        distinct, codes = np.unique(values, return_inverse=True)
    except TypeError:
        kinds = sorted({type(v).__name__ for v in values})
        raise ValueError(
            f"{name}: got a mixture of {' and '.join(kinds)}; accepted is one kind, as all text"
        ) from None
    return codes, distinct


def _is_missing(value) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA is neither equal to itself nor not
        return True


def _count(name: str, value, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < least:
        raise ValueError(f"{name}: got {value!r}; accepted is a whole number >= {least}")
    return number


def _generator(seed) -> np.random.Generator:
    return np.random.default_rng(_count("seed", seed, 0))


def _filled(parts: list[np.ndarray], minimum_rows: int) -> list[np.ndarray]:
    """Parts of at least ``minimum_rows`` each; every move fills one gap, so that this ends."""
    own = [list(part) for part in parts]
    sizes = np.array([len(part) for part in parts])
    for i, short in enumerate(np.maximum(minimum_rows - sizes, 0)):
        for _ in range(short):
            giver = int(sizes.argmax())
            own[i].append(own[giver].pop())
            sizes[giver] -= 1
            sizes[i] += 1
    return [np.array(part, dtype=int) for part in own]


def _holders(limits: np.ndarray, places: int, generator) -> np.ndarray:
    """How many clients hold each class: as equal as ``limits`` allow, summing to ``places``."""
    holders = np.ones(len(limits), dtype=int)
    while (short := places - holders.sum()) > 0:
        open_ = generator.permutation(np.flatnonzero(holders < limits))
        holders[open_[:short]] += 1
    return holders
