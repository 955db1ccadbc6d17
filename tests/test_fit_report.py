"""Fits and validations on terminal, page and pictures: what is told is the fit's, and names are text."""

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from io import StringIO

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import accord
from accord.report.fit_charts import effects, fitting_range
from accord.report.fits import certified, render
from accord.report.style import at_most, chance, cut, measured, short, size

EVIL = "<script>alert(1)</script>"
VOID = {"meta", "br", "wbr", "img", "input"}


def _table(rows=90, clients=("north", "east", "west"), seed=0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    owner = np.arange(rows) % len(clients)
    return pl.DataFrame(
        {
            "site": np.array(clients)[owner],
            "small": 0.01 * rng.standard_normal(rows),
            "large": 1000 * rng.standard_normal(rows) + 300 * owner,
        }
    )


@pytest.fixture(scope="module")
def hostile():
    """Columns, categories, clients, the target and a note that would be HTML, or rich's markup."""
    table = _table(clients=(EVIL, "[bold]b[/bold]", 'c & "d"\x1b[31m')).rename(
        {"small": f"x {EVIL}", "large": "$a_1$ [red]"}
    )
    rng = np.random.default_rng(1)
    table = table.with_columns(
        pl.Series("kind", rng.choice(["!a", EVIL], 90)),
        pl.lit(1.0).alias(f"constant {EVIL}"),
        pl.Series(f"y {EVIL}", rng.standard_normal(90) + 0.001 * table["$a_1$ [red]"].to_numpy()),
    )
    return accord.fit(table, f"y {EVIL}", "site")


@pytest.fixture(scope="module")
def classes():
    """Softmax without penalties; one of the classes would be HTML."""
    table = _table(120)
    names = np.array(["plain", EVIL, "other"])
    drawn = np.random.default_rng(2).integers(0, 3, 120)
    return accord.fit(
        table.with_columns(pl.Series("class", names[drawn])), "class", "site", compare_local=False
    )


@pytest.fixture(scope="module")
def lasso():
    """A penalty that leaves a coefficient at zero; 50 clients."""
    table = _table(500, [f"client {k}" for k in range(50)])
    y = 100 * table["small"].to_numpy() + np.random.default_rng(3).standard_normal(500)
    return accord.fit(table.with_columns(pl.Series("y", y)), "y", "site", l1=0.2)


@pytest.fixture(scope="module")
def alone():
    """Huber's loss, one client, no model of its own, stopped early by a first-order method."""
    table = _table(60, ["only"])
    y = table["large"].to_numpy() / 500 + np.random.default_rng(4).standard_t(2, 60)
    return accord.fit(
        table.with_columns(pl.Series("y", y)), "y", "site", model="huber", compare_local=False,
        algorithm=accord.GradientDescent(), max_rounds=3,
    )  # fmt: skip


@pytest.fixture(params=["hostile", "classes", "lasso", "alone"])
def found(request):
    return request.getfixturevalue(request.param)


def _printed(told, width: int) -> str:
    console = Console(file=StringIO(), width=width)
    told.print(console)
    return console.file.getvalue()


class _Page(HTMLParser):
    """Text, embedded data, what is loaded, and whether every element that opens is closed in turn."""

    def __init__(self, text: str):
        super().__init__()
        self.words, self.data, self.loads, self.ids, self.open = [], "", [], [], []
        self.scripts = 0
        self.feed(text)
        self.close()
        assert not self.open
        self.text = " ".join(" ".join(self.words).split())
        self.charts = {c["id"]: c for c in json.loads(self.data)["charts"]}

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [v for k, v in attrs if k == "id"]
        self.loads += [v for k, v in attrs if k in ("src", "href", "srcset", "data", "action")]
        self.scripts += tag == "script"
        if tag not in VOID:
            self.open.append((tag, found.get("id")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, text):
        if self.open and self.open[-1] == ("script", "data"):
            self.data += text
        elif not self.open or self.open[-1][0] not in ("script", "style"):
            self.words.append(text)


def _numbers(text: str) -> list[str]:
    return re.findall(r"-?\d[\d.,]*(?:e-?\d+)?", text)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_is_printed_fits_the_terminal(found, width):
    text = _printed(found, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text and "nan" not in text and "None" not in text
    words = text.split()
    for c in found.coefficients:
        assert measured(c.estimate, c.standard_error) in words
    for exchange in found.exchanges:
        assert exchange.part in words and " ".join(size(exchange.up).split()) in text
    assert f"{found.rows:,} rows" in " ".join(words) and found.status.name in text
    assert certified(found).split(".")[0] in " ".join(words)


def test_a_terminal_of_80_columns_holds_the_whole_table(hostile):
    text = _printed(hostile, 80)
    assert text.count("estimate") == 1 and "std. error" in text and "95 % high" in text
    row = next(line for line in text.splitlines() if line.startswith("(intercept)"))
    c = hostile.coefficients[-1]
    told = [measured(v, c.standard_error) for v in (c.estimate, c.standard_error)]
    told += [f"{c.statistic:.2f}", chance(c.p_value)]
    assert row.split()[1:] == told + [measured(v, c.standard_error) for v in (c.low, c.high)]
    assert _printed(hostile, 60).count("(intercept)") == 2


def test_names_are_printed_as_they_are(hostile):
    text = _printed(hostile, 200)
    for name in (EVIL, "[bold]b[/bold]", 'c & "d" [31m', "$a_1$ [red]", f"kind: {EVIL}"):
        assert name in text
    assert f"constant {EVIL}" in " ".join(text.split())


def test_the_largest_clients_are_printed(lasso):
    text = _printed(lasso, 80)
    assert len(re.findall(r"^client \d", text, re.M)) == 20 and "30 more are in the report" in text
    assert "std. error" not in text and "95 %" not in text


def test_only_the_largest_effects_are_printed(monkeypatch, hostile):
    monkeypatch.setattr("accord.report.fits.PRINTED_COEFFICIENTS", 2)
    text = _printed(hostile, 120)
    assert "The 2 largest effects of 4 coefficients" in text
    (term,) = effects_of(hostile, 1)
    rows = re.split(r"\n\s*\n", text)[1].splitlines()[2:]
    assert len(rows) == 2 and rows[0].startswith(term) and rows[1].startswith("(intercept)")


def effects_of(found, count: int) -> list[str]:
    """The terms of the largest effects of one standard deviation."""
    scales = {t.name: t.deviation for t in found.model.schema.terms}
    own = [c for c in found.coefficients if c.term in scales]
    own.sort(key=lambda c: -abs(c.estimate * scales[c.term]))
    return [c.term for c in own[:count]]


def test_the_page_is_whole_and_loads_nothing(found, tmp_path):
    path = found.report(tmp_path / "fit.html")
    assert path.parent.joinpath("fit.html") == path and len(list(tmp_path.iterdir())) == 1
    text = path.read_text(encoding="utf-8")
    page = _Page(text)
    assert page.loads == [] and page.scripts == 3 and "{{" not in page.text
    assert len(page.ids) == len(set(page.ids))
    for chart in page.charts:
        assert chart in page.ids
    for heading in ("Coefficients", "Clients", "Convergence", "What was sent", "Notes", "Papers"):
        assert heading in page.words
    assert f"each round: {found.solution.run.algorithm.reveals}" in page.words
    assert certified(found) in page.text and f"accord {accord.__version__}" in page.text
    assert accord.sources.SOURCES[found.solution.run.algorithm.source].title in page.text
    for c in found.coefficients:
        assert measured(c.estimate, c.standard_error) in page.words
        assert c.term in page.words and c.label in ["", *page.words]
    for site in found.sites:
        assert cut(site.client, 100) in page.words
    for note in found.notes:
        assert note in page.words


def test_hostile_names_are_text(hostile, classes):
    for found in (hostile, classes):
        text = render(found, title=EVIL)
        page = _Page(text)
        assert EVIL not in text and page.scripts == 3 and EVIL in page.text
        # plotly takes <b> and its like in names for markup: they are escaped for it once more.
        assert EVIL not in json.dumps(
            [{k: v for k, v in c.items() if k != "choices"} for c in page.charts.values()]
        )
    assert any(EVIL in note for note in hostile.notes)
    assert any(EVIL in c.label for c in classes.coefficients)


def test_effects_are_coefficients_times_deviations(hostile):
    chart = _Page(render(hostile)).charts["coefficients"]
    table = {t.name: t.deviation for t in hostile.model.schema.terms}
    wanted = [c for c in hostile.coefficients if c.term in table]
    trace = chart["data"][0]
    scaled = [c.estimate * table[c.term] for c in wanted]
    np.testing.assert_allclose(trace["x"], scaled, rtol=1e-5)
    half = [(c.high - c.low) / 2 * table[c.term] for c in wanted]
    np.testing.assert_allclose(trace["error_x"]["array"], half, rtol=1e-5)
    units = chart["choices"][0]["options"]
    assert len(chart["views"]) == len(units) == 2
    np.testing.assert_allclose(
        chart["views"][1]["data"]["x"][0], [c.estimate for c in wanted], rtol=1e-5
    )
    assert (np.diff(np.log10(np.abs(scaled))) < 4).all()


def test_every_class_can_be_chosen(classes):
    chart = _Page(render(classes)).charts["coefficients"]
    labels = list(dict.fromkeys(c.label for c in classes.coefficients))
    assert chart["choices"][0]["options"] == labels and len(labels) == 2
    assert len(chart["views"]) == 4
    for k, label in enumerate(labels):
        wanted = [c.estimate for c in classes.coefficients if c.label == label][:-1]
        np.testing.assert_allclose(chart["views"][2 * k + 1]["data"]["x"][0], wanted, rtol=1e-5)


def test_a_coefficient_at_zero_is_hollow_and_without_interval(lasso):
    assert [c.estimate == 0 for c in lasso.coefficients].count(True) == 1
    page = _Page(render(lasso))
    trace = page.charts["coefficients"]["data"][0]
    assert sorted(trace["marker"]["symbol"]) == ["circle", "circle-open"]
    assert "error_x" not in trace and "1 of 3 coefficients are zero" in page.text
    assert "with penalties standard errors do not apply" in page.text


def test_few_clients_are_lines_and_many_are_points(hostile, lasso, alone):
    few = _Page(render(hostile)).charts["clients"]
    own, joint = few["data"][1:]
    by_rows = sorted(hostile.sites, key=lambda s: s.rows)
    np.testing.assert_allclose(joint["x"], [s.score for s in by_rows], rtol=1e-5)
    np.testing.assert_allclose(own["x"], [s.local_score for s in by_rows], rtol=1e-5)
    losses = few["views"][1]["data"]["x"]
    np.testing.assert_allclose(losses[2], [s.loss for s in by_rows], rtol=1e-5)
    assert len(losses[0]) == 3 * len(by_rows) and losses[0][2] is None
    many = _Page(render(lasso)).charts["clients"]
    by_rows = sorted(lasso.sites, key=lambda s: s.rows)
    cloud = many["views"][1]["data"]
    np.testing.assert_allclose(cloud["y"][0], [s.loss for s in by_rows], rtol=1e-5)
    np.testing.assert_allclose(cloud["x"][0], [s.local_loss for s in by_rows], rtol=1e-5)
    single = _Page(render(alone)).charts["clients"]["data"]
    assert len(single) == 1 and len(single[0]["x"]) == 1


def test_the_curve_is_the_history(hostile, alone):
    for found, words in ((hostile, "after the one round"), (alone, "after 3 rounds")):
        page = _Page(render(found))
        trace = page.charts["convergence"]["data"][0]
        norms = found.solution.run.history["gradient_norm"]
        assert len(trace["x"]) == len(norms) + 1 and trace["x"][0] == 0
        np.testing.assert_allclose(trace["y"][1:], np.maximum(norms, 1e-18), rtol=1e-5)
        assert trace["y"][0] == pytest.approx(found.solution.run.start["gradient_norm"], rel=1e-5)
        assert words in page.text
        assert page.charts["convergence"]["layout"]["yaxis"]["type"] == "log"


def test_the_certificate_is_the_largest_bound_rounded_up(hostile, alone):
    bound = max(c.error_bound for c in hostile.coefficients)
    told = float(re.search(r"within (\S+) of", certified(hostile))[1])
    assert bound <= told <= 2 * bound
    if alone.certificate.distance is None:
        assert f"{alone.certificate.gradient_norm:.1e}" in certified(alone)
    assert "budget_spent" in _Page(render(alone)).text


def test_pictures(found, tmp_path):
    from PIL import Image

    paths = found.pictures(tmp_path / "new" / "folder")
    assert [p.name for p in paths] == ["coefficients.png", "clients.png", "convergence.png"]
    for path in paths:
        with Image.open(path) as image:
            assert image.format == "PNG" and image.width == 1350 and image.height > 200
            colours = {c for n, c in image.convert("RGB").getcolors(2**20) if n > 20}
        assert any(blue > max(red, green) + 60 for red, green, blue in colours)


def test_a_page_needs_neither_plotly_nor_matplotlib(hostile, tmp_path):
    code = (
        "import sys, accord.report.fits, accord.report.page as p; p._plotly();"
        "print([m for m in ('matplotlib', 'plotly', 'polars', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_embedded_script_is_plotlys():
    from plotly.offline import get_plotlyjs

    from accord.report.page import _plotly

    assert _plotly() == get_plotlyjs()


def test_a_validation_is_a_table():
    table = _table(60, [EVIL, "[red]b", "c"])
    rng = np.random.default_rng(6)
    y = table["large"].to_numpy() / 1000 + rng.standard_normal(60)
    found = accord.leave_one_out(table.with_columns(pl.Series("y", y)), "y", "site")
    for width in (60, 80, 120):
        text = _printed(found, width)
        assert max(len(line) for line in text.splitlines()) <= width
        assert "[red]b" in text and cut(EVIL, max(12, width // 4)) in text
        assert f"{found.metric} {found.score:.3f}" in " ".join(text.split())
        for held in found.clients:
            assert short(held.loss) in text.split()
    frame = found.dataframe()
    assert frame.columns == ["client", "rows", "loss", "score", "note"]
    assert frame["loss"].to_list() == [c.loss for c in found.clients]


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (measured(12.73647, 3.31), "12.7"),
        (measured(-0.0123456, 0.00031), "-0.01235"),
        (measured(1234.5, 310), "1234"),
        (measured(2.5e-9, 3e-10), "2.50e-09"),
        (measured(0.77), "0.7700"),
        (measured(0.0), "0"),
        (measured(None), "-"),
        (chance(0.0004), "<0.001"),
        (chance(0.0496), "0.050"),
        (at_most(3.01e-12), "4e-12"),
        (at_most(9.2e-7), "1e-6"),
        (at_most(3e-12), "3e-12"),
        (size(999), "999 B"),
        (size(55040), "55.0 kB"),
        (size(999_900), "1.00 MB"),
        (size(344978816), "345 MB"),
        (cut("a\nb\x1b[0m  c", 20), "a b [0m c"),
        (cut("abcdef", 4), "abc…"),
    ],
)
def test_numbers_as_text(told, text):
    assert told == text


def test_an_axis_is_not_stretched_by_a_few():
    values = np.r_[np.linspace(0, 1, 500), -40.0, 90.0, np.nan]
    (low, high), outside = fitting_range(values)
    assert -1.3 < low < 0 and 1 <= high < 3 and outside == 2
    assert fitting_range(np.full(3, np.nan)) == (None, 0)


def test_many_terms_are_those_of_the_largest_effects(monkeypatch, hostile):
    monkeypatch.setattr("accord.report.fit_charts.TERMS", 1)
    shown = effects(hostile)
    assert shown.terms == effects_of(hostile, 1) and shown.all_terms == 3
    assert "Of 3 columns" in _Page(render(hostile)).text
