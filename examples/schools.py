"""160 schools fit one regression, with slopes that no school could find alone.

    accord datasets fetch hsb82
    python examples/schools.py [PICTURE.png]

Achievement in mathematics, High School and Beyond, 1982. What a school's sector and its pupils' mean
socio-economic status do is in no school's rows: both are constant there. Together they are determined.
"""

import sys

import numpy as np
from sklearn.linear_model import Lasso

import accord
from accord.report.style import look

FEATURES = ["minrty", "sx", "cses", "meanses", "sector"]
LABELS = ["minority", "girl", "own status", "school's status", "Catholic school"]
PATH = np.geomspace(0.02, 2.5, 25)

table = accord.data.load("hsb82")
rows = table.select(FEATURES).cast(float).to_numpy()
y, school = table["mAch"].to_numpy(), table["school"].to_numpy()


def regress():
    """The joint fit against NumPy's of all rows, and what a school alone would know."""
    found = accord.fit(table, "mAch", "school", features=FEATURES, compare_local=False)
    pooled = np.linalg.lstsq(np.column_stack([rows, np.ones(len(y))]), y, rcond=None)[0]
    for c in found.coefficients:
        print(f"{c.term:12} {c.estimate:6.2f}  95 % {c.low:6.2f} to {c.high:6.2f}")
    apart = max(abs(np.array([c.estimate for c in found.coefficients]) - pooled))
    print(f"{found.status}\nNumPy's pooled fit to {apart:.0e}")
    problem = accord.problems.least_squares(clients(rows), intercept=True)
    ranks = np.linalg.matrix_rank(problem.quadratics().hessian)
    print(f"of {len(pooled)} coefficients a school alone determines {ranks.min()} to {ranks.max()}")
    return found


def clients(X):
    """Every school's rows of a matrix, as ``accord.problems`` takes them."""
    names = np.unique(school)
    return accord.Clients.from_arrays(
        [(X[school == s], y[school == s]) for s in names], list(names)
    )


def differ():
    """How much the schools disagree with the joint fit, against what chance would do."""
    description = accord.describe(table, "mAch", "school", features=FEATURES)
    found, names = description.differences, list(description.summaries)
    hardest = ", ".join(f"{names[k]} ({found.towards[k]})" for k in np.argsort(-found.pulls)[:3])
    print(
        f"schools pull {found.spread:.2f} times as hard as if pupils were dealt at random, most of all"
    )
    print(f"{hardest}; the condition number is {found.condition:.0f}")


def lasso():
    """Coefficients for each l1, in columns of deviation 1: {"Accord": (l1, columns), "scikit-learn": ...}.

    The server takes the proximal step of l1 ||w||_1; the schools know nothing of it.
    """
    X = (rows - rows.mean(0)) / rows.std(0)
    paths = {
        "Accord": [accord.FederatedLasso(l1).fit(X, y, groups=school).coef_ for l1 in PATH],
        "scikit-learn": [Lasso(l1, tol=1e-12).fit(X, y).coef_ for l1 in PATH],
    }
    ours, theirs = (np.array(p) for p in paths.values())
    print(
        f"lasso at {len(PATH)} penalties: scikit-learn's coefficients to {abs(ours - theirs).max():.0e}"
    )
    print(f"the same coefficients are exactly zero: {bool(((ours == 0) == (theirs == 0)).all())}")
    return ours, theirs


def picture(found, ours, theirs, path):
    """Schools by status and sector with the joint fit between them, beside the path of the lasso."""
    import polars as pl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
    means = table.group_by("school", maintain_order=True).agg(
        pl.exclude("school").mean(), pl.len().alias("pupils")
    )
    slopes = {c.term: c.estimate for c in found.coefficients}
    status = np.array([-1.2, 0.85])
    for sector, name in ((0, "public"), (1, "Catholic")):
        own = means.filter(pl.col("sector") == sector)
        size = 1.2 * own["pupils"].to_numpy()
        left.scatter(
            own["meanses"], own["mAch"], size, look(sector)[0], alpha=0.65, label=f"{name} schools"
        )
        # At the mean of the other columns over all pupils.
        rest = sum(slopes[c] * table[c].mean() for c in ("minrty", "sx", "cses"))
        line = slopes["(intercept)"] + rest + slopes["meanses"] * status + slopes["sector"] * sector
        left.plot(status, line, color=look(sector)[0], linewidth=2.4)
    left.set_xlabel("mean socio-economic status of a school's pupils", fontsize=11)
    left.set_title("mean achievement in mathematics; lines: the joint fit", fontsize=12)
    left.legend(frameon=False, fontsize=11, loc="upper left")
    for k, name in enumerate(LABELS):
        right.semilogx(PATH, ours[:, k], color=look(k)[0], linewidth=2)
        right.text(PATH[0], ours[0, k] + 0.06, name, color=look(k)[0], fontsize=11)
        right.semilogx(PATH, theirs[:, k], "o", color=look(k)[0], markersize=4)
    right.set_xlabel("l1, the penalty at the server", fontsize=11)
    right.set_title("lasso: Accord (lines), scikit-learn on all rows (dots)", fontsize=12)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    found = regress()
    differ()
    ours, theirs = lasso()
    if len(sys.argv) > 1:
        picture(found, ours, theirs, sys.argv[1])
        print(f"picture   {sys.argv[1]}")
