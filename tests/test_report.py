"""Comparisons: their numbers against the runs' own histories, tables, pictures and the page."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from io import StringIO

import numpy as np
import polars
import pytest
from rich.console import Console
from sklearn.metrics import accuracy_score, r2_score

import accord
from accord import sources
from accord.report import compare
from accord.report.comparison import Curve
from accord.report.labels import labels, spelled
from accord.report.scores import kind_of_score, score
from accord.report.style import COLOURS, power, reach, short

ROUNDS = 60


def _rows(seed=0, clients=4, features=3, kind="softmax"):
    rng = np.random.default_rng(seed)
    pairs = []
    for i in range(clients):
        X = rng.standard_normal((24 + 3 * i, features))
        eta = X @ rng.standard_normal((features, 3))
        labels = {"softmax": eta.argmax(1), "logistic": (eta[:, 0] > 0).astype(int)}
        pairs.append((X, labels.get(kind, eta[:, 0] + 0.1 * rng.standard_normal(len(X)))))
    return pairs


def _halves(kind="softmax"):
    """(train, test) clients with names."""
    names = ["north", "east", "south", "west"]
    pairs = _rows(kind=kind)
    train = accord.Clients.from_arrays([(X[::2], y[::2]) for X, y in pairs], names)
    return train, accord.Clients.from_arrays([(X[1::2], y[1::2]) for X, y in pairs], names)


METHODS = [
    accord.SCAFFOLD(), accord.FedAvg(), accord.PDMM(), accord.FedSplit(), accord.Scaffnew(),
    accord.FedPD(), accord.FedPD(skip_probability=0.3), accord.InexactFedSplit(start="dual"),
]  # fmt: skip


@pytest.fixture(scope="module")
def comparison():
    train, test = _halves()
    problem = accord.problems.softmax(train, l2=0.05, intercept=False)
    return compare(METHODS, problem, ROUNDS, seed=3, test=test)


@pytest.fixture(scope="module")
def partial():
    """Half of the clients a round, which Scaffnew refuses; a hostile name; no held-out rows."""
    train, _ = _halves()
    methods = {"<b>avg</b>[1]": accord.FedAvg(), "Scaffnew": accord.Scaffnew()}
    return compare(methods, accord.problems.softmax(train, l2=0.05), 20, participation=0.5, every=4)


def test_labels_are_the_constructors():
    given = [
        accord.FedAvg(local_steps=4),
        accord.FedPD(),
        accord.FedPD(skip_probability=0.3),
        accord.FedPD(oracle=accord.oracles.Linearised(local_steps=5)),
        accord.InexactFedSplit(start="dual"),
        accord.InexactFedSplit(penalty=np.float64(0.25)),
        accord.GPDMM(),
        accord.GPDMM(),
    ]
    assert labels(given) == [
        "FedAvg",
        "FedPD",
        "FedPD(skip_probability=0.3)",
        "FedPD(oracle=Linearised(local_steps=5))",
        'InexactFedSplit(start="dual")',
        "InexactFedSplit(penalty=0.25)",
        "GPDMM",
        "GPDMM #2",
    ]
    assert spelled(accord.LinearDecay(iterations=9)) == "LinearDecay(iterations=9)"


def test_numbers_as_text():
    assert [power(t) for t in (1e-2, 1e-8, 2.5e-4)] == ["1e-2", "1e-8", "2.5e-4"]
    values = [None, float("nan"), 300, 0.5731, 12.345, 1234.56, 1e7, 2e-5]
    told = ["-", "-", "300", "0.573", "12.3", "1235", "1.0e+07", "2.0e-05"]
    assert [short(v) for v in values] == told


def test_the_table_tells_what_the_histories_hold(comparison):
    reached = 0
    for row in comparison.table():
        run = comparison.runs[row["method"]]
        history, relative = run.history, run.history["gap"] / run.start["gap"]
        for target in comparison.targets:
            at = next((k for k, value in enumerate(relative) if value <= target), None)
            keys = ("rounds", "gradients", "uplink_megabytes", "downlink_megabytes")
            told = [row[f"{key}_to_{power(target)}"] for key in keys]
            if at is None:
                assert told == [None] * 4
                continue
            reached += 1
            assert told == [
                history["round"][at],
                history["gradients"][at],
                history["uplink_bytes"][at] / 1e6,
                history["downlink_bytes"][at] / 1e6,
            ]
        assert row["distance"] == history["distance"][-1]
        assert row["rounds"] == ROUNDS and row["status"] == "budget_spent"
    assert 12 < reached < 24
    table = {row["method"]: row for row in comparison.table()}
    assert table["FedAvg"]["rounds_to_1e-8"] is None and table["PDMM"]["rounds_to_1e-8"] > 1
    up = {name: table[name]["uplink_megabytes_to_1e-2"] for name in ("SCAFFOLD", "PDMM")}
    each = 4 * 9 * 8 / 1e6
    assert up["SCAFFOLD"] == pytest.approx(2 * each * table["SCAFFOLD"]["rounds_to_1e-2"])
    assert up["PDMM"] == pytest.approx(each * table["PDMM"]["rounds_to_1e-2"])


def test_each_run_is_the_one_of_accord_run(comparison):
    alone = accord.run(accord.FedPD(skip_probability=0.3), comparison.problem, ROUNDS, seed=3)
    run = comparison.runs["FedPD(skip_probability=0.3)"]
    np.testing.assert_array_equal(run.x, alone.x)
    np.testing.assert_array_equal(run.history["gap"], alone.history["gap"])


def test_methods_with_one_trajectory_are_said_to_be_one(comparison):
    assert comparison.twins() == [["PDMM", "FedSplit"]]


def test_held_out_accuracy(comparison):
    for row in comparison.table():
        x = comparison.runs[row["method"]].x
        pairs = [((X @ x).argmax(1), y) for X, y in comparison.test]
        each = [accuracy_score(y, guess) for guess, y in pairs]
        overall = sum(s * len(y) for s, (_, y) in zip(each, pairs, strict=True))
        assert row["accuracy"] == pytest.approx(overall / comparison.test.rows)
        assert row["lowest_accuracy"] == pytest.approx(min(each))
        assert row["lowest_client"] == comparison.test.names[int(np.argmin(each))]
    X, y = comparison.test[1]
    guess = (X @ comparison.problem.reference().x).argmax(1)
    assert comparison.optimum_score.clients[1] == accuracy_score(y, guess)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("model", ["least_squares", "huber", "poisson", "logistic"])
def test_held_out_scores_of_the_other_models(model, intercept):
    train, test = _halves("logistic" if model in ("poisson", "logistic") else "numbers")
    problem = getattr(accord.problems, model)(train, l2=0.1, intercept=intercept)
    x = np.random.default_rng(1).standard_normal(problem.initial().shape)
    eta = [X @ x[:3] + (x[3] if intercept else 0) for X, _ in test]
    guesses = [{"poisson": np.exp(e), "logistic": e > 0}.get(model, e) for e in eta]
    judge = accuracy_score if model == "logistic" else r2_score
    found = score(problem, x, test)
    pooled = np.concatenate([y for _, y in test])
    assert found.overall == pytest.approx(judge(pooled, np.concatenate(guesses)))
    each = [judge(y, guess) for guess, (_, y) in zip(guesses, test, strict=True)]
    np.testing.assert_allclose(found.clients, each, rtol=1e-12)
    assert kind_of_score(problem) == ("accuracy" if model == "logistic" else "R2")
    assert found.lowest == np.argmin(each)
    assert score(problem, np.full_like(x, np.nan), test) is None


def test_clients_without_held_out_rows_have_no_score():
    train, _ = _halves("numbers")
    pairs = [(X, y) for X, y in train]
    pairs[0] = (pairs[0][0][:0], pairs[0][1][:0])
    pairs[1] = (pairs[1][0], np.ones_like(pairs[1][1]))
    test = accord.Clients.from_arrays(pairs, train.names)
    found = compare([accord.PDMM()], accord.problems.least_squares(train, l2=0.1), 5, test=test)
    assert np.isnan(found.scores["PDMM"].clients).tolist() == [True, True, False, False]
    assert found.table()[0]["lowest_client"] in ("south", "west")
    assert '<td class="number">-</td>' in _page(found)
    single = accord.Clients.from_arrays([(X[:1], y[:1]) for X, y in train], train.names)
    alone = compare([accord.PDMM()], found.problem, 5, test=single)
    assert alone.table()[0]["R2"] is not None
    assert alone.table()[0]["lowest_R2"] is None and alone.table()[0]["lowest_client"] is None
    assert _page(alone) and _printed(alone, 80)


def test_a_refused_method_is_a_row_with_its_sentence(partial):
    averaging, refused = partial.table()
    assert averaging["status"] == "budget_spent" and averaging["rounds"] == 20
    assert refused["status"] == "refused" and "every client in every round" in refused["sentence"]
    assert {v for k, v in refused.items() if k not in ("method", "status", "sentence")} == {None}
    assert partial.refused.keys() == {"Scaffnew"} and "lowest_client" not in refused
    assert partial.runs["<b>avg</b>[1]"].history["round"].tolist() == [4, 8, 12, 16, 20]


def test_a_diverged_method_is_told_as_such(tmp_path):
    train, test = _halves("numbers")
    problem = accord.problems.least_squares(train, l2=0.1)
    with pytest.warns(UserWarning, match="stable bound"):
        found = compare([accord.FedAvg(step_size=50.0), accord.PDMM()], problem, 40, test=test)
    row = found.table()[0]
    assert row["status"] in ("diverged", "not_finite") and row["rounds_to_1e-2"] is None
    assert found.table()[1]["rounds_to_1e-2"] is not None
    assert "lower it" in _printed(found, 80)
    assert row["sentence"] in _page(found)
    assert len(found.plots(tmp_path)) == 4


def test_without_an_optimum_the_gradient_norm_takes_its_place():
    train, test = _halves("logistic")
    problem = accord.problems.penalised_logistic(train, penalty=0.1)
    found = compare([accord.AGPDMM(), accord.PDMM()], problem, 30, test=test)
    assert found.measure == "gradient_norm" and found.optimum_score is None
    row, run = found.table()[0], found.runs["AGPDMM"]
    relative = run.history["gradient_norm"] / run.start["gradient_norm"]
    assert row["distance"] is None
    assert row["rounds_to_1e-2"] == run.history["round"][np.argmax(relative <= 1e-2)]
    assert "relative gradient norm" in _printed(found, 100)
    assert "not known" in _page(found)


def test_minibatches_and_a_stop():
    train, _ = _halves()
    problem = accord.problems.softmax(train, l2=0.05)
    seen = []
    found = compare(
        {"a": accord.PDMM(), "b": accord.FedAvg(batch_size=4, local_steps=2)}, problem, 50,
        stop=accord.Stop(gradient_norm=1e-3), targets=(1e-3,), engine="star",
        progress=lambda name, row: seen.append((name, row.get("round"))),
    )  # fmt: skip
    assert found.table()[0]["status"] == "converged"
    assert list(found.table()[0])[2:4] == ["rounds_to_1e-3", "distance"]
    assert seen[0] == ("a", None) and ("b", None) in seen and seen[-1] == ("b", 50)


def _refusal(*args, **options):
    with pytest.raises((ValueError, TypeError)) as caught:
        compare(*args, **options)
    return str(caught.value)


def test_wrong_arguments_are_refused_before_any_run():
    train, test = _halves()
    problem = accord.problems.softmax(train, l2=0.05)
    one = [accord.GPDMM()]
    assert "rounds" in _refusal(one, problem, 0)
    told = _refusal([accord.GPDMM(), accord.FedAvg()], problem, 5, participation=2)
    assert told.startswith("participation: got 2")
    assert "Scaffnew" in _refusal([accord.Scaffnew()], problem, 5, participation=0.5)
    assert "give an instance: GPDMM()" in _refusal([accord.GPDMM], problem)
    assert "list is empty" in _refusal([], problem)
    assert "list of algorithms" in _refusal("GPDMM", problem)
    assert "expected 1 names" in _refusal(one, problem, names=["a", "b"])
    assert "leave names out" in _refusal({"a": one[0]}, problem, names=["a"])
    assert "targets" in _refusal(one, problem, targets=[1.5])
    assert "expected accord.Clients" in _refusal(one, problem, test=_rows())
    unnamed = accord.Clients.from_arrays(_rows())
    assert "same ones in the same order" in _refusal(one, problem, test=unnamed)
    wide = accord.Clients.from_arrays(_rows(features=5), test.names)
    assert "5" in _refusal(one, problem, test=wide)
    custom = accord.problems.custom(lambda x, a, y: (a @ x - y) ** 2, np.zeros(3), train)
    assert "how it predicts" in _refusal(one, custom, test=test)
    assert "problem" in _refusal(one, "digits", 5)


def test_dataframe_and_csv(comparison, partial, tmp_path):
    frame = comparison.dataframe()
    assert frame["method"].to_list() == labels(METHODS)
    assert frame["rounds_to_1e-4"].to_list() == [r["rounds_to_1e-4"] for r in comparison.table()]
    for found in (comparison, partial):
        path = found.write_csv(tmp_path / "table.csv")
        back = polars.read_csv(path)
        assert back.columns == found.dataframe().columns and back.height == len(found.entries)
        assert back["distance"].to_list() == found.dataframe()["distance"].to_list()


def _printed(found, width: int) -> str:
    console = Console(file=StringIO(), width=width)
    found.print(console)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120, 250])
def test_the_printed_table_fits_and_holds_all(comparison, width):
    text = _printed(comparison, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    words = text.split()
    for row in comparison.table():
        for value in row["method"].split("(")[0], str(row["rounds_to_1e-2"] or "-"), row["status"]:
            assert value in words
    assert words.count("budget_spent") == len(METHODS)
    assert text.count("1e-8") == 5  # four costs and the note
    assert "PDMM = FedSplit" in text
    assert text.count("\nmethod") == {80: 3, 120: 2, 250: 1}[width]


def test_names_are_printed_as_they_are(partial):
    text = _printed(partial, 100)
    assert "<b>avg</b>[1]" in text and "Scaffnew: refused: participation" in " ".join(text.split())


def test_pictures(comparison, tmp_path):
    from PIL import Image

    paths = comparison.plots(tmp_path / "new" / "folder")
    axes = ["rounds", "megabytes", "gradients", "seconds"]
    assert [p.name for p in paths] == [f"{axis}.png" for axis in axes]
    for path in paths:
        with Image.open(path) as image:
            assert image.size == (1350, 780)
            seen = {colour for count, colour in image.convert("RGB").getcolors(2**20) if count > 90}
        wanted = {tuple(bytes.fromhex(c[1:])) for c in COLOURS[: len(METHODS)]}
        assert len(wanted & seen) >= 6  # twins hide one another but for their marks
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == sorted(
        p.name for p in paths
    )


def _page(found) -> str:
    from accord.report.page import render

    return render(found)


class _Reader(HTMLParser):
    """Collects what a browser would load, the embedded data, the headings and the text."""

    def __init__(self, text: str):
        super().__init__()
        self.loads, self.tags, self.text, self.data, self._in = [], [], [], "", None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.loads += [v for k, v in attrs if k in ("src", "href", "srcset", "data", "action")]
        self._in = found.get("id") or tag if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self._in = None

    def handle_data(self, text):
        if self._in == "data":
            self.data += text
        elif self._in is None:
            self.text.append(text)
        elif self._in == "style":
            assert "url(" not in text and "@import" not in text


def test_the_page_is_whole_and_loads_nothing(comparison, tmp_path):
    path = comparison.report(tmp_path / "report.html")
    page = _Reader(path.read_text(encoding="utf-8"))
    assert page.loads == []
    text = " ".join(" ".join(page.text).split())
    assert "http" not in text and "{{" not in text
    for name in labels(METHODS):
        assert name.replace("(", " (", 1) in text
    for run in comparison.runs.values():
        assert run.status.sentence in text
    constants = accord.theory.constants(comparison.problem)
    for fact in (f"{constants.smoothness:.4g}", f"{constants.condition:.4g}", "seed 3"):
        assert fact in text
    assert spelled(comparison.runs["PDMM"].algorithm.penalty) in text
    assert f"accord {accord.__version__}" in text and "north" in text
    assert sources.SOURCES["zhang2021fedpd"].title in text


def test_what_is_drawn_ends_where_rounding_begins(comparison):
    start = comparison.runs["PDMM"].start
    best = comparison.problem.reference().objective
    assert comparison.floor == pytest.approx(max(1e-16, 2.22e-16 * best / start["gap"]), rel=1e-2)


def test_the_page_draws_the_histories(comparison):
    data = json.loads(_Reader(_page(comparison)).data)
    charts = {chart["id"]: chart for chart in data["charts"]}
    assert list(charts) == ["rounds", "megabytes", "gradients", "seconds", "clients"]
    for k, (name, run) in enumerate(comparison.runs.items()):
        trace = charts["gradients"]["data"][k]
        assert trace["name"] == name and trace["x"][0] == 0 and trace["y"][0] == 1
        relative = np.maximum(run.history["gap"] / run.start["gap"], comparison.floor)
        np.testing.assert_allclose(trace["y"][1:], relative, rtol=1e-5)
        np.testing.assert_allclose(trace["x"][1:], run.history["gradients"], rtol=1e-5)
        assert any(trace["marker"]["size"])
        megabytes = charts["megabytes"]["data"][k]["x"][-1]
        spent = run.history["uplink_bytes"][-1] + run.history["downlink_bytes"][-1]
        assert megabytes == pytest.approx(spent / 1e6, rel=1e-5)
    boxes = charts["clients"]["data"]
    assert len(boxes) == len(METHODS) + 1 and boxes[0]["name"] == "the optimum x*"
    np.testing.assert_allclose(boxes[1]["x"], comparison.scores["SCAFFOLD"].clients, rtol=1e-5)
    looks = {(item["colour"], item["dash"]) for item in data["legend"]}
    assert len(looks) == len(METHODS)


def test_the_page_of_refusals_and_hostile_names(partial):
    text = _page(partial)
    page = _Reader(text)
    assert "b" not in page.tags and page.loads == []
    assert "<b>avg</b>[1]" in "".join(page.text)
    assert partial.refused["Scaffnew"] in "".join(page.text)
    assert [c["id"] for c in json.loads(page.data)["charts"]][-1] == "seconds"
    assert "Held-out" not in text


def test_long_runs_are_thinned_on_the_page():
    train, _ = _halves("numbers")
    found = compare([accord.PDMM()], accord.problems.least_squares(train, l2=0.1), 2000)
    trace = json.loads(_Reader(_page(found)).data)["charts"][0]["data"][0]
    assert len(trace["x"]) == 600 and trace["x"][-1] == 2000


def test_a_file_is_whole_or_not_there(comparison, tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        comparison.report(tmp_path / "absent" / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_every_method_has_a_source_that_can_be_cited():
    for cls in accord.REGISTRY.values():
        entry = sources.bibtex(cls.source)
        assert entry.startswith("@") and f"{{{cls.source}," in entry
        assert entry.count("{") == entry.count("}") and entry.isascii()
        year = sources.SOURCES[cls.source].year
        assert f"year = {{{year}}}" in entry and str(year) in cls.source
    assert 'Ag{\\"u}era y Arcas' in sources.bibtex("mcmahan2017communication")
    assert "Agüera y Arcas" in sources.SOURCES["mcmahan2017communication"].reference()
    with pytest.raises(ValueError, match="did you mean zhang2021fedpd"):
        sources.bibtex("zhang2021fedpdd")


def test_nothing_heavy_is_imported_before_it_is_used():
    code = (
        "import sys, accord.report, accord.sources; "
        "print([m for m in ('matplotlib', 'plotly', 'polars', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_axes_end_where_curves_are_down_and_say_how_far_runs_go_on():
    count = np.arange(101.0)
    axes = {"rounds": count, "messages": 10 * count}
    down = Curve("down", 0, np.maximum(10.0**-count, 1e-16), axes)
    still = Curve("still", 1, np.ones(101), axes)
    falling = Curve("falling", 2, 0.1**count, axes)
    assert reach([down, still], "messages", 1e-16) == (1.05 * 160, " (runs go on to 1000)")
    assert reach([down, still], "rounds", 1e-16) == (100, "")
    # A curve that still falls at its end is shown to there.
    assert reach([down, still, falling], "messages", 1e-300) == (1.05 * 1000, "")
