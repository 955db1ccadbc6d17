"""A Flower app with every method, for tests with real processes: its server runs those that it is told."""

from pathlib import Path

import numpy as np

import accord

NAMES, LENGTH, ROUNDS = ("a", "b", "c"), 6, 7
NODES = {name: f'client="{name}"' for name in NAMES}

METHODS = {name: cls() for name, cls in accord.REGISTRY.items()} | {
    "AGPDMM": accord.AGPDMM(local_steps=4),
    "GPDMM": accord.GPDMM(local_steps=3),
    "FedPD": accord.FedPD(skip_probability=0.4),
}


def rows(k: int):
    """The rows of site k: sizes, means and coefficients differ."""
    rng = np.random.default_rng(k)
    X = rng.normal(size=(15 + 6 * k, LENGTH)) + 0.5 * k
    return X, X @ rng.normal(size=LENGTH) + rng.normal(size=len(X))


def problem(ks):
    """The least squares of some sites."""
    return accord.problems.least_squares(accord.Clients.from_arrays([rows(k) for k in ks]), l2=0.5)


def undisturbed(name: str, rounds: int) -> np.ndarray:
    """Where the compiled star engine comes to."""
    return accord.run(METHODS[name], problem(range(len(NAMES))), rounds).x


def model_of(folder: Path) -> np.ndarray:
    """The model that a run has written."""
    with np.load(folder / "model.npz") as stored:
        return stored["x"]


_PROJECT = """
[project]
name = "every-method"
version = "1.0.0"
description = "Every method, for tests."
license = "Apache-2.0"

[tool.flwr.app]
publisher = "accord"

[tool.flwr.app.components]
serverapp = "apps:server"
clientapp = "apps:client"

[tool.flwr.app.config]
output = ""
methods = ""
rounds = ROUNDS
norm = 0.0
"""

_APPS = """
import sys
from pathlib import Path

import numpy as np
from flwr.app import Array
from flwr.serverapp import ServerApp

sys.path.insert(0, TESTS)
from flower_app import LENGTH, METHODS, NAMES, problem

import accord
from accord.flower import Options, Terms, client_app
from accord.flower.server import carry_out, show_log
from accord.flower.tasks import OwnRun


def own(context):
    config = context.node_config
    return problem([NAMES.index(config["client"]) if "client" in config else config["partition-id"]])


def spoil(message, context, call_next):
    # A reply that is not what was agreed, where a file in the site's folder asks for one.
    reply = call_next(message, context)
    order = Path(context.node_config.get("state", "")) / f"spoil-{context.node_config.get('client')}"
    if reply.has_content() and order.is_file() and message.metadata.message_type == "train":
        how = order.read_text()
        order.unlink()
        arrays = reply.content["arrays"]
        name = next(iter(arrays))
        value = arrays[name].numpy()
        spoiled = {
            "nan": lambda: np.full_like(value, np.nan),
            "shape": lambda: value[:-1],
            "dtype": lambda: value.astype("float32"),
            "size": lambda: np.tile(value, 100),
            "key": lambda: value,
        }[how]()
        arrays["message.stranger" if how == "key" else name] = Array(spoiled)
    return reply


client = client_app(own, mods=[spoil])
server = ServerApp()


@server.main()
def main(grid, context):
    show_log()
    config = context.run_config
    for name in config["methods"].split(","):
        stop = accord.Stop(gradient_norm=config["norm"]) if config["norm"] else None
        task = OwnRun(METHODS[name], np.zeros(LENGTH), config["rounds"], stop)
        terms = Terms(min_clients=3, settle=0, resend=90.0, leave_after=30)
        carry_out(grid, task, Options(Path(config["output"]) / name, terms))
"""


def write_app(folder: Path) -> Path:
    """Writes the app, whose sites find their rows here."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(_PROJECT.replace("ROUNDS", str(ROUNDS)))
    here = repr(str(Path(__file__).parent))
    (folder / "apps.py").write_text(_APPS.replace("TESTS", here))
    return folder
