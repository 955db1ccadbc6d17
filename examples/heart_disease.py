"""Four hospitals fit one model of heart disease, and each keeps the rows of its patients.

    accord datasets fetch heart
    python examples/heart_disease.py [PICTURE.png]

Cells are missing, and which ones depends on the hospital. Two hospitals wrote 0 where they did not
measure cholesterol: taken at its word, the joint model says that cholesterol protects.
"""

import sys
import tempfile

import numpy as np
import polars as pl
from sklearn.linear_model import LogisticRegression

import accord
from accord.report.style import look

FEATURES = ["age", "sex", "cp", "trestbps", "chol", "thalch", "exang", "oldpeak"]
HOW = {"features": FEATURES, "missing": "mean"}  # the mean of all hospitals' patients, or the mode
# What a coefficient is told for: ten years, ten mm Hg and so on, so that all fit on one axis.
UNITS = {"age": 10, "trestbps": 10, "chol": 50, "thalch": 10}
LABELS = {
    "age": "10 years more",
    "sex": "a man",
    "trestbps": "blood pressure, 10 mm Hg",
    "chol": "cholesterol, 50 mg/dl",
    "thalch": "highest heart rate, 10 more",
    "exang": "angina by exercise",
    "oldpeak": "ST depression, 1 more",
}

recorded = accord.data.load("heart")
table = recorded.with_columns(pl.col("chol").replace(0, None))


def look_at_cholesterol():
    """What the hospitals say of the column before and after, and what the joint model makes of it."""
    for name, summary in accord.describe(recorded, client="dataset", **HOW).summaries.items():
        column = summary.columns["chol"]
        told = f"{column.low:3.0f} to {column.high:3.0f}, mean {column.mean:3.0f}"
        print(f"{name:13}: cholesterol {told}; {column.missing} of {summary.rows} missing")
    for words, rows in (("0 as recorded", recorded), ("0 as missing", table)):
        found = accord.fit(rows, "disease", "dataset", **HOW, compare_local=False)
        chol = next(c for c in found.coefficients if c.term == "chol")
        print(
            f"{words}: {50 * chol.estimate:+.2f} log odds for 50 mg/dl more, z = {chol.statistic:+.1f}"
        )
    return found


def pooled():
    """Coefficients and standard errors as a statistician with all rows would find them."""
    filled = table.select(FEATURES).with_columns(
        pl.exclude("cp").fill_null(pl.exclude("cp").mean())
    )
    X = filled.to_dummies("cp").drop("cp_asymptomatic").with_columns(one=1.0).to_numpy()
    y = table["disease"].to_numpy()
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12, fit_intercept=False)
    p = model.fit(X, y).predict_proba(X)[:, 1]
    return model.coef_[0], np.sqrt(np.diag(np.linalg.inv((X.T * p * (1 - p)) @ X)))


def alone():
    """Each hospital's own model: {name: fit, or the sentence that says why there is none}."""
    models = {}
    for name, rows in table.partition_by("dataset", as_dict=True).items():
        try:
            models[name[0]] = accord.fit(rows, "disease", "dataset", **HOW, compare_local=False)
        except ValueError as error:
            models[name[0]] = str(error)
    return models


def validated():
    """{hospital: (AUC of the three others' model there, AUC of its own on patients left out)}.

    Both with l2 = 0.01, without which Switzerland alone has no model; its own is fitted to four fifths of
    its rows and tried on the fifth, five times.
    """
    others = accord.leave_one_out(table, "disease", "dataset", **HOW, l2=0.01)
    scores = {}
    for held_out in others.clients:
        rows = table.filter(pl.col("dataset") == held_out.client).with_row_index("row")
        folds = rows.with_columns(pl.col("row") % 5)
        own = accord.leave_one_out(folds, "disease", "row", **HOW, l2=0.01)
        scores[held_out.client] = held_out.score, own.score
        print(f"{held_out.client:13}: AUC {held_out.score:.3f} without a row of its own, ", end="")
        print(f"{own.score:.3f} from its own rows alone ({held_out.rows} patients)")
    return scores


def picture(joint, models, scores, path):
    """Coefficients with 95 % intervals, joint against local, beside the honest scores."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 6.2), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.7, 1])
    terms = [c.term for c in joint.coefficients[:-1]]
    fits = {"all four together": joint} | {
        k: m for k, m in models.items() if not isinstance(m, str)
    }
    for k, (name, found) in enumerate(fits.items()):
        colour, mark, width = (look(k - 1)[0], "o", 1.4) if k else ("black", "D", 2.6)
        told = [(UNITS.get(c.term, 1), c) for c in found.coefficients if c.term in terms]
        places = [terms.index(c.term) + 0.19 * (k - 1.5) for _, c in told]
        low, high = [u * c.low for u, c in told], [u * c.high for u, c in told]
        left.hlines(places, low, high, color=colour, linewidth=width)
        left.plot([u * c.estimate for u, c in told], places, mark, color=colour, label=name)
    left.set_yticks(range(len(terms)), [LABELS.get(t, t) for t in terms], fontsize=11)
    left.invert_yaxis()
    left.set_title("log odds of disease, with 95 % intervals", fontsize=12)
    place = {"loc": "upper center", "bbox_to_anchor": (0.4, -0.05), "ncols": 4}
    left.legend(frameon=False, fontsize=11, title="Switzerland alone has no finite fit", **place)
    others, own = np.array(list(scores.values())).T
    rows = range(len(scores))
    right.hlines(rows, own, others, color="#bbbbbb", zorder=1)
    right.plot(
        own, rows, "s", color="black", mfc="white", ms=9, label="fitted to its own rows, in folds"
    )
    right.plot(others, rows, "D", color="black", ms=8, label="fitted to the three others")
    right.set_yticks(rows, scores, fontsize=11)
    right.set_ylim(3.5, -1.1)
    right.set_title("AUC on patients not seen", fontsize=12)
    right.legend(frameon=False, fontsize=11, loc="upper left")
    for axes, value in ((left, 0), (right, 0.5)):
        axes.axvline(value, color="#888888", linewidth=0.8, zorder=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


if __name__ == "__main__":
    joint = look_at_cholesterol()
    joint.print()
    estimates, errors = pooled()
    order = [c.term for c in joint.coefficients]
    apart = max(abs(np.array([c.estimate for c in joint.coefficients]) - estimates))
    wide = max(abs(np.array([c.standard_error for c in joint.coefficients]) - errors))
    print(f"scikit-learn's pooled coefficients to {apart:.0e}, standard errors to {wide:.0e}")
    models = alone()
    print(*(f"{k} alone: {m}" for k, m in models.items()), sep="\n")
    scores = validated()
    with tempfile.TemporaryDirectory() as folder:
        joint.model.save(f"{folder}/model.json")
        told = accord.Model.load(f"{folder}/model.json").predict(table)
    same = (told["probability of 1"] - joint.model.predict(table)["probability of 1"]).abs().max()
    print(
        f"from the model file: {told['probability of 1'][0]:.3f} for the first patient, {same} apart"
    )
    if len(sys.argv) > 1:
        picture(joint, models, scores, sys.argv[1])
        print(f"picture   {sys.argv[1]}")
