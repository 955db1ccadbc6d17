"""Curves as PNG files."""

import io

import numpy as np

from accord.report.style import limits, look, reach

_LINES = {"solid": "-", "dash": (0, (6, 2)), "dot": (0, (1.5, 1.5)), "dashdot": (0, (6, 2, 1.5, 2))}
_MARKS = {
    "circle": "o", "square": "s", "diamond": "D", "cross": "P", "x": "X", "triangle-up": "^",
    "triangle-down": "v", "star": "*",
}  # fmt: skip


def draw(comparison, axis: str) -> bytes:
    """The comparison's curves against an axis, as the bytes of a PNG file."""
    figure, axes = blank()
    floor = comparison.floor
    curves = [c for c in comparison.curves if axis in c.axes]
    for k, curve in enumerate(curves):
        colour, dash, mark = look(curve.place)
        start = 0.12 * (0.618 * k % 1)
        axes.plot(
            curve.axes[axis], np.maximum(curve.values, floor), color=colour, linestyle=_LINES[dash],
            linewidth=1.5, marker=_MARKS[mark], markersize=5, markevery=(start, 0.12),
            markeredgecolor="white", markeredgewidth=0.5, label=curve.name,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(*limits([c.values for c in curves], floor))
    end, beyond = reach(curves, axis, floor)
    axes.set_xlim(0, end)
    axes.set_xlabel(comparison.axes[axis] + beyond)
    words, _ = comparison.measures[comparison.measure]
    axes.set_ylabel(words)
    axes.set_title(comparison.caption, loc="left", fontsize=11)
    figure.legend(loc="outside right upper", fontsize=8.5, frameon=False, handlelength=3)
    return png(figure)


def blank(height: float = 5.2):
    """(figure, axes), 9 inches wide, with a faint grid."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), dpi=150, layout="constrained")
    axes = figure.subplots()
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def png(figure) -> bytes:
    """A figure as the bytes of a PNG file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer)
    return buffer.getvalue()
