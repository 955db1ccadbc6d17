"""The pictures of a fit's page as PNG files: coefficients, clients, convergence."""

import numpy as np

from accord.report.fit_charts import (
    CLIENTS_NAMED,
    JOINT,
    OWN,
    clients,
    effects,
    fitting_range,
    history,
    opening,
    outcome,
    sizes,
)
from accord.report.pictures import blank, png
from accord.report.style import COLOURS, cut

_CLASSES = 8
_GREY = "#7f8794"
_NAME = 34


def draw(fit) -> dict[str, bytes]:
    """The pictures by name."""
    return {
        "coefficients": png(_coefficients(fit)),
        "clients": png(_clients(fit)),
        "convergence": png(_convergence(fit)),
    }


def _coefficients(fit):
    """Effects of one standard deviation of each column, the first classes in colours."""
    shown = effects(fit)
    at, labels = np.arange(len(shown.terms)), shown.labels[:_CLASSES]
    figure, axes = blank(0.24 * len(at) + 1.5)
    axes.axvline(0, color=_GREY, linewidth=1)
    for k, label in enumerate(labels):
        x = shown.estimates[k] * shown.deviations
        half = None if shown.errors is None else shown.errors[k] * shown.deviations
        shift = 0.6 * ((k + 0.5) / len(labels) - 0.5)
        axes.errorbar(
            x, at + shift, xerr=half, fmt="o", color=COLOURS[k], markersize=5 if len(labels) == 1 else 3.5,
            linewidth=1.2, label=_plain(label),
        )  # fmt: skip
    axes.set_yticks(at, [_plain(name) for name in shown.terms], fontsize=8)
    axes.set_ylim(len(at) - 0.4, -0.6)
    what = outcome(fit, shown.labels[0])
    if len(shown.labels) > 1:
        what = what.split(" of ")[0]
        figure.legend(loc="outside right upper", fontsize=8, frameon=False)
    axes.set_xlabel(_escaped(f"change of {what} per standard deviation of the column"))
    if len(labels) < len(shown.labels):
        axes.set_title(f"{len(labels)} of {len(shown.labels)} classes", loc="left", fontsize=10)
    return figure


def _clients(fit):
    sites = clients(fit)
    words = list(sites.joint)[opening(sites)]
    joint, own = sites.joint[words], None if sites.own is None else sites.own[words]
    area = sizes(sites.rows) ** 2 * 0.6
    few = len(joint) <= CLIENTS_NAMED
    figure, axes = blank(0.28 * len(joint) + 1.6 if few else 5.2)
    if few:
        at = np.arange(len(joint))
        if own is not None:
            axes.hlines(at, joint, own, color=_GREY, linewidth=1.2)
            axes.scatter(own, at, area, color=OWN, marker="D", label="own model", zorder=2)
        axes.scatter(joint, at, area, color=JOINT, label="joint model", zorder=3)
        axes.set_yticks(at, [_plain(name) for name in sites.names], fontsize=8)
        axes.set_ylim(-0.7, len(at) - 0.3)
        axes.set_xlabel(_escaped(words))
        if own is not None:
            legend = figure.legend(loc="outside right upper", fontsize=8, frameon=False)
            for handle in legend.legend_handles:
                handle.set_sizes([40])
        return figure
    axes.scatter(
        sites.rows if own is None else own, joint, area / 4, color=JOINT, alpha=0.45, linewidth=0
    )
    reach, _ = fitting_range(joint)
    axes.set_ylim(reach)
    axes.set_ylabel(_escaped(f"joint model: {words}"))
    if own is None:
        axes.set_xscale("log")
        axes.set_xlabel("rows")
    else:
        across, _ = fitting_range(own)
        axes.set_xlim(across)
        axes.set_xlabel(_escaped(f"own model: {words}"))
        axes.axline((0, 0), slope=1, color=_GREY, linewidth=1, linestyle=":")
    return figure


def _convergence(fit):
    rounds, norms = history(fit)
    figure, axes = blank(4.2)
    axes.plot(rounds, norms, color=JOINT, marker="o" if len(rounds) <= 60 else "")
    axes.set_yscale("log")
    if rounds[-1] <= 10:
        axes.set_xticks(rounds)
    axes.set_xlabel("rounds")
    axes.set_ylabel("gradient norm")
    return figure


def _plain(name: str) -> str:
    return _escaped(cut(name, _NAME))


def _escaped(text: str) -> str:
    """Text with its dollars as they are: no formulas are typeset."""
    return text.replace("$", r"\$")
