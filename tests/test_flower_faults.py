"""What may happen to letters, sites and the server: the run ends at the optimum and says what happened."""

import dataclasses
import itertools
import json
import shutil

import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict

import accord
from accord.flower import post
from accord.flower.sites import FailedError, Terms
from accord.flower.wire import opened
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

PDMM = accord.PDMM(penalty=2.0)
QUICK = dataclasses.replace(TERMS, deadline=0.4)


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    """Who is there is looked at more often than people start nodes."""
    monkeypatch.setattr(post, "_LOOK", 0.01)


def at_optimum(found, rows):
    best = np.asarray(problem(rows).reference().x)
    assert np.abs(np.asarray(found.x) - best).max() <= 1e-8


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The models of a run to which nothing happened, by algorithm."""
    known = {}

    def models(algorithm, rounds=60):
        key = algorithm, rounds
        if key not in known:
            grid = grid_of(tmp_path_factory.mktemp("calm"), arrays())
            known[key] = run(grid, algorithm, rounds).xs
        return known[key]

    return models


def strange_array(message, reply):
    """A reply whose array claims a dtype that there is none of."""
    _, record = opened(reply.content)
    broken = {
        name: Array("no-such-dtype", (-1,), record[name].stype, record[name].data)
        for name in record
    }
    content = RecordDict({"accord": reply.content["accord"], "arrays": ArrayRecord(broken)})
    return [Message(content, reply_to=message)]


def no_letter(message, reply):
    return [Message(RecordDict({"other": ConfigRecord({"a": 1})}), reply_to=message)]


REFUSED = {
    "NaN": (lambda m, r: [edited(m, r, message=np.full(COLUMNS, np.nan))], "NaN"),
    "infinite": (lambda m, r: [edited(m, r, gradient=np.full(COLUMNS, np.inf))], "infinite"),
    "wrong shape": (lambda m, r: [edited(m, r, message=np.zeros(COLUMNS + 1))], "shape"),
    "wrong dtype": (lambda m, r: [edited(m, r, message=np.zeros(COLUMNS, "float32"))], "float32"),
    "unknown array": (
        lambda m, r: [edited(m, r, messages=np.zeros(3))],
        "unknown array 'messages'",
    ),
    "another unknown array": (
        lambda m, r: [edited(m, r, junk=np.zeros(3))],
        "unknown array 'junk'",
    ),
    "too large": (lambda m, r: [edited(m, r, message=np.zeros(100 * 1024))], "bytes"),
    "no letter": (no_letter, "no letter of Accord"),
    "another round": (lambda m, r: [edited(m, r, {"round": 4})], "round 4"),
    "another epoch": (lambda m, r: [edited(m, r, {"epoch": 1})], "epoch 1"),
    "another client": (lambda m, r: [edited(m, r, {"client": "site 0"})], "'site 0'"),
    "no value": (lambda m, r: [edited(m, r, {"value": None})], "value"),
    "no number": (lambda m, r: [edited(m, r, {"gradients": "many"})], "gradients"),
    "failed": (lambda m, r: [edited(m, r, {"status": "failed", "why": "no disk"})], "no disk"),
}


def test_what_a_record_says_of_its_arrays_is_not_relied_on(tmp_path, undisturbed):
    grid = grid_of(tmp_path, arrays())
    Fault(grid, "site 1", 5, after=strange_array)
    found = run(grid, PDMM, output=tmp_path / "out")
    np.testing.assert_array_equal(found.xs, undisturbed(PDMM))


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_reply_is_refused_by_name_and_asked_for_again(case, tmp_path, undisturbed):
    spoil, why = REFUSED[case]
    grid = grid_of(tmp_path, arrays())
    Fault(grid, "site 1", 5, after=spoil)
    found = run(grid, PDMM, output=tmp_path / "out")
    (event,) = logged(tmp_path / "out", "reply_refused")
    assert event["client"] == "site 1" and why in event["why"]
    # Nothing is lost: what was refused came again, the same.
    np.testing.assert_array_equal(found.xs, undisturbed(PDMM))
    at_optimum(found, arrays())


LOST = {
    "the reply": ({"after": lambda m, r: []}, "reply_repeated"),
    "the letter": ({"before": lambda m: None}, "sent_again"),
    "a reply twice": ({"after": lambda m, r: [r, r]}, "duplicate_reply"),
    "an error": ({"after": lambda m, r: [Message(Error(8, "ended"), reply_to=m)]}, "node_failed"),
}


@pytest.mark.parametrize("algorithm", [PDMM, accord.SCAFFOLD(local_steps=2)], ids=repr)
@pytest.mark.parametrize("case", LOST)
def test_nothing_is_lost_where_a_letter_or_a_reply_is(case, algorithm, tmp_path, undisturbed):
    hook, event = LOST[case]
    grid = grid_of(tmp_path, arrays())
    Fault(grid, "site 2", 0, **hook)
    Fault(grid, "site 1", 7, times=2 if case != "a reply twice" else 1, **hook)
    found = run(grid, algorithm, output=tmp_path / "out")
    assert {e["client"] for e in logged(tmp_path / "out", event)} == {"site 1", "site 2"}
    np.testing.assert_array_equal(found.xs, undisturbed(algorithm))


def test_a_late_reply_is_told_of_and_not_counted(tmp_path):
    grid, kept = grid_of(tmp_path, arrays()), []

    def hold(message, reply):
        kept.append((message.metadata.message_id, reply))
        return []

    def release(name, message):
        if about(message).get("round") == 7 and kept:
            grid.late.update({key: [reply] for key, reply in kept})
            kept.clear()
        return message

    grid.before = release
    Fault(grid, "site 1", 6, after=hold, times=10_000)
    terms = dataclasses.replace(TERMS, deadline=1.0, resend=5.0, quorum=0.6)
    found = run(grid, PDMM, output=tmp_path / "out", terms=terms)
    assert [e["client"] for e in logged(tmp_path / "out", "late_reply")] == ["site 1"]
    assert [e["client"] for e in logged(tmp_path / "out", "no_reply")] == ["site 1"]
    at_optimum(found, arrays())


def test_a_site_that_gets_a_round_twice_does_it_once(tmp_path):
    grid, replies = grid_of(tmp_path, arrays()), []

    def twice(message, reply):
        again = grid._apps["site 1"](message, grid._contexts["site 1"])
        replies.extend([reply, again])
        return [again]

    Fault(grid, "site 1", 4, after=twice)
    found = run(grid, accord.SCAFFOLD(local_steps=2), rounds=8)
    (one, first), (other, second) = (opened(r.content) for r in replies)
    assert other == {**one, "again": True}
    for name in first:
        assert first[name].data == second[name].data
    assert len(found.xs) == 8


def node_folder(tmp_path, name):
    (folder,) = (tmp_path / "state").glob(f"{name.replace(' ', '_')}-*")
    return folder


def disk(tmp_path, damage):
    """A hook that does something to the folder of site 1's run before its letter arrives."""

    def before(message):
        damage(node_folder(tmp_path, "site 1") / about(message)["run"])
        return message

    return before


def cut(folder):
    content = (folder / "state.npz").read_bytes()
    (folder / "state.npz").write_bytes(content[: len(content) // 2])


def flip(folder):
    content = bytearray((folder / "state.npz").read_bytes())
    with np.load(folder / "state.npz") as stored:
        state = stored["/new/"].tobytes()
    content[content.index(state)] ^= 1
    (folder / "state.npz").write_bytes(bytes(content))


def other_format(folder):
    with (folder / "state.npz").open("wb") as file:
        np.savez(file, about=np.frombuffer(b'{"epoch": 0}', np.uint8))


def garbled_texts(folder):
    for path in folder.glob("*.json"):
        path.write_bytes(b"\xff\xfe\x00 no text")


EXACT = [PDMM, accord.AGPDMM(local_steps=3, penalty=2.0)]


@pytest.mark.parametrize(
    ("damage", "algorithm"),
    [(shutil.rmtree, a) for a in EXACT] + [(d, PDMM) for d in (cut, flip, other_format)],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_a_lost_state_is_restored_exactly(damage, algorithm, tmp_path, undisturbed):
    grid = grid_of(tmp_path, arrays())
    Fault(grid, "site 1", 5, before=disk(tmp_path, damage))
    found = run(grid, algorithm, output=tmp_path / "out")
    assert [e["client"] for e in logged(tmp_path / "out", "state_lost")] == ["site 1"]
    np.testing.assert_array_equal(found.xs, undisturbed(algorithm))
    (note,) = found.session.notes()
    assert "site 1 lost its state" in note and "last message" in note


def test_texts_that_are_damaged_at_a_site_are_sent_again(tmp_path, undisturbed):
    grid = grid_of(tmp_path, arrays())
    Fault(grid, "site 1", 5, before=disk(tmp_path, garbled_texts))
    found = run(grid, PDMM, output=tmp_path / "out")
    np.testing.assert_array_equal(found.xs, undisturbed(PDMM))
    assert not logged(tmp_path / "out", "reply_refused")


@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [
        (accord.ADMM(penalty=2.0), 150),
        (accord.FedPD(penalty=2.0), 150),
        (accord.GPDMM(local_steps=3), 250),
        (accord.SCAFFOLD(local_steps=3), 400),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_lost_state_that_is_a_warm_start_leaves_the_optimum(algorithm, rounds, tmp_path):
    grid = grid_of(tmp_path, arrays())
    Fault(grid, "site 1", 5, before=disk(tmp_path, shutil.rmtree))
    found = run(grid, algorithm, rounds, tmp_path / "out", stop=accord.Stop(gradient_norm=1e-10))
    assert [e["client"] for e in logged(tmp_path / "out", "state_lost")] == ["site 1"]
    at_optimum(found, arrays())


@pytest.mark.parametrize(
    "algorithm", [accord.FedDyn(), accord.Scaffnew()], ids=lambda a: type(a).__name__
)
def test_a_method_whose_states_cannot_be_restored_starts_anew(algorithm, tmp_path):
    grid = grid_of(tmp_path, arrays())
    Fault(grid, "site 1", 5, before=disk(tmp_path, shutil.rmtree))
    found = run(grid, algorithm, 1500, tmp_path / "out", stop=accord.Stop(gradient_norm=1e-10))
    (event,) = logged(tmp_path / "out", "start_anew")
    assert "site 1" in event["why"] and type(algorithm).__name__ in event["why"]
    assert not any("given it back" in note for note in found.session.notes())
    at_optimum(found, arrays())


def test_a_node_that_starts_anew_under_another_number(tmp_path, undisturbed):
    grid = grid_of(tmp_path, arrays())

    def restarts(message):
        grid.rename("site 1")

    Fault(grid, "site 1", 5, before=restarts)
    found = run(grid, PDMM, output=tmp_path / "out")
    assert [e["client"] for e in logged(tmp_path / "out", "node_back")] == ["site 1"]
    np.testing.assert_array_equal(found.xs, undisturbed(PDMM))


def test_a_node_that_starts_anew_before_the_old_one_is_forgotten(tmp_path, undisturbed):
    grid, looks = grid_of(tmp_path, arrays()), []

    def restarts(message):
        old = next(n for n, name in grid.names.items() if name == "site 1")
        grid.rename("site 1")
        there = grid.get_node_ids

        def with_the_old():
            looks.append(1)
            return there() + ([old] if len(looks) < 10 else [])

        grid.get_node_ids = with_the_old

    Fault(grid, "site 1", 5, before=restarts)
    found = run(grid, PDMM, output=tmp_path / "out")
    assert "another node" in logged(tmp_path / "out", "node_refused")[0]["why"]
    np.testing.assert_array_equal(found.xs, undisturbed(PDMM))


def test_a_greeting_that_is_lost_is_sent_again(tmp_path, undisturbed):
    grid, lost = grid_of(tmp_path, arrays()), []

    def loses(name, message, reply):
        if about(message)["kind"] == "hello" and name not in lost:
            lost.append(name)
            return []
        return [reply]

    grid.after = loses
    found = run(grid, PDMM, terms=dataclasses.replace(TERMS, min_clients=3))
    assert sorted(lost) == sorted(grid.names.values())
    np.testing.assert_array_equal(found.xs, undisturbed(PDMM))


def breaks(grid, client, from_round, told):
    """A site that answers every round from one on, and every question after it, with an error."""
    broken = []

    def after(name, message, reply):
        if name == client and (about(message).get("round", -1) >= from_round or broken):
            broken.append(1)
            if about(message)["kind"] != "hello":
                return told(message, reply)
        return [reply]

    grid.after = after


def test_a_site_that_errs_for_ever_leaves_and_the_rest_go_on(tmp_path):
    grid = grid_of(tmp_path, arrays())
    breaks(grid, "site 2", 5, lambda m, r: [edited(m, r, {"status": "failed", "why": "no disk"})])
    found = run(grid, PDMM, output=tmp_path / "out", terms=QUICK)
    (event,) = logged(tmp_path / "out", "client_left")
    assert event["client"] == "site 2"
    assert found.session.sites.members == ["site 0", "site 1"]
    at_optimum(found, arrays()[:2])
    assert any("site 2 left for good" in note for note in found.session.notes())


def test_a_site_that_leaves_for_good_no_longer_counts(tmp_path):
    grid = grid_of(tmp_path, arrays())

    def leaves(message):
        grid.gone.add("site 2")

    Fault(grid, "site 2", 5, before=leaves)
    found = run(grid, PDMM, output=tmp_path / "out", terms=QUICK)
    assert [e["client"] for e in logged(tmp_path / "out", "client_left")] == ["site 2"]
    at_optimum(found, arrays()[:2])


def test_too_few_are_left(tmp_path):
    grid = grid_of(tmp_path, arrays())
    terms = dataclasses.replace(QUICK, min_clients=3)

    def leaves(message):
        grid.gone.add("site 2")

    Fault(grid, "site 2", 5, before=leaves)
    with pytest.raises(FailedError, match=r"site 2 left.*min-clients, 3; the run resumes"):
        run(grid, PDMM, output=tmp_path / "out", terms=terms)
    grid.gone.clear()
    found = run(grid, PDMM, output=tmp_path / "out", terms=terms)
    assert logged(tmp_path / "out", "resumed")[0]["round"] == 5
    at_optimum(found, arrays())


def test_a_site_that_comes_late_joins(tmp_path):
    grid = grid_of(tmp_path, arrays())
    grid.gone.add("site 0")

    def comes(message):
        grid.gone.clear()
        return message

    Fault(grid, "site 2", 5, before=comes)
    found = run(grid, PDMM, output=tmp_path / "out")
    assert [e["client"] for e in logged(tmp_path / "out", "client_joined")] == ["site 0"]
    assert any("site 0 joined late, with 8 rows" in note for note in found.session.notes())
    at_optimum(found, arrays())


def test_a_site_that_comes_late_is_refused_where_so_agreed(tmp_path):
    grid = grid_of(tmp_path, arrays())
    grid.gone.add("site 0")

    def comes(message):
        grid.gone.clear()
        return message

    Fault(grid, "site 2", 5, before=comes)
    found = run(grid, PDMM, terms=dataclasses.replace(TERMS, late="refuse"))
    assert found.session.sites.members == ["site 1", "site 2"]
    at_optimum(found, arrays()[1:])


def test_no_more_clients_than_agreed(tmp_path):
    grid = grid_of(tmp_path, arrays())
    terms = dataclasses.replace(TERMS, max_clients=2)
    found = run(grid, PDMM, output=tmp_path / "out", terms=terms)
    assert [e["client"] for e in logged(tmp_path / "out", "client_declined")] == ["site 2"]
    assert any("site 2 was not taken: max-clients is 2" in n for n in found.session.notes())
    at_optimum(found, arrays()[:2])


def test_too_few_come_and_the_reasons_are_listed(tmp_path):
    grid = grid_of(tmp_path, arrays(4), names=["a", "b", "c", "d"])
    version = {"version": "0.0.1"}
    spoilt = {
        "b": {"status": "failed", "why": "data: /b.csv does not exist"},
        "c": version,
        "d": {"client": "a"},
    }

    def after(name, message, reply):
        return [edited(message, reply, spoilt.get(name, {}))]

    grid.after = after
    terms = dataclasses.replace(TERMS, start_wait=0.3)
    with pytest.raises(FailedError) as error:
        run(grid, PDMM, output=tmp_path / "out", terms=terms)
    line = str(error.value)
    assert "1 of at least 2 clients" in line and "\n" not in line
    assert "b: data: /b.csv does not exist" in line
    assert "c has Accord 0.0.1" in line
    assert "'a' is the name of another node" in line
    whys = {e["why"] for e in logged(tmp_path / "out", "node_refused")}
    assert len(whys) == 3


def test_a_stranger_among_the_nodes_is_refused(tmp_path):
    grid = grid_of(tmp_path, arrays(), names=["a", "b", "c"])

    def after(name, message, reply):
        if name == "c":
            return no_letter(message, reply)
        if name == "b":
            return [edited(message, reply, {"rows": "many"})]
        return [reply]

    grid.after = after
    with pytest.raises(FailedError, match="rows"):
        run(grid, PDMM, terms=dataclasses.replace(TERMS, start_wait=0.3))


def ending_at(grid, call: int):
    """Ends the server at its call number ``call`` of the grid, before or after it."""
    count = itertools.count()

    def ends(method):
        def called(argument):
            k = next(count)
            if k == call and k % 2:
                raise EndedError
            found = method(argument)
            if k == call:
                raise EndedError
            return found

        return called

    grid.push_messages, grid.pull_messages = ends(grid.push_messages), ends(grid.pull_messages)


@pytest.mark.parametrize(
    ("algorithm", "every"),
    [(PDMM, 1), (accord.SCAFFOLD(local_steps=2), 3)],
    ids=["PDMM", "SCAFFOLD, measured every third round"],
)
def test_the_server_ends_at_any_point_and_resumes_as_if_nothing_happened(
    algorithm, every, tmp_path, undisturbed
):
    rounds, resumed, ended = 8, 0, 0
    calm = undisturbed(algorithm, rounds)
    for call in range(200):
        grid = grid_of(tmp_path / str(call), arrays())
        output = tmp_path / str(call) / "out"
        push, pull = grid.push_messages, grid.pull_messages
        ending_at(grid, call)
        try:
            found = run(grid, algorithm, rounds, output, every=every)
            break
        except EndedError:
            ended += 1
        grid.push_messages, grid.pull_messages = push, pull
        found = run(grid, algorithm, rounds, output, every=every)
        resumed += bool(logged(output, "resumed"))
        np.testing.assert_array_equal(found.x, calm[-1])
        if found.xs is not None:
            np.testing.assert_array_equal(found.xs, calm[-len(found.xs) :])
        assert not logged(output, "reply_refused") and not logged(output, "state_lost")
        assert not (output / "checkpoint.npz").exists()
    assert ended >= 2 * rounds and resumed >= 2 * rounds


def test_the_server_ends_after_a_change_of_membership_and_resumes(tmp_path):
    grid = grid_of(tmp_path, arrays())
    breaks(grid, "site 2", 5, lambda m, r: [edited(m, r, {"status": "failed", "why": "no disk"})])
    calm = run(grid, PDMM, 12, terms=QUICK)
    for round_ in (0, 3):
        folder = tmp_path / str(round_)
        grid = grid_of(folder, arrays())
        breaks(
            grid, "site 2", 5, lambda m, r: [edited(m, r, {"status": "failed", "why": "no disk"})]
        )
        ending(
            grid,
            lambda m, r=round_: (about(m).get("epoch"), about(m).get("round")) == (1, r),
        )
        with pytest.raises(EndedError):
            run(grid, PDMM, 12, folder / "out", terms=QUICK)
        grid.gone.add("site 2")
        found = run(grid, PDMM, 12, folder / "out", terms=QUICK)
        np.testing.assert_array_equal(found.x, calm.x)


def test_another_seed_after_a_stop_starts_the_method_anew(tmp_path):
    grid = grid_of(tmp_path, arrays())
    ending_at(grid, 20)
    push, pull = type(grid).push_messages, type(grid).pull_messages
    with pytest.raises(EndedError):
        run(grid, PDMM, 60, tmp_path / "out")
    grid.push_messages, grid.pull_messages = push.__get__(grid), pull.__get__(grid)
    found = run(grid, PDMM, 60, tmp_path / "out", seed=5)
    assert logged(tmp_path / "out", "start_anew")
    assert not logged(tmp_path / "out", "reply_refused")
    at_optimum(found, arrays())


def test_a_damaged_checkpoint_is_told_of_and_the_run_begins_again(tmp_path):
    grid = grid_of(tmp_path, arrays())
    ending_at(grid, 20)
    with pytest.raises(EndedError):
        run(grid, PDMM, 60, tmp_path / "out")
    path = tmp_path / "out" / "checkpoint.npz"
    path.write_bytes(path.read_bytes()[:-40])
    grid = grid_of(tmp_path, arrays())
    found = run(grid, PDMM, 60, tmp_path / "out")
    assert logged(tmp_path / "out", "checkpoint_damaged")
    at_optimum(found, arrays())


def test_a_site_that_does_not_come_back_after_a_stop_no_longer_counts(tmp_path):
    grid = grid_of(tmp_path, arrays())
    ending_at(grid, 20)
    with pytest.raises(EndedError):
        run(grid, PDMM, 60, tmp_path / "out")
    grid = grid_of(tmp_path, arrays())
    grid.gone.add("site 1")
    terms = dataclasses.replace(QUICK, start_wait=0.3)
    found = run(grid, PDMM, 60, tmp_path / "out", terms=terms)
    (event,) = logged(tmp_path / "out", "client_missing")
    assert event["client"] == "site 1"
    assert any(note.startswith("site 1 had not come back") for note in found.session.notes())
    at_optimum(found, [arrays()[0], arrays()[2]])


@pytest.mark.parametrize("told", [{"L": float("nan")}, {"L": "much"}, {"estimated": None}])
def test_constants_that_are_none_are_refused(told, tmp_path):
    grid = grid_of(tmp_path, arrays())
    once = [told]

    def after(name, message, reply):
        if about(message).get("what") == "constants" and name == "site 0" and once:
            return [edited(message, reply, once.pop())]
        return [reply]

    grid.after = after
    terms = dataclasses.replace(TERMS, resend=0.01)
    found = run(grid, accord.PDMM(), output=tmp_path / "out", terms=terms)
    assert [e["client"] for e in logged(tmp_path / "out", "reply_refused")] == ["site 0"]
    at_optimum(found, arrays())


def test_random_schedules_of_faults_end_at_the_optimum(tmp_path):
    algorithms = [PDMM, EXACT[1], accord.SCAFFOLD(local_steps=3)]
    for seed in range(20):
        rng = np.random.default_rng(seed)
        folder = tmp_path / str(seed)
        grid = grid_of(folder, arrays())

        def loses(name, message, rng=rng, folder=folder):
            told = about(message)
            if told["kind"] == "round" and rng.random() < 0.03:
                shutil.rmtree(node_folder(folder, name) / told["run"], ignore_errors=True)
            return None if rng.random() < 0.03 else message

        def spoils(name, message, reply, rng=rng):
            kind = rng.integers(0, 30)
            if kind == 0:
                return []
            if kind == 1:
                return [reply, reply]
            if kind == 2:
                return [Message(Error(2, "ended"), reply_to=message)]
            if kind == 3:
                return no_letter(message, reply)
            return [reply]

        grid.before, grid.after = loses, spoils
        stop = accord.Stop(gradient_norm=1e-10)
        terms = dataclasses.replace(TERMS, leave_after=20)
        found = run(grid, algorithms[seed % 3], 200, folder / "out", stop=stop, terms=terms)
        at_optimum(found, arrays())
        lines = (folder / "out" / "log.jsonl").read_text().splitlines()
        assert {json.loads(line)["event"] for line in lines} >= {"begin", "members", "round"}


def test_terms_are_checked():
    with pytest.raises(ValueError, match="quorum: got 0"):
        Terms(quorum=0)
    with pytest.raises(ValueError, match="late: got 'perhaps'"):
        Terms(late="perhaps")
