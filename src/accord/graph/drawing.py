"""Pictures of networks: the network itself, and its nodes' values from round to round."""

from pathlib import Path

import numpy as np

from accord.files import write_whole

PLACED, NAMED = 2000, 60
"""The most nodes that are given places, more want positions; and that reports write names beside."""

_SHOWN = (1, 2, 3, 5, 10, 20, 50, 100)


def layout(network) -> np.ndarray:
    """Where the nodes are drawn (nodes, 2): their positions, or places by the springs of their edges."""
    if network.positions is not None:
        return network.positions
    if len(network) > PLACED:
        raise ValueError(
            f"network: {len(network)} nodes without positions are too many to place; give positions"
        )
    import networkx

    graph = networkx.Graph(network.edges.tolist())
    graph.add_nodes_from(range(len(network)))
    few = len(network) <= 150 and network.connected
    places = networkx.kamada_kawai_layout(graph) if few else networkx.spring_layout(graph, seed=0)
    return np.array([places[i] for i in range(len(network))])


def draw(network, values=None, path=None, axes=None, *, label=None, limits=None, names=False):
    """Draws a network on matplotlib axes, or into a PNG file at ``path``; returns the axes.

    ``values`` (nodes,) colours the nodes, within ``limits`` (low, high); ``label`` says what they are;
    ``names=True`` writes the nodes' names beside them.
    """
    figure = None
    if axes is None:
        figure = _figure((5.6, 4.6))
        axes = figure.subplots()
    marks = _draw(axes, network, layout(network), values, limits)
    if names:
        for place, name in zip(layout(network), network.names, strict=True):
            axes.annotate(str(name), place, (4, 3), textcoords="offset points", fontsize=7)
    if values is not None and figure is not None:
        figure.colorbar(marks, ax=axes, label=label or "", shrink=0.8)
    if path is not None:
        write_whole(Path(path), png(axes.figure))
    return axes


def _draw(axes, network, places, values, limits, scale=1.0):
    from matplotlib.collections import LineCollection

    n = len(network)
    lines = places[network.edges]
    axes.add_collection(
        LineCollection(
            lines, colors="#9aa1ad", linewidths=scale * (0.8 if n < 300 else 0.3), zorder=1
        )
    )
    size = scale**2 * float(np.clip(3000 / n, 4, 90))
    low, high = limits or (None, None)
    look = {"color": "#2d4bff"}
    if values is not None:
        shades = np.asarray(values, float).reshape(n)
        look = {"c": shades, "vmin": low, "vmax": high, "cmap": "viridis"}
    thin = 0.4 if n < 300 else 0.1
    marks = axes.scatter(*places.T, s=size, edgecolors="#1d2129", linewidths=thin, zorder=2, **look)
    spans = np.ptp(places, axis=0)
    flat = spans.min() < 1e-9 * spans.max()
    axes.set_aspect("auto" if flat else "equal")
    axes.margins(0.06)
    axes.set_axis_off()
    return marks


def snapshots(run, path=None, coordinate: int = 0, rounds=None) -> bytes:
    """Small multiples of the nodes' values over the rounds, as a PNG; written to ``path`` if it is given.

    ``run`` was made with ``record=("x",)``. Of models with several numbers that at ``coordinate`` is shown.
    ``rounds`` are those to show; by default a few, ever further apart.
    """
    xs, counted = _recorded(run, coordinate)
    wanted = _SHOWN if rounds is None else rounds
    places = np.unique(np.searchsorted(counted, [r for r in wanted if r <= counted[-1]]))
    if rounds is None:
        places = places[:8]
    columns = min(4, len(places))
    rows = -(-len(places) // columns)
    figure = _figure((1.75 * columns + 0.8, 1.75 * rows))
    grid = figure.subplots(rows, columns, squeeze=False)
    where, shown = layout(run.network), xs[places]
    limits = shown.min(), shown.max()
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, k in zip(grid.flat, places, strict=False):
        marks = _draw(axes, run.network, where, xs[k], limits, 0.6)
        axes.set_title(f"round {counted[k]}", fontsize=9)
    figure.colorbar(marks, ax=grid, shrink=0.8, label="value at the node")
    return _kept(figure, path)


def traces(run, path=None, coordinate: int = 0) -> bytes:
    """Every node's value against the rounds, as a PNG; written to ``path`` if it is given."""
    xs, counted = _recorded(run, coordinate)
    figure = _figure((6.0, 3.2))
    axes = figure.subplots()
    faint = max(0.12, min(0.8, 12 / len(run.network)))
    axes.plot(counted, xs, color="#2d4bff", linewidth=0.7, alpha=faint)
    if run.reference is not None and run.network.constraints is None:
        best = run.reference.x.reshape(len(run.network), -1)[0, coordinate]
        axes.axhline(best, color="#d21e00", linewidth=1, linestyle=(0, (6, 3)), label="optimum")
        axes.legend(frameon=False, fontsize=8.5)
    # Nodes agree in the first few of many rounds.
    axes.set_xscale("log")
    axes.set_xlabel("rounds")
    axes.set_ylabel("value at the nodes")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0)
    return _kept(figure, path)


def _recorded(run, coordinate: int):
    """(values (records, nodes), rounds)."""
    if run.xs is None:
        raise ValueError('run: it kept no models; run with record=("x",)')
    if not isinstance(run.xs, np.ndarray):
        raise ValueError("run: its models are not one array; values of plain vectors can be drawn")
    flat = run.xs.reshape(*run.xs.shape[:2], -1)
    if not 0 <= coordinate < flat.shape[2]:
        raise ValueError(
            f"coordinate: got {coordinate}; the nodes' models have 0 to {flat.shape[2] - 1}"
        )
    return flat[:, :, coordinate], run.history["round"]


def _figure(size):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=180, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def png(figure) -> bytes:
    """A matplotlib figure as the bytes of a PNG file."""
    import io

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _kept(figure, path) -> bytes:
    picture = png(figure)
    if path is not None:
        write_whole(Path(path), picture)
    return picture
