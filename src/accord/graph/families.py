"""Families of networks: each function gives (edges (E, 2), nodes, positions or None).

The random ones are networkx's.
"""

import math

import numpy as np

from accord.core.checks import is_number

_DRAWS = 100


def _whole(name: str, value, least: int) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ValueError(f"{name}: got {value!r}; accepted is a whole number >= {least}")
    return int(value)


def _circle(nodes: int) -> np.ndarray:
    angles = 2 * np.pi * np.arange(nodes) / nodes
    return np.stack([np.sin(angles), np.cos(angles)], 1)


def ring(nodes):
    """A cycle."""
    n = _whole("nodes", nodes, 3)
    i = np.arange(n)
    return np.stack([i, (i + 1) % n], 1), n, _circle(n)


def path(nodes):
    """A line."""
    n = _whole("nodes", nodes, 2)
    i = np.arange(n - 1)
    return np.stack([i, i + 1], 1), n, np.stack([np.arange(n), np.zeros(n)], 1)


def _rectangle(rows, columns, least):
    r, c = _whole("rows", rows, least), _whole("columns", columns, least)
    places = np.stack(np.meshgrid(np.arange(c), -np.arange(r)), -1).reshape(-1, 2)
    return np.arange(r * c).reshape(r, c), places


def grid(rows, columns):
    """A rectangle."""
    number, places = _rectangle(rows, columns, 1)
    across = np.stack([number[:, :-1].ravel(), number[:, 1:].ravel()], 1)
    down = np.stack([number[:-1].ravel(), number[1:].ravel()], 1)
    return np.concatenate([across, down]), number.size, places


def torus(rows, columns):
    """A rectangle whose opposite borders touch; below 3 a border would touch twice."""
    number, places = _rectangle(rows, columns, 3)
    next_ones = [np.roll(number, 1, axis).ravel() for axis in (0, 1)]
    return (
        np.concatenate([np.stack([number.ravel(), k], 1) for k in next_ones]),
        number.size,
        places,
    )


def complete(nodes):
    """Everyone beside everyone."""
    n = _whole("nodes", nodes, 2)
    return np.stack(np.triu_indices(n, 1), 1), n, _circle(n)


def star(nodes):
    """Node 0 beside all others."""
    n = _whole("nodes", nodes, 2)
    edges = np.stack([np.zeros(n - 1, int), np.arange(1, n)], 1)
    return edges, n, np.concatenate([[[0.0, 0.0]], _circle(n - 1)])


def _probability(name: str, value) -> float:
    if not is_number(value) or not 0 < value <= 1:
        raise ValueError(f"{name}: got {value!r}; accepted is a number in (0, 1]")
    return float(value)


def _connected(make, seed, what: str):
    """The first connected graph of a sequence of draws."""
    import networkx

    seeds = np.random.SeedSequence(_whole("seed", seed, 0)).generate_state(_DRAWS)
    for drawn in seeds:
        graph = make(int(drawn))
        if networkx.is_connected(graph):
            return from_networkx(graph)
    raise ValueError(f"{what}: none of {_DRAWS} draws was connected; raise it")


def erdos_renyi(nodes, probability, seed):
    """Each pair is an edge with one probability."""
    import networkx

    n, p = _whole("nodes", nodes, 2), _probability("probability", probability)

    def make(s):
        # networkx's fast generator divides by log(1 - p).
        return networkx.fast_gnp_random_graph(n, p, s) if p < 1 else networkx.complete_graph(n)

    return _connected(make, seed, "probability")


def random_geometric(nodes, radius, seed):
    """Points in the unit square, joined up to a distance."""
    import networkx

    n = _whole("nodes", nodes, 2)
    radius = min(1.5, math.sqrt(2 * math.log(n) / n)) if radius is None else radius
    if not is_number(radius) or not radius > 0:
        raise ValueError(f"radius: got {radius!r}; accepted is a number > 0")
    return _connected(lambda s: networkx.random_geometric_graph(n, radius, seed=s), seed, "radius")


def barabasi_albert(nodes, attachments, seed):
    """Preferential attachment."""
    import networkx

    n, m = _whole("nodes", nodes, 3), _whole("attachments", attachments, 1)
    if m >= n:
        raise ValueError(f"attachments: got {m}; accepted are 1 to {n - 1}, fewer than the nodes")
    return from_networkx(networkx.barabasi_albert_graph(n, m, seed=_whole("seed", seed, 0)))


def small_world(nodes, neighbours, rewiring, seed):
    """Watts and Strogatz's rewired ring."""
    import networkx

    n, k = _whole("nodes", nodes, 3), _whole("neighbours", neighbours, 2)
    if k >= n:
        raise ValueError(f"neighbours: got {k}; accepted are 2 to {n - 1}, fewer than the nodes")
    if k % 2:
        raise ValueError(
            f"neighbours: got {k}; accepted is an even number, half of them on each side"
        )
    if not is_number(rewiring) or not 0 <= rewiring <= 1:
        raise ValueError(f"rewiring: got {rewiring!r}; accepted is a number in [0, 1]")
    make = lambda s: networkx.watts_strogatz_graph(n, k, rewiring, seed=s)  # noqa: E731
    edges, nodes, _ = _connected(make, seed, "neighbours")
    return edges, nodes, _circle(n)


def from_networkx(graph):
    """The nodes in their order, named where they are not 0 .. n - 1."""
    if not hasattr(graph, "is_directed"):
        raise TypeError(f"graph: got {type(graph).__name__}; expected a networkx.Graph")
    if graph.is_directed() or graph.is_multigraph():
        raise ValueError(
            "graph: it is directed or has parallel edges; give networkx.Graph(graph) instead"
        )
    labels = list(graph.nodes)
    places = [graph.nodes[label].get("pos") for label in labels]
    positions = None if any(p is None for p in places) else [tuple(p)[:2] for p in places]
    plain = labels == list(range(len(labels)))
    return list(graph.edges), len(labels) if plain else labels, positions


def from_positions(positions, neighbours):
    """Each site beside its nearest ones; parts are joined by the shortest edge between them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components
    from scipy.spatial import cKDTree

    try:
        places = np.asarray(positions, float)
    except (TypeError, ValueError):
        raise ValueError("positions: expected numbers (sites, 2)") from None
    if places.ndim != 2 or places.shape[1] != 2 or not np.isfinite(places).all():
        raise ValueError(f"positions: shape {places.shape}; expected finite numbers (sites, 2)")
    n = _whole("positions", len(places), 2)
    k = min(_whole("neighbours", neighbours, 1), n - 1)
    tree = cKDTree(places)
    # Where sites share one place, a site itself need not come first among its nearest.
    nearest = tree.query(places, k + 1)[1]
    pairs = np.stack([np.repeat(np.arange(n), k + 1), nearest.ravel()], 1)
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], 1), axis=0)
    while True:
        table = coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(n, n))
        count, part = connected_components(table, directed=False)
        if count == 1:
            return pairs, n, places
        inside, outside = np.flatnonzero(part == 0), np.flatnonzero(part != 0)
        distances, closest = cKDTree(places[outside]).query(places[inside])
        best = distances.argmin()
        bridge = sorted((inside[best], outside[closest[best]]))
        pairs = np.concatenate([pairs, [bridge]])
