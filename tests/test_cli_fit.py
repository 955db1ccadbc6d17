"""accord fit, predict, describe and validate: from files to files, and every bad input in one line."""

import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from accord.cli import app

HOSPITALS = ("north", "south", "east")


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """A folder for compiled programs that is not the user's own."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch, caches):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches))
    monkeypatch.setenv("COLUMNS", "100")


def patients(rows: int = 240, seed: int = 0) -> pl.DataFrame:
    """Hospitals that differ: in age, in what they record, in the outcome's frequency."""
    rng = np.random.default_rng(seed)
    hospital = rng.choice(3, rows, p=[0.6, 0.3, 0.1])
    age = 50 + 8 * hospital + 10 * rng.standard_normal(rows)
    sex = rng.choice(["f", "m"], rows)
    dose = rng.exponential(1, rows)
    log_odds = 0.05 * (age - 55) + 0.8 * (sex == "m") - 0.6 * dose + 0.3 * hospital
    ill = rng.random(rows) < 1 / (1 + np.exp(-log_odds))
    return pl.DataFrame(
        {
            "age": np.round(age, 1),
            "sex": sex,
            "dose": np.round(dose, 3),
            "hospital": [HOSPITALS[k] for k in hospital],
            "outcome": np.where(ill, "ill", "well"),
        }
    )


def accord(*arguments: str, code: int = 0) -> str:
    """What the command prints; bad input must be one line."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output + result.stderr
    if code == 2:
        assert result.stderr.startswith("accord: ")
        assert result.stderr.count("\n") == 1
        return result.stderr
    return result.stdout


def estimates(folder: str = "fit") -> dict[str, float]:
    with open(f"{folder}/fit.json") as file:  # noqa: PTH123
        return {c["term"]: c["estimate"] for c in json.load(file)["coefficients"]}


COMMON = ("--client", "hospital", "--target", "outcome")


def test_from_a_table_to_predictions(tmp_path):
    patients().write_csv("patients.csv")
    told = accord("fit", "patients.csv", *COMMON)
    assert "converged" in told
    assert sorted(p.name for p in (tmp_path / "fit").iterdir()) == [
        "fit.json", "model.json", "report.html",
    ]  # fmt: skip
    new = patients(30, seed=1).drop("outcome", "hospital")
    new.write_csv("new.csv")
    accord("predict", "fit/model.json", "new.csv", "--output", "predicted.csv")
    predicted = pl.read_csv("predicted.csv")
    assert predicted.columns == ["prediction", "probability of ill", "probability of well"]
    x = estimates()
    eta = (
        x["(intercept)"] + x["age"] * new["age"] + x["dose"] * new["dose"]
        + x["sex: m"] * (new["sex"] == "m")
    )  # fmt: skip
    np.testing.assert_allclose(predicted["probability of well"], 1 / (1 + np.exp(-eta)), rtol=1e-9)
    assert predicted.write_csv() == accord("predict", "fit/model.json", "new.csv")


def test_every_source_gives_the_same_fit(tmp_path):
    table = patients()
    table.write_parquet("patients.parquet")
    accord("fit", "patients.parquet", *COMMON)
    reference = estimates()
    (tmp_path / "sites").mkdir()
    for k, ((name,), rows) in enumerate(table.group_by("hospital", maintain_order=True)):
        own = rows.drop("hospital")
        own = own.select(reversed(own.columns)) if k else own
        own.write_csv(f"sites/{name}.csv", separator=";", decimal_comma=True, include_bom=True)
    accord("fit", "sites", "--target", "outcome", "--output", "folder")
    assert estimates("folder") == pytest.approx(reference, rel=1e-9)
    windows = table.write_csv().replace("\n", "\r\n")
    (tmp_path / "windows.csv").write_bytes(b"\xef\xbb\xbf" + windows.encode())
    accord("fit", "windows.csv", *COMMON, "--output", "windows")
    assert estimates("windows") == pytest.approx(reference, rel=1e-9)


def test_a_libsvm_file_with_a_file_of_clients(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), rng.standard_normal(60)
    lines = (
        f"{t} " + " ".join(f"{j + 1}:{v}" for j, v in enumerate(r))
        for r, t in zip(X, y, strict=True)
    )
    (tmp_path / "rows.svm").write_text("\n".join(lines) + "\n")
    (tmp_path / "owners.txt").write_text("\n".join("ab"[k % 2] for k in range(60)) + "\n")
    accord("fit", "rows.svm", "--client-file", "owners.txt", "--target", "target")
    x = np.linalg.lstsq(np.column_stack([X, np.ones(60)]), y)[0]
    np.testing.assert_allclose(list(estimates().values()), x, rtol=1e-7)


@pytest.mark.parametrize("method", ["PDMM", "AGPDMM:local_steps=5", "ADMM"])
def test_another_method_and_a_penalty(method):
    patients().write_csv("patients.csv")
    accord("fit", "patients.csv", *COMMON, "--l1", "0.02", "--l2", "0.01")
    accord(
        "fit", "patients.csv", *COMMON, "--l1", "0.02", "--l2", "0.01", "--method", method,
        "--output", "other",
    )  # fmt: skip
    assert estimates("other") == pytest.approx(estimates(), abs=1e-7)


def test_missing_values_are_listed_then_handled():
    table = patients()
    gone = pl.when((pl.col("hospital") == "east") & (pl.col("age") > 60)).then(None)
    table.with_columns(gone.otherwise(pl.col("dose")).alias("dose")).write_csv("patients.csv")
    told = accord("fit", "patients.csv", *COMMON, code=2)
    assert "client 'east': 'dose'" in told
    lacking = pl.read_csv("patients.csv")["dose"].null_count()
    assert lacking > 0
    for way, terms in (("mean", 4), ("drop", 4), ("indicator", 5)):
        told = accord("fit", "patients.csv", *COMMON, "--missing", way)
        assert len(estimates()) == terms
        assert (f"{lacking} of 'dose' with" in told) == (way != "drop")
    table = accord("describe", "patients.csv", *COMMON)
    row = next(line.split() for line in table.splitlines() if line.startswith("east"))
    assert row[-1] == str(lacking) and "missing" in table


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere.csv", *COMMON), "there is no file 'nowhere.csv'"),
        (("patients.csv", "--target", "outcome"), "client"),
        (("patients.csv", "--client", "hospital"), "target"),
        (("patients.csv", "--client", "hospitl", "--target", "outcome"), "'hospital'"),
        (("patients.csv", *COMMON, "--features", "age,sx"), "'sex'"),
        (("patients.csv", *COMMON, "--model", "tree"), "model"),
        (("patients.csv", *COMMON, "--model", "poisson"), "poisson"),
        (("patients.csv", *COMMON, "--missing", "guess"), "missing"),
        (("patients.csv", *COMMON, "--method", "PDM"), "PDMM"),
        (("patients.csv", *COMMON, "--method", "PDMM,ADMM"), "accepted is one"),
        (("patients.csv", *COMMON, "--method", "SCAFFOLD", "--l1", "0.1"), "proximal step"),
        (("patients.csv", *COMMON, "--l2", "-1"), "l2"),
        (("patients.csv", *COMMON, "--tolerance", "0"), "tolerance"),
        (("patients.csv", *COMMON, "--rounds", "0"), "rounds"),
        (("patients.csv", *COMMON, "--output", "patients.csv"), "is a file"),
        (("empty.csv", *COMMON), "empty"),
        (("twice.csv", *COMMON), "'age'"),
        (("dates.csv", *COMMON), "date"),
        (("orphans.csv", *COMMON), "hospital"),
        (("codes.csv", *COMMON), "categories"),
        (("one.csv", *COMMON), "at all clients"),
        (("intercept.csv", *COMMON), "'(intercept)'"),
        (("patients.csv", *COMMON, "--threshold", "5"), "no use for it"),
        (("patients.csv", *COMMON, "--output", "empty.csv/fit"), "nothing can be written"),
        (("patients.csv", *COMMON, "--output", "taken"), "taken/report.html is a folder"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(tmp_path, arguments, words):
    table = patients()
    table.write_csv("patients.csv")
    (tmp_path / "empty.csv").touch()
    (tmp_path / "twice.csv").write_text(table.write_csv().replace("dose", "age", 1))
    day = pl.date_range(pl.date(2020, 1, 1), pl.date(2020, 8, 27), eager=True)
    table.with_columns(day.alias("day")).write_csv("dates.csv")
    table.with_columns(pl.when(pl.col("age") > 50).then(pl.col("hospital"))).write_csv(
        "orphans.csv"
    )
    codes = pl.Series("code", [f"patient {k}" for k in range(table.height)])
    table.with_columns(codes).write_csv("codes.csv")
    table.with_columns(pl.lit("ill").alias("outcome")).write_csv("one.csv")
    table.rename({"age": "(intercept)"}).write_csv("intercept.csv")
    (tmp_path / "taken" / "report.html").mkdir(parents=True)
    assert words in accord("fit", *arguments, code=2)
    assert not (tmp_path / "fit").exists()
    assert [p.name for p in (tmp_path / "taken").iterdir()] == ["report.html"]


@pytest.mark.parametrize("labels", [("yes", "no"), (True, False), (1, 2), (0, 1), ("1", "2")])
def test_labels_of_any_kind_are_the_same_two_classes(labels):
    table = patients()
    told = [labels[0] if v == "ill" else labels[1] for v in table["outcome"]]
    table.with_columns(pl.Series("outcome", told)).write_parquet("patients.parquet")
    accord("fit", "patients.parquet", *COMMON)
    size = abs(estimates()["age"])
    table.write_parquet("patients.parquet")
    accord("fit", "patients.parquet", *COMMON)
    assert abs(estimates()["age"]) == pytest.approx(size, rel=1e-9)


def test_one_row_clients_and_a_client_of_one_class():
    table = patients().with_columns(
        pl.when(pl.int_range(pl.len()) < 3).then(pl.lit("tiny ") + pl.int_range(pl.len()).cast(str))
        .otherwise(pl.col("hospital")).alias("hospital")
    )  # fmt: skip
    table = table.filter((pl.col("hospital") != "east") | (pl.col("outcome") == "well"))
    table.write_csv("patients.csv")
    told = accord("fit", "patients.csv", *COMMON)
    assert "tiny 0" in told
    assert "converged" in told
    X = np.column_stack(
        [table["age"], table["sex"] == "m", table["dose"], np.ones(table.height)]
    ).astype(float)
    y, x = (table["outcome"] == "well").to_numpy(), np.zeros(4)
    for _ in range(30):
        p = 1 / (1 + np.exp(-X @ x))
        x += np.linalg.solve((X.T * (p * (1 - p))) @ X, X.T @ (y - p))
    np.testing.assert_allclose(list(estimates().values()), x, rtol=1e-8)


def test_describe_and_validate():
    patients().write_csv("patients.csv")
    told = accord("describe", "patients.csv", *COMMON)
    for words in ("north", "south", "east", "Heterogeneity", "kappa", "Newton", "PDMM"):
        assert words in told
    assert "mean" in accord("describe", "patients.csv", "--client", "hospital")
    told = accord("validate", "patients.csv", *COMMON, "--csv", "held.csv")
    assert "AUC" in told
    held = pl.read_csv("held.csv")
    assert held["client"].to_list() == ["east", "north", "south"]
    assert held["rows"].sum() == 240
    patients().filter(pl.col("hospital") == "north").write_csv("one.csv")
    assert "one client only" in accord("validate", "one.csv", *COMMON, code=2)


def test_predict_refuses_in_one_line(tmp_path):
    patients().write_csv("patients.csv")
    assert "held against sex: f" in accord("fit", "patients.csv", *COMMON)
    new = patients(10).with_columns(pl.lit("x").alias("sex"))
    new.write_csv("new.csv")
    assert "'x'" in accord("predict", "fit/model.json", "new.csv", code=2)
    accord("predict", "fit/model.json", "new.csv", "--unknown", "baseline")
    new.drop("age").write_csv("less.csv")
    assert "no column 'age'," in accord("predict", "fit/model.json", "less.csv", code=2)
    same = accord("predict", "fit", "patients.csv")
    assert same == accord("predict", "fit/model.json", "patients.csv")
    assert "there is no file" in accord("predict", ".", "patients.csv", code=2)
    assert "not a model file" in accord("predict", "patients.csv", "new.csv", code=2)
    assert ".csv and .parquet" in accord(
        "predict", "fit/model.json", "patients.csv", "--output", "out.txt", code=2
    )
    accord("predict", "fit/model.json", "patients.csv", "--output", "out.parquet")
    assert pl.read_parquet("out.parquet").height == 240


def test_the_whole_command_ends_well_in_a_process_of_its_own(tmp_path):
    patients().write_csv("patients.csv")
    done = subprocess.run(
        [sys.executable, "-m", "accord", "fit", "patients.csv", *COMMON],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "fit" / "report.html").stat().st_size > 1_000_000
