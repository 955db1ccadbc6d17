"""``accord network`` and the pictures of networks."""

import re

import numpy as np
import polars
import pytest
from typer.testing import CliRunner

import accord
from accord import cli, graph
from accord.graph import Network, drawing

PNG = b"\x89PNG\r\n\x1a\n"


def _run(*arguments):
    return CliRunner().invoke(cli.app, ["network", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def stations(tmp_path_factory):
    """Twelve stations, five years: temperature falls with elevation; sizes differ by site."""
    rng = np.random.default_rng(4)
    rows = []
    for k in range(12):
        place, elevation = rng.uniform(0, 4, 2), rng.uniform(0.2, 3)
        for year in range(2000, 2000 + 3 + k % 3):
            warm = 20 - 5.5 * elevation + 0.02 * (year - 2000) + 0.3 * rng.standard_normal()
            rows.append((f"s{k}", *place, elevation, year - 2000, warm))
    names = ["station", "longitude", "latitude", "elevation", "year", "temperature"]
    frame = polars.DataFrame(rows, schema=names, orient="row")
    path = tmp_path_factory.mktemp("stations") / "stations.csv"
    frame.write_csv(path)
    return path, frame


def _on(stations, *more):
    return ("--data", stations[0], "--node", "station", "--at", "longitude,latitude", *more)


def test_readings_of_a_table_are_averaged(stations, tmp_path):
    result = _run(*_on(stations), "--value", "temperature", "--rounds", 600, "--output", tmp_path,
                  "--csv", tmp_path / "table.csv")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    table = {row["method"]: row for row in polars.read_csv(tmp_path / "table.csv").to_dicts()}
    assert table["PDMM"]["distance"] < 1e-10
    assert table["PDMM"]["rounds_to_1e-4"] < table["Gossip"]["rounds_to_1e-4"]
    edges = table["PDMM"]["messages_to_1e-4"] / table["PDMM"]["rounds_to_1e-4"]
    assert table["PDMM"]["megabytes_to_1e-4"] == table["PDMM"]["messages_to_1e-4"] * 8 / 1e6
    assert edges == 2 * round(edges / 2) and edges >= 2 * 12
    for name in ("rounds", "messages", "megabytes", "gradients", "seconds", "network"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(PNG)
    means = stations[1].group_by("station").agg(polars.col("temperature").mean())
    answer = float(re.search(r"answer\s+average (\S+)", result.stdout)[1])
    assert answer == pytest.approx(means["temperature"].mean(), rel=1e-5)
    nodes = polars.read_csv(tmp_path / "nodes.csv")
    assert abs(nodes["average"] - means["temperature"].mean()).max() < 1e-9
    page = (tmp_path / "report.html").read_text()
    assert page.count('<img class="picture"') == 3
    assert "algebraic connectivity" in page and "weights" in page


def test_the_pooled_regression_over_lossy_links(stations, tmp_path):
    """Asynchronous, with losses: the fit of all rows together, whatever their number at a station."""
    result = _run(*_on(stations), "--target", "temperature", "--features", "elevation,year",
                  "--activation", "asynchronous", "--loss", "0.3", "--rounds", 800,
                  "--output", tmp_path, "--csv", tmp_path / "table.csv")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    table = polars.read_csv(tmp_path / "table.csv")
    assert table["method"].to_list() == ["PDMM", "PDMM(relaxation=0.5)"]
    assert table["distance"].max() < 1e-8
    clients = accord.data.read_table(
        stations[1], target="temperature", client="station", features=["elevation", "year"]
    )
    problem = accord.problems.least_squares(clients, intercept=True)
    X = stations[1].select("elevation", "year").with_columns(one=1.0).to_numpy()
    pooled = np.linalg.lstsq(X, stations[1]["temperature"].to_numpy(), rcond=None)[0]
    np.testing.assert_allclose(problem.reference().x, pooled, atol=1e-10)
    nodes = polars.read_csv(tmp_path / "nodes.csv").select("elevation", "year", "intercept")
    assert abs(nodes.to_numpy() - pooled).max() < 1e-6


def test_the_answer_says_how_far_nodes_are_from_it_in_its_own_units(stations, tmp_path):
    result = _run(*_on(stations), "--target", "temperature", "--features", "elevation",
                  "--methods", "PDMM", "--rounds", 20, "--output", tmp_path)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    told = re.search(r"answer\s+(.*) \(PDMM; nodes differ from it by up to (.*)\)", result.stdout)
    names, means = zip(*(part.split(" ") for part in told[1].split(", ")), strict=True)
    nodes = polars.read_csv(tmp_path / "nodes.csv").select(names).to_numpy()
    assert nodes.mean(0) == pytest.approx([float(m) for m in means], rel=1e-4)
    furthest = abs(nodes - nodes.mean(0)).max(0)
    assert [float(f) for f in told[2].split(", ")] == pytest.approx(furthest, rel=0.01)
    assert "allow more --rounds" in result.stdout


def test_families_edges_and_broadcast(tmp_path):
    assert (
        _run("--graph", "grid:3:4", "--rounds", 5, "--broadcast", "--output", tmp_path).exit_code
        == 0
    )
    edges = tmp_path / "edges.csv"
    edges.write_text("from,to\na,b\nb,c\nc,d\n")
    result = _run("--edges", edges, "--rounds", 5, "--activation", "0.5", "--loss", "0.1:0.5",
                  "--output", tmp_path)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "PDMM" in result.stdout and "EXTRA" not in result.stdout
    edges.write_text("a,b\nb,c\nc,d\n")
    result = _run("--edges", edges, "--output", tmp_path)
    assert result.exit_code == 2 and "looks like an edge; expected a header" in result.stderr


WRONG = {
    ("--graph", "rong:5"): "did you mean ring?",
    ("--graph", "grid:5"): "write grid:rows:columns",
    ("--graph", "ring:five"): "write ring:nodes",
    ("--graph", "ring:2"): "nodes: got 2",
    ("--edges", "none.csv"): "there is no file",
    ("--value", "temperature"): "say which table",
    ("--methods", "GPDMM"): "methods: there is no 'GPDMM'",
    ("--methods", "PDMM:penalty=0"): "PDMM(penalty=...): got 0",
    ("--activation", "sometimes"): "activation: got 'sometimes'",
    ("--loss", "often"): "loss: got 'often'",
    ("--loss", "1.0"): "loss: got '1.0'; accepted is a share below 1",
    ("--loss", "0.1:0"): "accepted is to_good > 0",
    ("--activation", "0"): "activation: got '0'; accepted are synchronous",
    ("--stop", "0"): "stop: got 0; accepted is a number > 0",
    ("--seed", "-1"): "seed: got -1; accepted is a whole number from 0",
    ("--rounds", "0"): "rounds: got 0",
    ("--methods", "EXTRA", "--loss", "0.1"): "EXTRA is synchronous",
}


@pytest.mark.parametrize("arguments", WRONG, ids=" ".join)
def test_bad_input_is_one_line_and_status_2(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = _run(*arguments)
    assert result.exit_code == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("accord: ") and WRONG[arguments] in last
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []  # no folder, nothing half-written


def test_stop_ends_a_run_where_all_is_small(tmp_path):
    result = _run("--graph", "ring:6", "--methods", "PDMM", "--rounds", 5000, "--stop", 1e-6,
                  "--output", tmp_path / "made" / "here.html", "--csv", tmp_path / "table.csv")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    [row] = polars.read_csv(tmp_path / "table.csv").to_dicts()
    assert row["status"] == "converged" and row["rounds"] < 200
    assert row["distance"] < 1e-5
    assert (tmp_path / "made" / "here.html").is_file()


def test_a_table_wants_its_columns_named(stations):
    for arguments, words in (
        (("--data", stations[0]), "say --value COLUMN"),
        (("--data", stations[0], "--value", "temperature"), "node: say which column"),
        (("--data", stations[0], "--value", "temperature", "--node", "station"), "who talks to whom"),
        (_on(stations, "--value", "temperature", "--graph", "ring:12"), "give one of them"),
    ):  # fmt: skip
        result = _run(*arguments)
        assert result.exit_code == 2 and words in result.stderr


@pytest.fixture(scope="module")
def averaged():
    network = Network.grid(3, 3)
    problem = accord.problems.averaging(np.arange(9.0))
    return graph.run(graph.PDMM(), network, problem, 60, record="x")


def test_snapshots_and_traces_are_pictures(averaged, tmp_path):
    for make in (drawing.snapshots, drawing.traces):
        picture = make(averaged, tmp_path / "picture.png")
        assert picture.startswith(PNG)
        assert (tmp_path / "picture.png").read_bytes() == picture
    averaged.network.draw(np.arange(9.0), tmp_path / "network.png", label="value", names=True)
    assert (tmp_path / "network.png").read_bytes().startswith(PNG)


def test_what_cannot_be_drawn_is_said(averaged):
    with pytest.raises(ValueError, match="coordinate: got 1; the nodes' models have 0 to 0"):
        drawing.snapshots(averaged, coordinate=1)
    bare = graph.run(graph.PDMM(), averaged.network, averaged.problem, 2)
    with pytest.raises(ValueError, match="it kept no models"):
        drawing.traces(bare)
    many = Network([(i, i + 1) for i in range(2500)])
    with pytest.raises(ValueError, match="too many to place"):
        drawing.layout(many)


def test_places_of_nodes_without_positions():
    for network in (Network([(0, 1), (1, 2), (0, 3)]), Network([(0, 1)], nodes=5)):
        places = drawing.layout(network)
        assert places.shape == (len(network), 2)
        assert np.isfinite(places).all()
