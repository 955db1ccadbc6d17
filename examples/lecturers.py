"""1,128 lecturers, most with few ratings, fit one regression of 73,421 of them.

    accord datasets fetch insteval
    python examples/lecturers.py [PICTURE.png]

Students of ETH Zurich rate lectures from 1 to 5. A lecturer's own ratings stay with the lecturer, and no
lecturer knows more than one department.
"""

import resource
import sys
import time

import numpy as np
import polars as pl

import accord
from accord.report.style import look

ROUNDS = 600

card = accord.data.card("insteval")
table = accord.data.load("insteval")
# Features of mean 0 and deviation 1, so that first-order methods are not slow.
scaled = table.with_columns((pl.col(f) - pl.col(f).mean()) / pl.col(f).std() for f in card.features)
lecturers = accord.data.read_table(scaled, card.target, card.client, card.features)
problem = accord.problems.least_squares(lecturers, intercept=True)


def regress():
    """Methods on the same regression, each against NumPy's fit of all rows: the exact one's model."""
    rows = np.column_stack([scaled.select(card.features).to_numpy(), np.ones(table.height)])
    pooled = np.linalg.lstsq(rows, table[card.target].to_numpy(), rcond=None)[0]
    print(f"{lecturers}: {lecturers.sizes.min()} to {lecturers.sizes.max()} ratings each")
    runs = {
        "Newton": accord.run(accord.Newton(), problem, 1),
        "PDMM": accord.run(accord.PDMM(), problem, ROUNDS),
        "PDMM, half absent": accord.run(accord.PDMM(), problem, 2 * ROUNDS, participation=0.5),
    }
    for name, run in runs.items():
        apart = np.linalg.norm(run.x - pooled)
        print(
            f"{name}: NumPy's pooled fit to {apart:.0e} after {run.history['round'][-1]} rounds, ",
            end="",
        )
        print(f"{run.seconds:.2f} s and {run.compile_seconds:.1f} s of compiling")
    return runs, pooled


def remainders(x):
    """(ratings, mean rating beyond what the joint model expects) of every lecturer, from own rows."""
    left = [(y - X @ x[:-1] - x[-1]).mean() for X, y in lecturers]
    return lecturers.sizes, np.array(left)


def variance(x):
    """The mean square of what a model leaves of the ratings: least squares is half of it."""
    return 2 * float(problem.evaluate(x)[0])


def picture(runs, x, path):
    """The lecturers by number of ratings, beside the methods' curves."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
    ratings, beyond = remainders(x)
    # The standard error of a mean of so many ratings, were lecturers all alike.
    axis = np.geomspace(ratings.min(), ratings.max(), 200)
    band = 2 * np.sqrt(variance(x) / axis)
    left.fill_between(axis, -band, band, color="#dddddd", label="two standard errors of chance")
    left.semilogx(ratings, beyond, "o", color=look(0)[0], alpha=0.5, markersize=4)
    left.set_xlabel("ratings of a lecturer", fontsize=11)
    left.set_title("mean rating beyond what the joint model expects", fontsize=12)
    left.legend(frameon=False, fontsize=11, loc="lower right")
    for k, (name, run) in enumerate(runs.items()):
        curve = np.maximum(run.history["distance"], 1e-16) / run.start["distance"]
        style = {"marker": "o", "linestyle": ""} if len(curve) == 1 else {"linewidth": 2}
        right.semilogy(run.history["round"], curve, color=look(k)[0], label=name, **style)
    right.set_xlabel("rounds", fontsize=11)
    right.set_title("relative distance to the regression of all rows", fontsize=12)
    right.legend(frameon=False, fontsize=11)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    began = time.perf_counter()
    runs, pooled = regress()
    ratings, beyond = remainders(runs["Newton"].x)
    told = np.average(beyond**2, weights=ratings) / variance(pooled)
    chance = len(ratings) / ratings.sum()
    print(
        f"which lecturer it is says {told:.1%} of what is left of the variance, {chance:.1%} by chance"
    )
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kB on Linux
    print(f"{time.perf_counter() - began:.0f} s, at most {memory:.0f} MB of memory")
    if len(sys.argv) > 1:
        picture(runs, runs["Newton"].x, sys.argv[1])
        print(f"picture   {sys.argv[1]}")
