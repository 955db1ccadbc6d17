"""109 weather stations agree on a regression by radio, without a server, while messages are lost.

    accord datasets fetch colorado
    python examples/colorado_stations.py [PICTURE.png]

Each station keeps its own years (1981 to 1990) and talks to its five nearest neighbours. All the same
every station ends with the least squares fit of all 960 rows together: mean temperature of the year on
elevation, latitude and year.
"""

import sys

import numpy as np
import polars as pl

import accord
from accord.graph import EXTRA, PDMM, Gossip, GradientTracking, Network, drawing
from accord.report.style import look

FEATURES = ["elevation", "latitude", "year"]
ROUNDS = 1500

# The rows, and who talks to whom. A degree of longitude is shorter than one of latitude, here by cos 39°.
table = accord.data.load("colorado")
names, places = accord.data.read_columns(table, ["longitude", "latitude"], "station")
places = np.array([own[0] for own in places]) * [np.cos(np.radians(39)), 1]
network = Network.from_positions(places, neighbours=5, names=names)
print(f"{network}: {table.height} rows, at most {network.diameter:.0f} steps from one to another")

# Features of mean 0 and deviation 1, so that the problem is well conditioned.
scales = {f: table[f].std() for f in FEATURES}
scaled = table.with_columns((pl.col(f) - pl.col(f).mean()) / scale for f, scale in scales.items())
stations = accord.data.read_table(scaled, "temperature", "station", FEATURES)
regression = accord.problems.least_squares(stations, intercept=True)
rows = scaled.select(*FEATURES, pl.lit(1.0).alias("one")).to_numpy()
pooled = np.linalg.lstsq(rows, table["temperature"].to_numpy(), rcond=None)[0]

# The mean temperature of every station, for the second task: to average them.
readings = np.array([y.mean() for _, y in stations])
averaging = accord.problems.averaging(readings)

# Elevation and latitude never change at a station, so alone it knows nothing of their slopes: its f_i
# is flat there, and steps a little short of PDMM's own (relaxation below 1) converge faster.
LOSSY = {"activation": "asynchronous", "loss_probability": 0.3}
RUNS = {
    "PDMM(relaxation=0.8)": (PDMM(relaxation=0.8), {}),
    "PDMM, asynchronous, 30 % lost": (PDMM(), LOSSY),
    "ADMM": (PDMM(relaxation=0.5), {}),
    "EXTRA": (EXTRA(), {}),
    "gradient tracking": (GradientTracking(), {}),
}


def regress():
    """Runs every method on the regression: {name: run}, the first two held against NumPy's fit."""
    runs = {
        name: accord.graph.run(method, network, regression, ROUNDS, weights="problem", **how)
        for name, (method, how) in RUNS.items()
    }
    for name in list(RUNS)[:2]:
        apart = abs(runs[name].x - pooled).max()
        print(f"{name}: every station's model is NumPy's pooled fit to {apart:.0e}")
    found = runs["PDMM, asynchronous, 30 % lost"].x[0] / [*scales.values(), 1]
    print(f"station {names[0]} says: {1000 * found[0]:.2f} degrees C a kilometre up, ", end="")
    print(f"{found[1]:.2f} a degree north, {10 * found[2]:+.2f} a decade")
    return runs


def average():
    """The mean of the stations' means, by PDMM and by gossip."""
    for name, method, how in (
        ("PDMM", PDMM(), {}),
        ("PDMM, asynchronous, 30 % lost", PDMM(), LOSSY),
        ("gossip", Gossip(), {}),
    ):
        run = accord.graph.run(method, network, averaging, 300, **how)
        apart = abs(run.x - readings.mean()).max()
        print(
            f"average {readings.mean():.3f} degrees C: {name} is {apart:.0e} off after 300 rounds"
        )


def picture(runs, path):
    """The network beside the methods' curves."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.8), dpi=130, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.1, 1])
    drawing.draw(network, readings, axes=left)
    figure.colorbar(left.collections[-1], ax=left, shrink=0.8, label="mean temperature, °C")
    left.set_title("109 stations, each joined to its 5 nearest", fontsize=10)
    for place, (name, run) in enumerate(runs.items()):
        curve = run.history["distance"] / run.start["distance"]
        right.semilogy(run.history["round"], curve, label=name, color=look(place)[0])
    right.set_xlabel("rounds")
    right.set_title("relative distance to the regression of all rows", fontsize=10)
    right.set_ylim(1e-15, 3)
    right.set_xlim(0, ROUNDS)
    right.grid(color="#dddddd", linewidth=0.6)
    right.spines[["top", "right"]].set_visible(False)
    right.legend(frameon=False, fontsize=9)
    figure.savefig(path)


if __name__ == "__main__":
    runs = regress()
    average()
    if len(sys.argv) > 1:
        picture(runs, sys.argv[1])
        print(f"picture   {sys.argv[1]}")
