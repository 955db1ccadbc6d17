"""14 people who write digits fit one classifier, which reads hands that it has never seen.

    python examples/digits_by_writer.py [PICTURE.png]

scikit-learn's handwritten digits by writer: softmax regression with l2 = 1e-2, 640 coefficients. Nothing
needs to be fetched.
"""

import sys

import numpy as np
from sklearn.linear_model import LogisticRegression

import accord
from accord.analysis.local import local_models
from accord.report.style import look, size

L2 = 1e-2
TOLERANCE = 1e-6
METHODS = {"Newton": accord.Newton(), "AGPDMM": accord.AGPDMM(), "PDMM": accord.PDMM()}

train, test = accord.data.digits()
problem = accord.problems.softmax(train, l2=L2)


def joint():
    """Every method until its certificate says ||x - x*|| <= 1e-6; the first held against scikit-learn."""
    stop = accord.Stop(distance=TOLERANCE)
    runs = {
        name: accord.run(method, problem, 1000, stop=stop, reference=False)
        for name, method in METHODS.items()
    }
    X, y = (np.concatenate(parts) for parts in zip(*train, strict=True))
    C = 1 / (len(y) * L2)
    pooled = LogisticRegression(C=C, fit_intercept=False, solver="newton-cg", tol=1e-10).fit(X, y)
    for name, run in runs.items():
        rounds, up = int(run.history["round"][-1]), int(run.history["uplink_bytes"][-1])
        apart = np.linalg.norm(run.x - pooled.coef_.T)
        print(
            f"{name:6}: {rounds:3} rounds, {size(up)} up; certified to {run.certificate.distance:.0e}, ",
            end="",
        )
        print(f"scikit-learn's pooled fit to {apart:.0e}")
    return runs


def accuracy(x):
    """The share of each writer's held-out digits that a model reads right."""
    return np.array([(np.argmax(X @ x, 1) == y).mean() for X, y in test])


def read(x):
    """{who fitted the model: accuracy on each writer's held-out digits}."""
    alone = np.array([accuracy(own) for own in local_models(problem)])
    everyone = np.arange(len(test))
    unseen = np.empty(len(test))
    for half in (0, 1):
        others = problem.reweighted(np.where(everyone % 2 == half, 0.0, problem.weights))
        run = accord.run(
            accord.PDMM(), others, 1000, stop=accord.Stop(distance=1e-3), reference=False
        )
        unseen[everyone % 2 == half] = accuracy(run.x)[everyone % 2 == half]
    return {
        "the writer alone": np.diag(alone),
        "all 14 together": accuracy(x),
        "7 others together": unseen,
        "1 other alone, on average": (alone.sum(0) - np.diag(alone)) / (len(test) - 1),
    }


def picture(runs, scores, path):
    """Each writer's held-out accuracy, beside the certificate against what was sent."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2)
    places = np.arange(len(test))
    left.hlines(places[:-1] + 0.5, 0.6, 1, color="#eeeeee")
    looks = [("s", look(1)[0]), ("o", look(0)[0]), ("D", look(2)[0]), ("X", "#888888")]
    for k, ((name, shares), (mark, colour)) in enumerate(zip(scores.items(), looks, strict=True)):
        left.plot(shares, places + 0.15 * (k - 1.5), mark, color=colour, ms=7, label=name)
    left.set_yticks(places, train.names, fontsize=10)
    left.invert_yaxis()
    left.set_xlim(0.32, 1.02)
    left.set_title("share of held-out digits read right", fontsize=12)
    left.legend(frameon=False, fontsize=11, loc="center left", title="fitted by")
    for k, (name, run) in enumerate(runs.items()):
        megabytes = (run.history["uplink_bytes"] + run.history["downlink_bytes"]) / 1e6
        bound = run.history["gradient_norm"] / L2  # F is strongly convex with mu = l2
        label = f"{name}, {run.history['round'][-1]} rounds"
        right.loglog(megabytes, bound, color=look(k)[0], linewidth=2, label=label)
        right.plot(megabytes[-1], bound[-1], "o", color=look(k)[0])
    right.set_xlabel("megabytes up and down, all writers", fontsize=11)
    right.set_title("certified bound on the distance to the optimum", fontsize=12)
    right.legend(frameon=False, fontsize=11, loc="lower left")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    runs = joint()
    scores = read(runs["Newton"].x)
    print(f"{test.rows} digits held out, the share read right by a model that was fitted by")
    for name, shares in scores.items():
        overall = shares @ test.sizes / test.rows
        print(
            f"    {name:25} {overall:.3f}, from {shares.min():.2f} to {shares.max():.2f} by writer"
        )
    if len(sys.argv) > 1:
        picture(runs, scores, sys.argv[1])
        print(f"picture   {sys.argv[1]}")
