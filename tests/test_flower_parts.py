"""What Accord over Flower is made of: letters, the sites' store, files, settings, the app, shapes."""

import subprocess
import sys
import threading
import tomllib

import jax
import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra flower is not installed")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict

import accord
from accord.engines.job import make_job
from accord.flower import client_app, durable
from accord.flower.events import Events
from accord.flower.project import PACKAGE, write_app
from accord.flower.settings import FIT, RUN, SIMULATION, options_of, table_fit_of
from accord.flower.shapes import Shapes, first_server
from accord.flower.store import Kept, Store, digest_of
from accord.flower.wire import (
    RefusedError,
    described,
    flatten,
    letter,
    opened,
    rebuilt,
    size_of,
    tree_of,
    trees_of,
    unflatten,
)
from accord.oracles import VarianceReduced
from flower_sites import arrays, problem

TREE = {"w": np.arange(6.0).reshape(2, 3), "deep": [np.array(2.5), np.arange(3, dtype="int32")]}


def same_trees(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_array_equal(a, b)


def test_a_tree_crosses_the_wire_bit_for_bit():
    sent = letter({"kind": "round", "round": 3}, flatten(TREE, "x") | {"other": np.ones(2)})
    about, record = opened(RecordDict(sent))
    assert about == {"kind": "round", "round": 3}
    same_trees(tree_of(record, TREE, "x"), TREE)
    found = trees_of(record, {"x": TREE, "other": np.ones(2)})
    same_trees(found["x"], TREE)
    same_trees(unflatten(flatten(TREE, "a"), TREE, "a"), TREE)


def test_the_bytes_of_a_record_are_those_of_its_arrays():
    record = letter({}, flatten(TREE, "x"))["arrays"]
    assert size_of(record) == sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(TREE))
    liar = Array("float64", (10**12,), "numpy.ndarray", b"short")
    assert size_of(ArrayRecord({"a": liar})) == 0


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.zeros(4), r"'x' has shape \(4,\); expected \(3,\)"),
        (np.zeros(3, "float32"), "'x' is float32; expected float64"),
        (np.array([0, np.inf, 0]), "'x' has a NaN or infinite entry"),
        (np.zeros(10_000), "'x' has 80,128 bytes; expected at most 4,120"),
    ],
)
def test_what_was_not_agreed_is_refused(value, why):
    with pytest.raises(RefusedError, match=why):
        tree_of(letter({}, {"x": value})["arrays"], np.zeros(3), "x")


def test_arrays_that_lack_or_that_nobody_knows_are_refused():
    record = letter({}, {"x": np.zeros(3), "y": np.zeros(3)})["arrays"]
    with pytest.raises(RefusedError, match="no array 'z'; expected are z"):
        tree_of(record, np.zeros(3), "z")
    with pytest.raises(RefusedError, match="unknown array 'y'; expected are x"):
        trees_of(record, {"x": np.zeros(3)})
    broken = ArrayRecord({"x": Array("float64", (3,), "numpy.ndarray", b"no array")})
    with pytest.raises(RefusedError, match="'x' cannot be decoded"):
        tree_of(broken, np.zeros(3), "x")


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({}),
        RecordDict({"accord": ConfigRecord({"about": "{no json"}), "arrays": ArrayRecord()}),
        RecordDict({"accord": ConfigRecord({"about": "[1]"}), "arrays": ArrayRecord()}),
        RecordDict({"accord": ConfigRecord({"about": "{}"}), "arrays": ConfigRecord()}),
        RecordDict({"accord": ConfigRecord({"about": "{}"})}),
    ],
    ids=["empty", "no JSON", "a list", "no arrays", "lacking"],
)
def test_what_is_no_letter_is_refused(content):
    with pytest.raises(RefusedError, match="no letter of Accord"):
        opened(content)


METHODS = [
    *(cls() for cls in accord.REGISTRY.values()),
    accord.FedPD(oracle=VarianceReduced(batch_size=4, local_steps=3)),
    accord.PDMM(penalty=np.float64(0.1)),
]


@pytest.mark.parametrize("algorithm", METHODS, ids=lambda a: type(a).__name__)
def test_an_algorithm_travels_in_plain_values(algorithm):
    import json

    assert rebuilt(json.loads(json.dumps(described(algorithm)))) == algorithm


def test_an_algorithm_that_sites_do_not_know_is_named():
    class Mine(accord.PDMM):
        pass

    with pytest.raises(ValueError, match=r"Mine is not known.*client_app\(\.\.\., classes=\[Mine"):
        described(Mine())
    assert type(rebuilt(described(Mine(), {"Mine": Mine}), {"Mine": Mine})) is Mine
    with pytest.raises(ValueError, match=r"algorithm: .*PDMN.*PDMM"):
        rebuilt({"class": "PDMN", "fields": {}})


@pytest.mark.parametrize("algorithm", METHODS, ids=lambda a: type(a).__name__)
def test_shapes_are_those_of_a_real_client(algorithm):
    whole = problem(arrays())
    job = make_job(algorithm, whole, 0, 1.0, None)
    resolved, x = job.algorithm, np.asarray(job.x0)
    with jax.enable_x64(True):
        server = first_server(resolved, jax.numpy.asarray(x))
        inbox = resolved.broadcast(server)
        objective = whole.client_objective(0, resolved.needs)
        state = resolved.init_client(jax.numpy.asarray(x), objective)
        key = jax.random.key(0)
        _, message, _ = resolved.client(state, inbox, objective, key)
    shapes = Shapes(resolved, x)
    for told, real in ((shapes.inbox, inbox), (shapes.state, state), (shapes.message, message)):
        assert jax.tree.structure(told) == jax.tree.structure(real)
        for a, b in zip(jax.tree.leaves(told), jax.tree.leaves(real), strict=True):
            assert (a.shape, a.dtype) == (np.shape(b), np.asarray(b).dtype)


KEPT = Kept(
    2, 4, 5, {"a": np.zeros(2)}, {"a": np.array([0.1, np.pi])}, {"round": 5}, {"m['x']": np.ones(1)}
)


def test_a_site_keeps_two_states_and_its_reply(tmp_path):
    store = Store(tmp_path / "client", "run")
    assert store.load() is None
    store.save(KEPT)
    found = Store(tmp_path / "client", "run").load()
    for field in Kept._fields:
        same_trees(getattr(found, field), getattr(KEPT, field))


@pytest.mark.parametrize("keep", [0, 10, -10])
def test_a_damaged_state_is_put_aside(keep, tmp_path):
    store = Store(tmp_path / "client", "run")
    store.save(KEPT)
    path = store.folder / "state.npz"
    path.write_bytes(path.read_bytes()[:keep] if keep else b"")
    assert store.load() is None
    assert not path.exists() and (store.folder / "state.npz.damaged").exists()


def test_texts_go_by_their_digest(tmp_path):
    store = Store(tmp_path / "client", "run")
    store.keep_text("a plan")
    assert store.text(digest_of("a plan")) == "a plan"
    assert store.text(digest_of("another")) is None
    for damage in (b"a plam", b"\xff\xfe", b""):
        (store.folder / f"{digest_of('a plan')}.json").write_bytes(damage)
        assert store.text(digest_of("a plan")) is None


def test_only_the_last_runs_are_kept(tmp_path):
    import os

    for k in range(8):
        store = Store(tmp_path / "client", f"run{k}")
        with store.alone():
            store.save(KEPT)
        os.utime(store.folder, (k, k))
    left = {f.name for f in (tmp_path / "client").iterdir()}
    assert left == {f"run{k}" for k in range(3, 8)}


def test_one_process_at_a_time(tmp_path):
    store, order = Store(tmp_path / "client", "run"), []
    script = (
        "import sys; from accord.flower.store import Store\n"
        f"with Store({str(tmp_path / 'client')!r}, 'run').alone():\n"
        "    print('in', flush=True); sys.stdin.readline(); print('out', flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        order.append(other.stdout.readline().strip())

        def enters():
            with store.alone():
                order.append("we")

        thread = threading.Thread(target=enters)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        other.stdin.write("\n")
        other.stdin.flush()
        thread.join(20)
    assert order == ["in", "we"]


def test_durable_files(tmp_path):
    path = tmp_path / "a.npz"
    assert durable.load(path) is None
    durable.save(path, {"k": [1, 0.1]}, {"a/['x']": np.arange(3), "about": np.ones(1)})
    about, found = durable.load(path)
    assert about == {"k": [1, 0.1]}
    same_trees(found, {"a/['x']": np.arange(3), "about": np.ones(1)})
    durable.save(path, {"k": 2}, {})
    assert durable.load(path) == ({"k": 2}, {})
    assert [f.name for f in tmp_path.iterdir()] == ["a.npz"]


def test_events_are_lines_of_json(tmp_path):
    import json

    events = Events(tmp_path / "log.jsonl")
    events("state_lost", client="a")
    events("round", round=1)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["state_lost", "round"]
    assert events.of("state_lost") == [{"event": "state_lost", "client": "a"}]
    assert not events.of("round")


def test_settings_become_a_fit_and_options():
    config = {key: told.default for key, told in (FIT | RUN | SIMULATION).items()}
    task = table_fit_of({**config, "target": "y", "features": "a, b ,c", "l2": 1})
    assert task.request.target == "y" and task.request.features == ("a", "b", "c")
    options = options_of({**config, "max-clients": 4, "output": "/x/y", "quorum": 0.5})
    assert (options.terms.max_clients, str(options.output)) == (4, "/x/y")
    assert options.terms.quorum == 0.5 and options.measure_every is None


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"target": ""}, "target: got nothing"),
        ({"target": "y", "tolerence": 1.0}, r"run-config: .*tolerence.*tolerance"),
        ({"target": "y", "l2": "much"}, "l2: got 'much'; accepted is a number"),
        ({"target": "y", "max-rounds": True}, "max-rounds: got True; accepted is a whole number"),
        ({"target": "y", "method": "PDMN"}, "PDMN"),
        ({"target": "y", "missing": "ignore"}, "missing: got 'ignore'"),
    ],
)
def test_settings_that_do_not_fit_are_named(given, why):
    with pytest.raises(ValueError, match=why):
        table_fit_of(given)


def test_an_app_is_written_whole_or_not_at_all(tmp_path):
    folder = tmp_path / "Heart study"
    paths = write_app(folder, target='out"come', model="logistic", l2=0.5)
    assert all(path.is_file() for path in paths)
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    config = project["tool"]["flwr"]["app"]["config"]
    assert set(config) == set(FIT | RUN | SIMULATION)
    assert config["target"] == 'out"come' and config["output"] == str(folder / "result")
    task = table_fit_of(config)
    assert (task.request.model, options_of(config).resume) == ("logistic", True)
    for module in project["tool"]["flwr"]["app"]["components"].values():
        name, attribute = module.split(":")
        source = folder / f"{name.replace('.', '/')}.py"
        assert source.parent.name == PACKAGE
        scope = {}
        exec(compile(source.read_text(), str(source), "exec"), scope)
        assert type(scope[attribute]).__name__ in ("ServerApp", "ClientApp")
    with pytest.raises(ValueError, match="exists and is not empty"):
        write_app(folder, target="y")
    with pytest.raises(ValueError, match="model: got 'logit'"):
        write_app(tmp_path / "new", target="y", model="logit")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("My Study!", "my-study"),
        ("123", "fit-123"),
        ("über", "ber"),
        ("_" * 5, "fit"),
        ("x" * 40, "x" * 32),
    ],
)
def test_an_app_has_a_name_that_flower_takes(folder, name, tmp_path):
    write_app(tmp_path / folder, target='a\n"b"\\c')
    project = tomllib.loads((tmp_path / folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == name
    assert project["tool"]["flwr"]["app"]["config"]["target"] == 'a\n"b"\\c'


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"min-clients": 0}, "min-clients: got 0"),
        ({"start-wait": -1.0}, "start-wait: got -1.0"),
        ({"max-clients": 1}, "max-clients: got 1"),
    ],
)
def test_errors_name_the_key(config, message):
    with pytest.raises(ValueError, match=message):
        options_of(config)
    with pytest.raises(ValueError, match="method: there is no 'NOPE'"):
        table_fit_of({"target": "y", "method": "NOPE"})


@pytest.mark.parametrize("client", ["", " ", "a\nb", "x" * 201])
def test_a_client_is_named_in_one_line(client, tmp_path):
    app = client_app(accord.problems.averaging(np.zeros((1, 2))))
    context = Context(1, 2, {"client": client, "state": str(tmp_path)}, RecordDict(), {})
    asked = Message(letter({"kind": "hello"}, {}), 2, "query")
    told, _ = opened(app(asked, context).content)
    assert told["status"] == "failed" and told["why"].startswith("node-config: client is")
