"""What the run's configuration of a Flower app says: keys, their defaults, and what they mean.

Flower's configuration holds numbers, text and truth values; "" stands for a default. A key with a dash is the
argument of ``accord.fit`` with an underscore.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from accord.algorithms import parse_method
from accord.analysis.summaries import Request
from accord.core.checks import closest
from accord.flower.session import Options
from accord.flower.sites import Terms
from accord.flower.tasks import TableFit


class Key(NamedTuple):
    """A key of the configuration: its ``default``, and what it means in a line."""

    default: Any
    meaning: str


FIT = {
    "model": Key("", "linear, logistic, softmax, poisson or huber; empty: from the target"),
    "target": Key("", "the column that the model explains"),
    "features": Key("", "columns that explain it, separated by commas; empty: all others"),
    "exclude": Key("", "columns to leave out"),
    "categorical": Key("", "columns of codes, whose numbers are categories"),
    "missing": Key("error", "missing values: error, mean, drop or indicator"),
    "l1": Key(0.0, "the weight of l1 ||w||_1"),
    "l2": Key(0.0, "the weight of (l2/2) ||w||^2"),
    "intercept": Key(True, "an intercept, free of penalties"),
    "standardise": Key(True, "columns brought to mean 0 and deviation 1"),
    "threshold": Key(1.0, "where Huber's loss turns linear, in units of the target"),
    "method": Key("", "as PDMM or GPDMM:local_steps=5; empty: the one with the fewest rounds"),
    "tolerance": Key(1e-8, "the certified distance to the pooled fit, relative to the model"),
    "max-rounds": Key(1000, "the rounds after which the fit gives up"),
    "compare-local": Key(True, "fit every site's rows alone, too"),
}
"""The keys of a joint fit."""

RUN = {
    "output": Key("", "the server's folder for log.jsonl, checkpoint, model and report"),
    "resume": Key(True, "go on with an unfinished run of the same task in that folder"),
    "min-clients": Key(2, "sites without which nothing begins"),
    "max-clients": Key(0, "the most sites that take part; 0: any number"),
    "start-wait": Key(600.0, "seconds to wait for the least number of sites"),
    "settle": Key(10.0, "seconds to wait for further sites after that"),
    "deadline": Key(600.0, "seconds after which a round goes on without those who did not reply"),
    "quorum": Key(1.0, "the share of those asked without whom a round is asked again"),
    "leave-after": Key(3, "rounds in a row without a reply after which a site has left for good"),
    "late": Key("join", "sites that come after the start: join or refuse"),
    "resend": Key(120.0, "seconds without a reply after which a letter is sent again"),
    "participation": Key(1.0, "the share of the sites that is drawn for each round"),
    "measure-every": Key(
        0, "rounds between measures of the objective; 0: 1, or 10 for large models"
    ),
    "seed": Key(0, "of all random numbers"),
}
"""The keys that say who takes part, and where files go."""

SIMULATION = {
    "data": Key(
        "", "simulations only: a table with a client column, or a folder with one per site"
    ),
    "client": Key("", "simulations only: that column"),
}
"""The keys that stand for the sites' own configuration in a simulation."""


@contextmanager
def _in_keys() -> Iterator[None]:
    """Errors about an argument name the key that it comes from."""
    try:
        yield
    except (ValueError, TypeError) as error:
        name, found, rest = str(error).partition(":")
        key = {"methods": "method"}.get(name, name.replace("_", "-"))
        if found and key in FIT | RUN:
            raise type(error)(f"{key}:{rest}") from None
        raise


@_in_keys()
def table_fit_of(config: dict[str, Any]) -> TableFit:
    """The joint fit that a run's configuration describes; ``ValueError`` naming a key that does not fit."""
    unknown = [key for key in config if key not in FIT | RUN | SIMULATION]
    if unknown:
        raise ValueError(closest(unknown[0], FIT | RUN | SIMULATION, "run-config"))
    given = _values(config, FIT)
    if not given["target"]:
        raise ValueError("target: got nothing; name the column that the model explains")
    request = Request(
        target=given["target"], features=_listed(given["features"]) or None,
        exclude=_listed(given["exclude"]), categorical=_listed(given["categorical"]),
        missing=given["missing"], intercept=given["intercept"], standardise=given["standardise"],
        model=given["model"] or None,
    )  # fmt: skip
    return TableFit(
        request, l1=given["l1"], l2=given["l2"], threshold=given["threshold"],
        algorithm=parse_method(given["method"]) if given["method"] else None,
        tolerance=given["tolerance"], max_rounds=given["max-rounds"],
        compare_local=given["compare-local"],
    )  # fmt: skip


@_in_keys()
def options_of(config: dict[str, Any]) -> Options:
    """Who takes part and where files go, as a run's configuration says."""
    given = _values(config, RUN)
    terms = Terms(
        min_clients=given["min-clients"], max_clients=given["max-clients"] or None,
        start_wait=given["start-wait"], settle=given["settle"], deadline=given["deadline"],
        quorum=given["quorum"], leave_after=given["leave-after"], late=given["late"],
        resend=given["resend"],
    )  # fmt: skip
    return Options(
        output=Path(given["output"]) if given["output"] else None,
        terms=terms,
        resume=given["resume"],
        participation=given["participation"],
        seed=given["seed"],
        measure_every=given["measure-every"] or None,
    )


def _values(config, keys: dict[str, Key]) -> dict[str, Any]:
    """The configured values, with the defaults for the rest, of the defaults' types."""
    values = {}
    for name, key in keys.items():
        value, kind = config.get(name, key.default), type(key.default)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            what = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
            raise ValueError(f"{name}: got {value!r}; accepted is {what[kind]}: {key.meaning}")
        values[name] = value
    return values


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
