"""What a site accepts of a server, what the server believes of a site, and what is written of both."""

import dataclasses
import json

import numpy as np
import polars as pl
import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from flwr.app import Message

import accord
from accord.analysis.summaries import Request, Summary
from accord.flower import Options, client, client_app, post
from accord.flower.events import Events
from accord.flower.server import carry_out
from accord.flower.sites import FailedError
from accord.flower.store import digest_of
from accord.flower.tasks import OwnRun, TableFit
from accord.flower.wire import letter, opened
from flower_sites import COLUMNS, TERMS, Fault, about, arrays, edited, grid_of, logged, problem, run
from grid import LocalGrid

PDMM = accord.PDMM(penalty=2.0)
SHORT = dataclasses.replace(TERMS, resend=0.005)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """Who is there is looked at more often than people start nodes."""
    monkeypatch.setattr(post, "_LOOK", 0.01)


def at_optimum(x, rows):
    assert np.abs(np.asarray(x) - np.asarray(problem(rows).reference().x)).max() <= 1e-8


def asked(grid, told, arrays_=None, node: int = 100, kind: str = "train"):
    """(plain values, arrays) of a node's reply to a letter."""
    content = letter(told, arrays_ or {})
    (reply,) = grid.send_and_receive([Message(content, node, kind, ttl=60.0)])
    assert not reply.has_error(), reply.error.reason
    return opened(reply.content)


def lacking(message, reply, name: str) -> Message:
    """A reply without one of its plain values."""
    told, record = opened(reply.content)
    told.pop(name)
    return Message(letter(told, {n: record[n].numpy() for n in record}), reply_to=message)


def spoils(grid, client_: str, which: str, spoil, times: int = 10_000):
    """Spoils a client's replies to letters of a kind, or to a question."""
    left = [times]

    def after(name, message, reply):
        told = about(message)
        if name == client_ and which in (told["kind"], told.get("what")) and left[0] > 0:
            left[0] -= 1
            return [spoil(message, reply)]
        return [reply]

    grid.after = after


# Cards: what a site says of itself.

CARDS = {
    **{f"without {key}": (lambda m, r, key=key: lacking(m, r, key), key) for key in (
        "rows", "name", "dtype", "convex", "offers", "bounded", "quadratic", "strongly_convex", "l2",
    )},
    "rows that are text": (lambda m, r: edited(m, r, {"rows": "8"}), "rows"),
    "rows below zero": (lambda m, r: edited(m, r, {"rows": -8}), "rows"),
    "offers that are a number": (lambda m, r: edited(m, r, {"offers": 5}), "offers"),
    "an l2 that is text": (lambda m, r: edited(m, r, {"l2": "much"}), "l2"),
    "an l2 that is NaN": (lambda m, r: edited(m, r, {"l2": float("nan")}), "l2"),
    "convexity that is text": (lambda m, r: edited(m, r, {"convex": "yes"}), "convex"),
    "a dtype that is none": (lambda m, r: edited(m, r, {"dtype": ["float64"]}), "dtype"),
}  # fmt: skip


@pytest.mark.parametrize("case", CARDS)
def test_a_card_that_is_none_is_refused_by_name(case, tmp_path):
    spoil, why = CARDS[case]
    grid = grid_of(tmp_path, arrays())
    # The first in order, as whose problem the others' would be compared with.
    spoils(grid, "site 0", "hello", spoil)
    found = run(grid, PDMM, 60, tmp_path / "out")
    refused = logged(tmp_path / "out", "node_refused")
    assert refused and {e["client"] for e in refused} == {"site 0"}
    assert all(why in e["why"] and "\n" not in e["why"] for e in refused)
    assert found.session.sites.members == ["site 1", "site 2"]
    at_optimum(found.x, arrays()[1:])


def table(k: int, rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(k)
    age, dose = rng.normal(50 + 6 * k, 9, rows), rng.gamma(2 + k, 1.5, rows)
    length = 0.04 * age - (0.3 + 0.1 * k) * dose + rng.normal(size=rows)
    return pl.DataFrame({"age": age, "dose": dose, "length": length})


def tables(folder) -> tuple[dict[str, pl.DataFrame], LocalGrid]:
    """Tables of three sites, and a grid whose nodes hold them."""
    frames = {name: table(k, 30 - 5 * k) for k, name in enumerate("abc")}
    configs = {}
    for name, frame in frames.items():
        frame.write_csv(folder / f"{name}.csv")
        configs[name] = {"data": str(folder / f"{name}.csv"), "state": str(folder / "state")}
    return frames, LocalGrid(dict.fromkeys(frames, client_app()), configs)


def fit_over(grid, output, compare_local=False):
    task = TableFit(Request(target="length"), l2=0.1, compare_local=compare_local)
    return carry_out(grid, task, Options(output, SHORT))


def fit_here(frames, compare_local=False):
    union = pl.concat([f.with_columns(site=pl.lit(n)) for n, f in frames.items()])
    return accord.fit(union, "length", "site", l2=0.1, compare_local=compare_local)


def other_rows(message, reply):
    told, _ = opened(reply.content)
    summary = dataclasses.replace(Summary.from_json(told["summary"]), rows=7)
    return edited(message, reply, {"summary": summary.to_json()})


SUMMARIES = {
    "none": (lambda m, r: edited(m, r, {"summary": None}), "no summary"),
    "lacking": (lambda m, r: lacking(m, r, "summary"), "no summary"),
    "an empty object": (lambda m, r: edited(m, r, {"summary": "{}"}), "not the JSON of a summary"),
    "no JSON": (lambda m, r: edited(m, r, {"summary": "{rows"}), "not the JSON of a summary"),
    "of other rows": (other_rows, "another number of rows"),
}


@pytest.mark.parametrize("case", SUMMARIES)
def test_a_summary_that_is_none_is_refused_by_name(case, tmp_path):
    spoil, why = SUMMARIES[case]
    frames, grid = tables(tmp_path)
    spoils(grid, "a", "hello", spoil)
    found = fit_over(grid, tmp_path / "out")
    refused = logged(tmp_path / "out", "node_refused")
    assert refused and all(e["client"] == "a" and why in e["why"] for e in refused)
    expected = fit_here({n: frames[n] for n in "bc"})
    assert [s.client for s in found.sites] == ["b", "c"]
    np.testing.assert_allclose(found.model.x, expected.model.x, atol=1e-8)


def test_a_site_with_a_table_is_none_for_a_problem_of_ones_own(tmp_path):
    _, grid = tables(tmp_path)
    terms = dataclasses.replace(SHORT, start_wait=0.3)
    with pytest.raises(FailedError, match=r"client_app\(problem\)|request") as error:
        carry_out(grid, OwnRun(PDMM, np.zeros(2), 5), Options(terms=terms))
    assert "\n" not in str(error.value)


# Reports and constants.


def counts(message, reply, **changed):
    told, _ = opened(reply.content)
    return edited(message, reply, {"joint": {**told["joint"], **changed}})


def without_loss(message, reply):
    told, _ = opened(reply.content)
    told["joint"].pop("loss")
    return edited(message, reply, {"joint": told["joint"]})


REPORTS = {
    "no counts": (lambda m, r: edited(m, r, {"joint": None}), "counts"),
    "a NaN loss": (lambda m, r: counts(m, r, loss=float("nan")), "loss"),
    "a loss that is text": (lambda m, r: counts(m, r, loss="small"), "loss"),
    "an infinite loss": (lambda m, r: counts(m, r, loss=float("inf")), "loss"),
    "no loss": (without_loss, "counts"),
    "an unknown count": (lambda m, r: counts(m, r, junk=1.0), "counts"),
    "none of its own": (lambda m, r: edited(m, r, {"own": None}), "counts"),
}


@pytest.mark.parametrize("case", REPORTS)
def test_a_report_that_is_none_is_refused_by_name_and_asked_for_again(case, tmp_path):
    spoil, why = REPORTS[case]
    frames, grid = tables(tmp_path)
    spoils(grid, "b", "report", spoil, times=1)
    found = fit_over(grid, tmp_path / "out", compare_local=True)
    (event,) = logged(tmp_path / "out", "reply_refused")
    assert event["client"] == "b" and why in event["why"]
    expected = fit_here(frames, compare_local=True)
    assert found.loss == pytest.approx(expected.loss, rel=1e-9)
    assert [s.rows for s in found.sites] == [30, 25, 20]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"L": -1.0}, "L is -1.0"),
        ({"mu": 1e9}, "mu is 1000000000.0, its L"),
        ({"mu": -0.5}, "mu is -0.5"),
        ({"mu": float("nan")}, "'mu' is nan"),
    ],
    ids=["L below 0", "mu above L", "mu below 0", "mu NaN"],
)
def test_curvature_that_cannot_be_is_refused_by_name(told, why, tmp_path):
    grid = grid_of(tmp_path, arrays())
    spoils(grid, "site 1", "constants", lambda m, r: edited(m, r, told), times=1)
    found = run(grid, accord.PDMM(), 80, tmp_path / "out", SHORT)
    (event,) = logged(tmp_path / "out", "reply_refused")
    assert event["client"] == "site 1"
    assert why in event["why"]
    at_optimum(found.x, arrays())


# What a site accepts.


@pytest.mark.parametrize(
    "algorithm",
    [
        accord.AGPDMM(local_steps=3, penalty=2.0, batch_size=4),
        accord.FedPD(oracle=accord.oracles.VarianceReduced(batch_size=4, local_steps=3)),
    ],
    ids=lambda a: type(a).__name__,
)
def test_a_batch_of_too_few_rows_is_refused_by_the_site(algorithm, tmp_path):
    grid = grid_of(tmp_path, arrays())
    sentence = (
        "batch_size: got 4; gradients that leave this site are of 10 rows or more "
        "(least-batch in its node configuration)"
    )
    with pytest.raises(FailedError, match="batch_size: got 4"):
        run(grid, algorithm, 3, tmp_path / "out", SHORT)
    assert {e["why"] for e in logged(tmp_path / "out", "node_refused")} == {sentence}

    # A server that asks all the same is refused by the site itself.
    def lowered(name, message):
        least = 4 if about(message)["kind"] == "hello" else 10
        grid._contexts[name].node_config["least-batch"] = least
        return message

    grid.before = lowered
    with pytest.raises(FailedError, match="batch_size: got 4"):
        run(grid, algorithm, 3, tmp_path / "again", SHORT)
    whys = {e["why"] for e in logged(tmp_path / "again", "reply_refused")}
    assert whys == {f"the site says: {sentence}"}


def test_a_site_may_allow_smaller_batches(tmp_path):
    algorithm = accord.AGPDMM(local_steps=3, penalty=2.0, step_size=0.05, batch_size=4)
    grid = grid_of(tmp_path, arrays())
    for context in grid._contexts.values():
        context.node_config["least-batch"] = 4
    found = run(grid, algorithm, 3)
    expected = accord.run(algorithm, problem(arrays()), 3)
    assert np.abs(found.x - expected.x).max() <= 1e-12
    terms = dataclasses.replace(SHORT, min_clients=3, start_wait=0.3)
    for least in (0, "4", 2.5, True):
        grid._contexts["site 1"].node_config["least-batch"] = least
        with pytest.raises(FailedError):
            run(grid, algorithm, 3, tmp_path / repr(least), terms)
        why = logged(tmp_path / repr(least), "node_refused")[0]["why"]
        assert f"least-batch is {least!r}" in why


def whole_letter(grid):
    """A letter of a round as a server sends it to node 100, with its arrays."""
    kept = []

    def before(name, message):
        if about(message)["kind"] == "round" and name == "site 0":
            kept.append(opened(message.content))
        return message

    then, grid.before = grid.before, before
    run(grid, PDMM, 1)
    grid.before = then
    told, record = kept[0]
    return told, {name: record[name].numpy() for name in record}


def test_a_letter_that_lacks_anything_gets_a_reply_that_says_so(tmp_path):
    grid = grid_of(tmp_path, arrays())
    told, values = whole_letter(grid)
    told |= {"run": "another", "texts": ["{}", *told["texts"]]}
    parts = "kind", "run", "texts", "plan", "method", "epoch", "round", "seed", "model", "work"
    for key in parts:
        reply, _ = asked(grid, {k: v for k, v in told.items() if k != key}, values)
        assert (reply["client"], reply["status"]) == ("site 0", "failed"), key
        assert key in reply["why"] and "\n" not in reply["why"]
    for name in values:
        rest = {n: a for n, a in values.items() if n != name}
        reply, _ = asked(grid, told, rest)
        assert reply["status"] == "failed" and name in reply["why"]
    for nonsense in ({}, {"kind": None}, {"kind": "round", "run": "../x", "texts": []}):
        assert asked(grid, nonsense)[0]["status"] == "failed"
    # With nothing lacking it is answered.
    assert asked(grid, told, values)[0]["status"] == "ok"


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ({"what": "least", "radius": 1.0}, "spread"),
        ({"what": "survey"}, "x"),
        ({"what": "nonsense"}, "nonsense"),
        ({}, "what"),
        ({"what": "derivatives"}, "second"),
        ({"what": "report", "compare_local": False}, "model"),
    ],
    ids=lambda q: q.get("what", "nothing") if isinstance(q, dict) else "",
)
def test_a_question_that_lacks_anything_gets_a_reply_that_says_so(question, why, tmp_path):
    grid = grid_of(tmp_path, arrays())
    told = {"kind": "ask", "run": "a1", "texts": ["{}"], "plan": digest_of("{}"), **question}
    values = {} if question.get("what") == "survey" else {"x": np.zeros(COLUMNS)}
    reply, record = asked(grid, told, values, kind="query")
    assert (reply["client"], reply["status"]) == ("site 0", "failed")
    assert why in reply["why"] and not record


def test_a_greeting_without_a_request_gets_a_reply_that_says_so(tmp_path):
    _, grid = tables(tmp_path)
    for told in ({"kind": "hello"}, {"kind": "hello", "request": None}):
        reply, _ = asked(grid, told, kind="query")
        assert (reply["client"], reply["status"]) == ("a", "failed")
    assert "\n" not in reply["why"]


def test_a_spread_of_another_shape_is_refused(tmp_path):
    grid = grid_of(tmp_path, arrays())
    told = {
        "kind": "ask", "what": "least", "radius": 1.0, "run": "a1", "texts": ["{}"],
        "plan": digest_of("{}"),
    }  # fmt: skip
    values = {"x": np.zeros(COLUMNS), "spread": np.eye(COLUMNS + 1)}
    reply, _ = asked(grid, told, values, kind="query")
    assert reply["status"] == "failed" and "'spread' has shape (4, 4)" in reply["why"]


def test_a_round_of_a_method_without_a_state_is_done_once(tmp_path, monkeypatch):
    grid, replies, steps = grid_of(tmp_path, arrays()), [], []
    real = client.Worker.step
    monkeypatch.setattr(
        client.Worker, "step", lambda self, *args: steps.append(args[5]) or real(self, *args)
    )

    def twice(message, reply):
        again = grid._apps["site 1"](message, grid._contexts["site 1"])
        replies.extend([reply, again])
        return [again]

    Fault(grid, "site 1", 4, after=twice)
    found = run(grid, accord.GradientDescent(step_size=0.05), 8, tmp_path / "out")
    (one, first), (other, second) = (opened(r.content) for r in replies)
    assert other == {**one, "again": True}
    assert {n: first[n].data for n in first} == {n: second[n].data for n in second}
    assert steps.count(4) == 3
    assert [e["client"] for e in logged(tmp_path / "out", "reply_repeated")] == ["site 1"]
    expected = accord.run(accord.GradientDescent(step_size=0.05), problem(arrays()), 8)
    assert np.abs(found.x - expected.x).max() <= 1e-12


def test_a_simulation_reads_its_sites_once(tmp_path, monkeypatch):
    calls = []
    real = client.read_sites
    monkeypatch.setattr(client, "read_sites", lambda *args: calls.append(args) or real(*args))
    frames = {name: table(k, 30 - 5 * k) for k, name in enumerate("abc")}
    union = pl.concat([f.with_columns(site=pl.lit(n)) for n, f in frames.items()])
    union.write_csv(tmp_path / "all.csv")
    app = client_app()
    grid = LocalGrid(
        dict.fromkeys("012", app), {key: {} for key in "012"},
        {"data": str(tmp_path / "all.csv"), "client": "site"},
    )  # fmt: skip
    for k, context in enumerate(grid._contexts.values()):
        context.node_config = {"partition-id": k, "state": str(tmp_path / "state")}
    letters = []
    grid.before = lambda name, message: letters.append(name) or message
    found = fit_over(grid, tmp_path / "out")
    assert len(letters) > 15 and len(calls) == 1
    np.testing.assert_allclose(found.model.x, fit_here(frames).model.x, atol=1e-8)
    assert [s.client for s in found.sites] == ["a", "b", "c"]


# The log.


def refuse(constant):
    raise AssertionError(f"{constant} is no JSON")


def strict(path) -> list[dict]:
    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def test_the_log_is_json_whatever_the_numbers(tmp_path):
    events = Events(tmp_path / "log.jsonl")
    events("certified", distance=float("inf"), gap=float("nan"), rounds=3)
    events("round", round=1, objective=np.float64("-inf"), gradient_norm=0.5)
    one, other = strict(tmp_path / "log.jsonl")
    assert (one["distance"], one["gap"], one["rounds"]) == (None, None, 3)
    assert (other["objective"], other["gradient_norm"]) == (None, 0.5)
    # What was seen is read again, up to a line that was not written to its end.
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"event": "client_le')
    assert [e["event"] for e in Events(tmp_path / "log.jsonl").seen] == ["certified"]


def test_every_round_is_logged_with_who_worked(tmp_path):
    grid, output = grid_of(tmp_path, arrays(4)), tmp_path / "out"
    algorithm = accord.SCAFFOLD(local_steps=2, step_size=0.02)
    found = run(grid, algorithm, 12, output, participation=0.5, every=5)
    events = [e for e in strict(output / "log.jsonl") if e["event"] == "round"]
    assert [e["round"] for e in events] == list(range(13))
    # All four measure in some rounds, in which two work, as in any other.
    assert [e["round"] for e in events if "objective" in e] == [0, 5, 10, 12]
    assert {(e["heard"], e["of"]) for e in events} == {(2, 2)}
    history = found.run.history
    assert list(history["round"]) == [5, 10, 12]
    told = [e["objective"] for e in events if "objective" in e]
    assert told[1:] == list(history["objective"])
