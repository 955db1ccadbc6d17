"""The joint fit of tables that stay at their sites is that of accord.fit on their union."""

import dataclasses
import json
import re

import numpy as np
import polars as pl
import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

import accord
from accord.analysis.summaries import Request
from accord.data import fetching, read_sites
from accord.flower.client import client_app
from accord.flower.server import deliver
from accord.flower.session import Options, Session
from accord.flower.settings import table_fit_of
from accord.flower.tasks import TableFit
from flower_sites import TERMS, Fault, about, ending, logged
from grid import LocalGrid


def table(rows: int = 90, seed: int = 1) -> pl.DataFrame:
    """Three sites that differ in everything; a target for every model."""
    rng = np.random.default_rng(seed)
    site = np.repeat([0, 1, 2], [rows // 2, rows // 3, rows - rows // 2 - rows // 3])
    age = rng.normal(50 + 8 * site, 9)
    dose = rng.gamma(2 + site, 1.5)
    ward = np.array(["east", "north", "west"])[(rng.integers(0, 3, rows) + site) % 3]
    eta = 0.04 * (age - 50) - 0.3 * dose + 0.5 * (ward == "west")
    return pl.DataFrame({
        "site": np.array(["a", "b", "c"])[site],
        "age": age, "dose": dose, "ward": ward,
        "length": eta + rng.standard_t(3, rows),
        "count": rng.poisson(np.exp(0.5 * eta + 1)),
        "kind": np.array(["x", "y", "z"])[(eta + rng.gumbel(size=(3, rows)) * 1.5).argmax(0)],
        "ill": rng.random(rows) < 1 / (1 + np.exp(-eta)),
    })  # fmt: skip


def grid_of(folder, frames: dict[str, pl.DataFrame]) -> LocalGrid:
    """A grid whose nodes hold one table each."""
    folder.mkdir(parents=True, exist_ok=True)
    configs = {}
    for name, frame in frames.items():
        frame.write_parquet(folder / f"{name}.parquet")
        configs[name] = {
            "data": str(folder / f"{name}.parquet"),
            "state": str(folder / "state"),
        }
    return LocalGrid(dict.fromkeys(frames, client_app()), configs)


def split(frame: pl.DataFrame, client: str = "site") -> dict[str, pl.DataFrame]:
    return {site.name: site.frame for site in read_sites(frame, client)}


def deployed(grid, task: TableFit, output=None, terms=TERMS):
    session = Session(grid, task.task(), task.greeting(), Options(output, terms))
    return session.run(task.once)


def assert_same(found, expected):
    """The two fits tell the same, to the tolerance of the fit."""
    ours, theirs = found.to_dict(), expected.to_dict()
    assert ours.keys() == theirs.keys()
    for part in ("model", "target", "rows", "algorithm", "reason", "notes"):
        assert ours[part] == theirs[part], part
    assert ours["status"]["name"] == theirs["status"]["name"]
    np.testing.assert_allclose(found.model.x, expected.model.x, atol=1e-9, rtol=0)
    for mine, other in zip(ours["coefficients"], theirs["coefficients"], strict=True):
        assert mine.keys() == other.keys()
        for field in ("name", "of"):
            assert mine.get(field) == other.get(field)
        for field in ("estimate", "standard_error", "low", "high"):
            if mine[field] is None:
                assert other[field] is None
            else:
                assert mine[field] == pytest.approx(other[field], rel=1e-6, abs=1e-8)
    for mine, other in zip(ours["sites"], theirs["sites"], strict=True):
        assert mine.keys() == other.keys() and mine["client"] == other["client"]
        for field in ("rows", "loss", "score", "local_loss", "local_score"):
            assert mine[field] == pytest.approx(other[field], rel=1e-6, abs=1e-9)
    for field in ("loss", found.metric):
        assert ours[field] == pytest.approx(theirs[field], rel=1e-9)
    parts = [e["part"].removeprefix("measured ") for e in ours["exchanges"]]
    assert parts == [e["part"] for e in theirs["exchanges"]]


MODELS = {
    "linear": {"target": "length", "model": "linear"},
    "logistic": {"target": "ill", "model": None},
    "softmax": {"target": "kind", "model": "softmax", "l2": 1e-3},
    "poisson": {"target": "count", "model": "poisson"},
    "huber": {"target": "length", "model": "huber", "threshold": 1.3},
    "l1": {"target": "length", "model": "linear", "l1": 0.05},
    "raw": {
        "target": "ill",
        "model": "logistic",
        "standardise": False,
        "intercept": False,
        "l2": 0.1,
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_a_deployed_fit_is_that_of_the_union(name, tmp_path):
    options = {k: v for k, v in MODELS[name].items() if k != "target"}
    target = MODELS[name]["target"]
    asked = {"target": target, "features": ("age", "dose", "ward")}
    asked |= {k: options[k] for k in ("model", "standardise", "intercept") if k in options}
    numbers = {k: options[k] for k in ("l1", "l2", "threshold") if k in options}
    frame = table()
    grid = grid_of(tmp_path, split(frame))
    found = deployed(grid, TableFit(Request(**asked), **numbers), tmp_path / "out")
    expected = accord.fit(frame, target, "site", features=asked["features"], **options)
    assert found.status.name == "converged"
    assert_same(found, expected)
    new = table(20, seed=2).drop(target)
    one, other = found.model.predict(new), expected.model.predict(new)
    assert one.columns == other.columns
    for column in one.columns:
        if one[column].dtype.is_numeric():
            np.testing.assert_allclose(one[column], other[column], atol=1e-8)
        else:
            assert one[column].to_list() == other[column].to_list()


def test_heart_disease_in_few_rounds_with_the_whole_report(tmp_path):
    if not fetching.is_here("heart"):
        pytest.skip("heart is not here: accord datasets fetch heart")
    card, path = accord.data.CARDS["heart"], fetching.path("heart")
    grid = grid_of(tmp_path, {s.name: s.frame for s in read_sites(path, card.client)})
    features = tuple(card.features) if card.features else None
    task = TableFit(Request(target=card.target, features=features, missing="mean"))
    found = deployed(grid, task, tmp_path / "out")
    expected = accord.fit(path, card.target, card.client, features=features, missing="mean")
    assert_same(found, expected)
    assert found.solution.run.history["round"][-1] <= 40
    deliver(found, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "fit.json").read_text())
    assert written["coefficients"] == found.to_dict()["coefficients"]
    pages = [(tmp_path / "out" / "report.html").read_text()]
    expected.save(tmp_path / "here")
    pages.append((tmp_path / "here" / "report.html").read_text())
    ours, theirs = (re.findall(r"<h[1-3][^>]*>(.*?)</h", page, re.S) for page in pages)
    assert ours == theirs and len(ours) > 3
    assert all(site in pages[0] for site in grid.names.values())
    model = accord.Model.load(tmp_path / "out" / "model.json")
    np.testing.assert_array_equal(model.x, found.model.x)


def test_a_configuration_makes_the_same_fit(tmp_path):
    frame = table()
    config = {"target": "length", "features": "age, dose, ward", "method": "PDMM", "l2": 0.01}
    found = deployed(grid_of(tmp_path, split(frame)), table_fit_of(config))
    expected = accord.fit(
        frame, "length", "site", features=("age", "dose", "ward"), l2=0.01, algorithm=accord.PDMM()
    )
    assert type(found.solution.run.algorithm) is accord.PDMM
    np.testing.assert_allclose(found.model.x, expected.model.x, atol=1e-7)
    assert found.status.name == expected.status.name == "converged"


def test_an_error_in_a_table_names_the_site(tmp_path):
    frames = split(table())
    frames["b"] = frames["b"].drop("dose")
    task = TableFit(Request(target="length", features=("age", "dose")))
    with pytest.raises(ValueError, match="client 'b' has no column 'dose'"):
        deployed(grid_of(tmp_path, frames), task)


def test_sites_that_disagree_are_named(tmp_path):
    frames = split(table())
    frames["c"] = frames["c"].with_columns(pl.lit("many").alias("dose"))
    task = TableFit(Request(target="length", features=("age", "dose")))
    with pytest.raises(ValueError, match=r"'?dose'?.*") as error:
        deployed(grid_of(tmp_path, frames), task)
    assert "c" in str(error.value) and "\n" not in str(error.value)


def test_a_site_that_leaves_for_good_leaves_the_fit_of_the_rest(tmp_path):
    frame = table()
    grid = grid_of(tmp_path, split(frame))

    def leaves(message):
        grid.gone.add("c")

    Fault(grid, "c", 2, before=leaves)
    task = TableFit(Request(target="ill", features=("age", "dose", "ward")))
    terms = dataclasses.replace(TERMS, deadline=0.4)
    found = deployed(grid, task, tmp_path / "out", terms)
    rest = frame.filter(pl.col("site") != "c")
    expected = accord.fit(rest, "ill", "site", features=("age", "dose", "ward"))
    np.testing.assert_allclose(found.model.x, expected.model.x, atol=1e-9)
    assert [s.client for s in found.sites] == ["a", "b"]
    assert any("c left for good" in note for note in found.notes)
    assert [e["client"] for e in logged(tmp_path / "out", "client_left")] == ["c"]


def test_a_table_that_changes_between_stop_and_resume_begins_anew(tmp_path):
    frames = split(table())
    grid = grid_of(tmp_path, frames)
    task = TableFit(Request(target="ill", features=("age", "dose")), compare_local=False)
    with pytest.raises(Exception, match="the server ends"):
        ending(grid, lambda message: about(message).get("round") == 2)
        deployed(grid, task, tmp_path / "out")
    frames["b"] = frames["b"].head(25)
    grid = grid_of(tmp_path, frames)
    found = deployed(grid, task, tmp_path / "out")
    (event,) = logged(tmp_path / "out", "start_anew")
    assert event["why"] == "the sites' tables have changed since the checkpoint"
    union = pl.concat([f.with_columns(site=pl.lit(n)) for n, f in frames.items()])
    expected = accord.fit(union, "ill", "site", features=("age", "dose"), compare_local=False)
    np.testing.assert_allclose(found.model.x, expected.model.x, atol=1e-9)
