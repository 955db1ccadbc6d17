"""What outlives a server, a site or a table: resumes, locks, notes, counted bytes, and membership."""

import dataclasses
import shutil

import numpy as np
import polars as pl
import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

import accord
from accord.flower import AccordStrategy, Options, client_app, durable, post
from accord.flower.server import carry_out
from accord.flower.sites import DivergedError, FailedError
from accord.flower.tasks import OwnRun, TableFit
from accord.report.fits import MEASURED
from flower_sites import (
    COLUMNS,
    TERMS,
    EndedError,
    Fault,
    about,
    arrays,
    edited,
    ending,
    grid_of,
    logged,
    problem,
    run,
)
from grid import LocalGrid

PDMM = accord.PDMM(penalty=2.0)
QUICK = dataclasses.replace(TERMS, deadline=0.4, leave_after=2)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """Who is there is looked at more often than people start nodes."""
    monkeypatch.setattr(post, "_LOOK", 0.01)


def best(rows):
    return np.asarray(problem(rows).reference().x)


def at_optimum(x, rows):
    assert np.abs(np.asarray(x) - best(rows)).max() <= 1e-8


def at_round(round_: int, epoch: int = 0):
    """Whether a letter is of a round."""
    return lambda m: (about(m).get("epoch"), about(m).get("round")) == (epoch, round_)


def ended(grid, when, *args, **options) -> None:
    """A run whose server ends as a letter arrives."""
    ending(grid, when)
    with pytest.raises(EndedError):
        run(grid, *args, **options)


def leaves(grid, name: str, round_: int) -> None:
    """A node that is gone for good as its letter of a round arrives."""
    Fault(grid, name, round_, before=lambda message: grid.gone.add(name))


def norm_at(x, rows) -> float:
    return float(np.linalg.norm(problem(rows).survey(x)[1]))


# Tables that change.


def write_rows(path, X, y) -> None:
    with path.open("wb") as file:
        np.savez(file, X=X, y=y)


def from_file(context):
    with np.load(context.node_config["data"]) as stored:
        return problem([(stored["X"], stored["y"])])


def test_a_table_that_changes_while_a_run_goes_on_counts_as_it_is_now(tmp_path):
    rows, configs = arrays(), {}
    for k, (X, y) in enumerate(rows):
        write_rows(tmp_path / f"{k}.npz", X, y)
        configs[f"site {k}"] = {
            "data": str(tmp_path / f"{k}.npz"),
            "state": str(tmp_path / "state"),
        }
    grid = LocalGrid(dict.fromkeys(configs, client_app(from_file)), configs)
    new = arrays(seed=5)[1]
    new = np.concatenate([new[0], new[0][:4] + 1]), np.concatenate([new[1], new[1][:4] - 2])

    def changes(message):
        write_rows(tmp_path / "1.npz", *new)
        return message

    Fault(grid, "site 1", 4, before=changes)
    found = run(grid, PDMM, 80, tmp_path / "out")
    at_optimum(found.x, [rows[0], new, rows[2]])
    assert found.run.problem.clients.sizes.tolist() == [8, 20, 8]
    (note,) = found.session.notes()
    assert note == "The method started anew: the table of site 1 has changed."
    assert not logged(tmp_path / "out", "client_left")


def table(seed: int, rows: int) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    age, dose = rng.normal(50 + 6 * seed, 9, rows), rng.gamma(2 + seed, 1.5, rows)
    length = 0.04 * age - (0.3 + 0.1 * seed) * dose + rng.normal(size=rows)
    return pl.DataFrame({"age": age, "dose": dose, "length": length})


def tables(folder, sizes=(30, 25, 20)) -> tuple[dict[str, pl.DataFrame], LocalGrid]:
    """Tables of different sites, and a grid whose nodes hold them."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = {name: table(k, n) for k, (name, n) in enumerate(zip("abc", sizes, strict=True))}
    configs = {}
    for name, frame in frames.items():
        frame.write_csv(folder / f"{name}.csv")
        configs[name] = {"data": str(folder / f"{name}.csv"), "state": str(folder / "state")}
    return frames, LocalGrid(dict.fromkeys(frames, client_app()), configs)


def fit_of(algorithm=None) -> TableFit:
    return TableFit(
        accord.analysis.summaries.Request(target="length"), algorithm=algorithm, compare_local=False
    )


def fit_over(grid, task, output):
    return carry_out(grid, task, Options(output, TERMS))


def test_a_fit_whose_table_changes_is_that_of_the_new_union(tmp_path):
    frames, grid = tables(tmp_path)
    frames["c"] = table(7, 45)

    def changes(message):
        frames["c"].write_csv(tmp_path / "c.csv")
        return message

    Fault(grid, "c", 2, before=changes)
    found = fit_over(grid, fit_of(PDMM), tmp_path / "out")
    union = pl.concat([f.with_columns(site=pl.lit(n)) for n, f in frames.items()])
    expected = accord.fit(union, "length", "site", compare_local=False)
    assert found.status.name == "converged"
    np.testing.assert_allclose(found.model.x, expected.model.x, atol=1e-7)
    assert [(s.client, s.rows) for s in found.sites] == [("a", 30), ("b", 25), ("c", 45)]
    assert any("the table of c has changed" in note for note in found.notes)


# Resumes.


def test_notes_outlive_the_server(tmp_path):
    def scene(folder):
        grid = grid_of(folder, arrays(4))
        grid.gone.add("site 3")

        def loses(message):
            shutil.rmtree(next((folder / "state").glob("site_1-*")) / about(message)["run"])
            return message

        def comes(message):
            grid.gone.remove("site 3")
            return message

        Fault(grid, "site 1", 2, before=loses)
        leaves(grid, "site 2", 4)
        then = grid.before

        def before(name, message):
            if at_round(3, epoch=1)(message) and "site 3" in grid.gone:
                comes(message)
            return then(name, message)

        grid.before = before
        return grid

    calm = run(scene(tmp_path / "a"), PDMM, output=tmp_path / "a" / "out", terms=QUICK)
    grid, output = scene(tmp_path / "b"), tmp_path / "b" / "out"
    ended(grid, at_round(2, epoch=2), PDMM, output=output, terms=QUICK)
    found = run(grid, PDMM, output=output, terms=QUICK)
    assert logged(output, "resumed")
    told = found.session.notes()
    assert told == calm.session.notes()
    for part in (
        "site 2 left for good",
        "site 3 joined late, with 8 rows",
        "site 1 lost its state",
    ):
        assert any(part in note for note in told)
    at_optimum(found.x, [arrays(4)[k] for k in (0, 1, 3)])


def test_a_resume_without_a_site_begins_where_the_checkpoint_is(tmp_path):
    grid, output = grid_of(tmp_path, arrays()), tmp_path / "out"
    ended(grid, at_round(15), PDMM, 40, output)
    stored = durable.load(output / "checkpoint.npz")[1]
    (x,) = (value for name, value in stored.items() if name.startswith("server.x"))
    grid.gone.add("site 2")
    terms = dataclasses.replace(TERMS, start_wait=0.3)
    found = run(grid, PDMM, 40, output, terms)
    rest = arrays()[:2]
    assert np.abs(x).max() > 0.1
    assert found.run.start["gradient_norm"] == pytest.approx(norm_at(x, rest), rel=1e-12)
    # Fifteen rounds of the forty were done before.
    assert found.run.history["round"][-1] == 25
    at_optimum(found.x, rest)


def test_rounds_done_count_where_a_site_joins_as_the_run_is_resumed(tmp_path):
    grid, output = grid_of(tmp_path, arrays(4)), tmp_path / "out"
    grid.gone.add("site 3")
    # Without a penalty of its own the method asks the sites for constants, before any round.
    ended(grid, at_round(15), accord.PDMM(), 80, output)
    grid.gone.clear()
    found = run(grid, accord.PDMM(), 80, output)
    assert [e["client"] for e in logged(output, "client_joined")] == ["site 3"]
    assert found.run.history["round"][-1] == 65
    at_optimum(found.x, arrays(4))


def test_another_initial_begins_again(tmp_path):
    grid, output = grid_of(tmp_path, arrays()), tmp_path / "out"

    def once(initial):
        return carry_out(grid, OwnRun(PDMM, initial, 20), Options(output, TERMS))

    ending(grid, at_round(5))
    with pytest.raises(EndedError):
        once(np.zeros(COLUMNS))
    found = once(np.full(COLUMNS, 10.0))
    expected = norm_at(np.full(COLUMNS, 10.0), arrays())
    assert found.start["gradient_norm"] == pytest.approx(expected, rel=1e-12)
    assert found.history["round"][-1] == 20
    assert [e["resumed"] for e in logged(output, "begin")] == [False]


def test_an_older_checkpoint_that_is_put_back_changes_nothing_for_pdmm(tmp_path):
    calm = run(grid_of(tmp_path / "calm", arrays()), PDMM, 20)
    grid, output = grid_of(tmp_path, arrays()), tmp_path / "out"
    found = put_back(grid, output, PDMM, 20)
    assert logged(output, "resumed")[-1]["round"] == 5
    assert not logged(output, "client_left") and not logged(output, "start_anew")
    assert np.abs(found.x - calm.x).max() <= 1e-12
    assert found.run.history["round"][-1] == 20


def put_back(grid, output, algorithm, rounds: int, older_round: int = 5, **options):
    """A run where an older checkpoint comes in place of that of round 8, as from a backup."""
    ended(grid, at_round(older_round), algorithm, rounds, output, **options)
    older = (output / "checkpoint.npz").read_bytes()
    ended(grid, at_round(8), algorithm, rounds, output, **options)
    (output / "checkpoint.npz").write_bytes(older)
    return run(grid, algorithm, rounds, output, **options)


def test_an_older_checkpoint_that_is_put_back_begins_feddyn_anew(tmp_path):
    grid, output, algorithm = grid_of(tmp_path, arrays()), tmp_path / "out", accord.FedDyn()
    found = put_back(grid, output, algorithm, 1500, stop=accord.Stop(gradient_norm=1e-10))
    (event,) = logged(output, "start_anew")
    assert "FedDyn cannot restore" in event["why"]
    assert not logged(output, "client_left")
    at_optimum(found.x, arrays())


def test_a_checkpoint_from_before_the_first_round_that_is_put_back_begins_anew(tmp_path):
    grid, output = grid_of(tmp_path, arrays()), tmp_path / "out"
    found = put_back(grid, output, PDMM, 60, older_round=0)
    (event,) = logged(output, "start_anew")
    assert "site 0 has done rounds that the checkpoint knows nothing of" in event["why"]
    assert not logged(output, "client_left")
    at_optimum(found.x, arrays())


def test_a_letter_that_comes_late_changes_nothing_at_the_site(tmp_path):
    calm = run(grid_of(tmp_path / "calm", arrays()), accord.FedDyn(), 20)
    grid, output, kept = grid_of(tmp_path, arrays()), tmp_path / "out", []
    Fault(grid, "site 1", 5, before=lambda m: kept.append(m) or m)

    def late(message):
        grid._apps["site 1"](kept[0], grid._contexts["site 1"])
        return message

    Fault(grid, "site 1", 9, before=late)
    found = run(grid, accord.FedDyn(), 20, output)
    assert len(kept) == 1 and not logged(output, "start_anew")
    np.testing.assert_array_equal(found.xs, calm.xs)


def test_an_error_while_results_are_written_keeps_the_run(tmp_path):
    grid, output = grid_of(tmp_path, arrays()), tmp_path / "out"
    task = OwnRun(PDMM, np.zeros(COLUMNS), 12)

    def in_the_way(name, message):
        (output / "model.npz").mkdir(exist_ok=True)
        return message

    grid.before = in_the_way
    with pytest.raises(OSError, match="model"):
        carry_out(grid, task, Options(output, TERMS))
    assert (output / "checkpoint.npz").exists()
    (output / "model.npz").rmdir()
    asked = set()

    def before(name, message):
        asked.add((about(message).get("what"), about(message).get("round")))
        return message

    grid.before = before
    found = carry_out(grid, task, Options(output, TERMS))
    # No round is done again: of the last model the measures alone are asked for.
    assert {round_ for _, round_ in asked} == {None, 12} and ("survey", None) not in asked
    with np.load(output / "model.npz") as stored:
        (x,) = stored.values()
    calm = run(grid_of(tmp_path / "calm", arrays()), PDMM, 12)
    np.testing.assert_array_equal(x, calm.x)
    np.testing.assert_array_equal(found.x, calm.x)
    assert list(found.history["round"]) == list(range(1, 13))
    assert not (output / "checkpoint.npz").exists()


def test_the_second_session_in_a_folder_is_refused(tmp_path):
    grid, output = grid_of(tmp_path, arrays()), tmp_path / "out"
    told = []

    def second(message):
        other = grid_of(tmp_path / "other", arrays())
        with pytest.raises(FailedError, match="output: another run uses") as error:
            run(other, PDMM, 12, output)
        told.append(str(error.value))
        return message

    Fault(grid, "site 1", 4, before=second)
    found = run(grid, PDMM, 12, output)
    assert len(told) == 1 and "\n" not in told[0] and str(output) in told[0]
    np.testing.assert_array_equal(found.x, run(grid_of(tmp_path / "c", arrays()), PDMM, 12).x)
    assert len(logged(output, "begin")) == 1
    # The folder is free again.
    run(grid, PDMM, 12, output)


def test_a_checkpoint_of_newton_holds_no_hessians(tmp_path):
    width, sizes = 40, []
    rng = np.random.default_rng(0)
    rows = [(rng.normal(size=(30 + 9 * k, width)), rng.normal(size=30 + 9 * k)) for k in range(3)]
    grid = grid_of(tmp_path, rows)
    checkpoint = tmp_path / "out" / "checkpoint.npz"

    def before(name, message):
        if about(message)["kind"] == "round":
            sizes.append(checkpoint.stat().st_size)
        return message

    grid.before = before
    task = OwnRun(accord.Newton(), np.zeros(width), 4)
    found = carry_out(grid, task, Options(tmp_path / "out", TERMS))
    at_optimum(found.x, rows)
    # A single site's Hessian alone would be more.
    assert len(sizes) >= 12 and max(sizes) < 8 * width**2


# Bytes.


def test_bytes_are_those_of_the_epoch(tmp_path):
    grid = grid_of(tmp_path, arrays())
    leaves(grid, "site 2", 5)
    found = run(grid, PDMM, 12, tmp_path / "out", QUICK)
    calm = run(grid_of(tmp_path / "calm", arrays()[:2]), PDMM, 12)
    up, down = (found.run.history[f"{way}_bytes"] for way in ("uplink", "downlink"))
    # Each of two sites sends a message and a gradient a round; at first also F at the common start.
    leaf = COLUMNS * 8
    assert up[0] == 2 * 3 * leaf and np.all(np.diff(up) == 2 * 2 * leaf)
    for way, column in (("uplink", up), ("downlink", down)):
        expected = calm.run.history[f"{way}_bytes"][: len(column)] + 2 * leaf
        np.testing.assert_array_equal(column, expected)


@pytest.mark.parametrize("algorithm", [PDMM, accord.PDMM()], ids=["penalty", "constants"])
def test_bytes_after_a_resume_are_those_of_an_undisturbed_run(algorithm, tmp_path):
    calm = run(grid_of(tmp_path / "calm", arrays()), algorithm, 12, tmp_path / "calm" / "out")
    grid, output = grid_of(tmp_path, arrays()), tmp_path / "out"
    ended(grid, at_round(5), algorithm, 12, output)
    ended(grid, at_round(9), algorithm, 12, output)
    found = run(grid, algorithm, 12, output)
    for way in ("uplink_bytes", "downlink_bytes"):
        np.testing.assert_array_equal(found.run.history[way], calm.run.history[way])
    assert found.session.sites.traffic["fit"] == calm.session.sites.traffic["fit"]


def test_the_exchanges_of_a_resumed_fit_are_counted_through(tmp_path):
    _, grid = tables(tmp_path / "calm")
    calm = fit_over(grid, fit_of(PDMM), tmp_path / "calm" / "out")
    _, grid = tables(tmp_path)
    ending(grid, at_round(6))
    with pytest.raises(EndedError):
        fit_over(grid, fit_of(PDMM), tmp_path / "out")
    found = fit_over(grid, fit_of(PDMM), tmp_path / "out")
    assert logged(tmp_path / "out", "resumed")[0]["round"] == 6
    x = np.asarray(found.model.x)
    ours, theirs = (f.solution.run.history for f in (found, calm))
    for way in ("uplink_bytes", "downlink_bytes"):
        np.testing.assert_array_equal(ours[way], theirs[way])
    # What the method's choice and the stop hang on is asked for once more, and counted.
    again = dict.fromkeys([e.part for e in calm.exchanges], (0, 0, 0))
    again |= {"constants": (1, 0, 0), MEASURED: (1, 3 * x.nbytes, 3 * x.nbytes)}
    again["certificate"] = 1, 3 * (2 * x.nbytes + 8 * x.size**2), 3 * x.nbytes
    assert [e.part for e in found.exchanges] == list(again)
    for e, same in zip(found.exchanges, calm.exchanges, strict=True):
        assert e[1:] == tuple(map(sum, zip(same[1:], again[e.part], strict=True)))
    np.testing.assert_array_equal(x, calm.model.x)


# Divergence.


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("step_size", [1e50, 1e160])
def test_a_run_that_diverges_says_so_and_nobody_has_left(step_size, every, tmp_path):
    grid, output = grid_of(tmp_path, arrays()), tmp_path / "out"
    algorithm = accord.GradientDescent(step_size=step_size)
    with pytest.warns(UserWarning, match="above the stable bound"):
        try:
            found = run(grid, algorithm, 20, output, every=every)
        except DivergedError as error:
            # No round after the start was measured.
            assert "NaN or infinite" in str(error) and "lower step_size" in str(error)
            assert "\n" not in str(error) and (step_size, every) != (1e50, 1)
        else:
            assert found.run.status.name == "diverged" and (step_size, every) == (1e50, 1)
    assert not logged(output, "client_left")


def test_a_run_that_overflows_after_it_was_measured_is_not_finite(tmp_path):
    grid, output = grid_of(tmp_path, arrays()), tmp_path / "out"

    def overflows(name, message, reply):
        if about(message).get("round", 0) < 7:
            return [reply]
        return [edited(message, reply, message=np.full(COLUMNS, np.inf))]

    grid.after = overflows
    found = run(grid, accord.GradientDescent(step_size=0.1), 20, output, every=5)
    assert found.run.status.name == "not_finite"
    assert list(found.run.history["round"]) == [5]
    assert not logged(output, "client_left")


# Membership.


def test_a_site_that_fails_for_a_moment_does_not_leave(tmp_path):
    calm = run(grid_of(tmp_path / "calm", arrays()), PDMM)
    grid, output = grid_of(tmp_path, arrays()), tmp_path / "out"
    failed = {"status": "failed", "why": "no space left on the disk"}
    Fault(grid, "site 1", 3, after=lambda m, r: [edited(m, r, failed)], times=12)
    found = run(grid, PDMM, output=output)
    refused = logged(output, "reply_refused")
    assert len(refused) == 12 and all("no space left" in e["why"] for e in refused)
    assert not logged(output, "client_left")
    np.testing.assert_array_equal(found.xs, calm.xs)


def test_replies_that_only_measure_make_no_quorum(tmp_path):
    algorithm, rows = accord.SCAFFOLD(local_steps=2), arrays(4)
    calm = run(grid_of(tmp_path / "calm", rows), algorithm, 6, participation=0.5)
    grid, output = grid_of(tmp_path, rows), tmp_path / "out"
    withheld = []

    def after(name, message, reply):
        # Whoever works in round 2 answers after more than half of the deadline.
        if at_round(2)(message) and about(message)["work"] and len(withheld) < 2 * 8:
            withheld.append(name)
            return []
        return [reply]

    grid.after = after
    terms = dataclasses.replace(TERMS, deadline=4.0, resend=0.3)
    found = run(grid, algorithm, 6, output, terms, participation=0.5)
    assert len(set(withheld)) == 2 and len(withheld) == 16
    assert not logged(output, "round_again") and not logged(output, "no_reply")
    np.testing.assert_array_equal(found.xs, calm.xs)


def test_flowers_own_loop_goes_through_two_changes_in_a_row(tmp_path):
    rows = arrays(4)
    grid = grid_of(tmp_path, rows)
    gone = {"site 3": at_round(2), "site 2": lambda m: "site 3" in grid.gone}

    def before(name, message):
        if (
            name in gone
            and gone[name](message)
            and (name == "site 3" or about(message)["kind"] == "ask")
        ):
            grid.gone.add(name)
        return None if name in grid.gone else message

    grid.before = before
    terms = dataclasses.replace(TERMS, deadline=0.2, leave_after=1)
    # Without a penalty of its own the method asks for constants as it starts anew.
    strategy = AccordStrategy(accord.PDMM(), np.zeros(COLUMNS), options=Options(terms=terms))
    strategy.start(grid, strategy.initial_arrays, num_rounds=80)
    assert grid.gone == {"site 2", "site 3"}
    session = strategy._session
    assert session.sites.members == ["site 0", "site 1"]
    assert [e["client"] for e in session.events.of("client_left")] == ["site 3", "site 2"]
    at_optimum(strategy.model, rows[:2])


def test_what_a_run_is_for_is_checked_at_once():
    with pytest.raises(ValueError, match='weights: got \'row\'; accepted are "rows" and "equal"'):
        OwnRun(PDMM, np.zeros(COLUMNS), 5, weights="row")
    for rounds in (0, -1, True, 2.5):
        with pytest.raises((ValueError, TypeError), match="rounds"):
            OwnRun(PDMM, np.zeros(COLUMNS), rounds)


def test_results_of_two_runs_do_not_mix(tmp_path):
    out = tmp_path / "out"
    task = OwnRun(PDMM, np.zeros(COLUMNS), 5)
    carry_out(grid_of(tmp_path, arrays()), task, Options(out, TERMS))
    first = (out / "model.npz").read_bytes()
    assert logged(out, "ended")[0]["status"] == "budget_spent"
    grid = grid_of(tmp_path, arrays())
    grid.gone |= {"site 0", "site 1"}
    terms = dataclasses.replace(TERMS, start_wait=0.2)
    with pytest.raises(FailedError):
        carry_out(grid, task, Options(out, terms))
    assert "1 of at least 2 clients came" in logged(out, "failed")[0]["why"]
    assert not (out / "model.npz").exists() and not (out / "history.csv").exists()
    assert (out / "earlier" / "model.npz").read_bytes() == first


def test_a_node_that_is_of_no_use_is_in_the_notes(tmp_path):
    grid = grid_of(tmp_path, arrays())
    grid.after = lambda name, message, reply: (
        [edited(message, reply, {"status": "failed", "why": "data: no such file"})]
        if name == "site 2"
        else [reply]
    )
    found = run(grid, PDMM)
    assert "A node that came was of no use. site 2: data: no such file." in found.session.notes()
    at_optimum(found.x, arrays()[:2])


def test_an_output_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    task = OwnRun(PDMM, np.zeros(COLUMNS), 5)
    with pytest.raises(ValueError, match=r"output: .*; give another folder"):
        carry_out(grid_of(tmp_path, arrays()), task, Options(tmp_path / "file" / "out", TERMS))
