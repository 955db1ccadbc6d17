"""Partitioners: complete, disjoint, deterministic, and what each of them promises."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.data import partition

FAST = settings(deadline=None, derandomize=True, max_examples=60)
LABELS = st.lists(st.integers(0, 9), min_size=1, max_size=200).map(np.array)
SEEDS = st.integers(0, 2**32)


def check_partition(parts, rows, clients):
    """Complete, disjoint, increasing, and one integer array per client."""
    assert len(parts) == clients
    assert all(p.dtype.kind == "i" and p.ndim == 1 and (np.diff(p) > 0).all() for p in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(rows))


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@FAST
@given(st.data(), st.integers(1, 300), SEEDS)
def test_iid(data, rows, seed):
    clients = data.draw(st.integers(1, rows))
    parts = partition.iid(rows, clients, seed)
    check_partition(parts, rows, clients)
    sizes = [len(p) for p in parts]
    assert max(sizes) - min(sizes) <= 1
    assert same(parts, partition.iid(rows, clients, seed))


@FAST
@given(LABELS, st.integers(1, 30), st.floats(1e-3, 1e3), SEEDS, st.data())
def test_dirichlet(labels, clients, alpha, seed, data):
    least = data.draw(st.integers(0, len(labels) // clients))
    parts = partition.dirichlet(labels, clients, alpha, seed, minimum_rows=least)
    check_partition(parts, len(labels), clients)
    assert min(len(p) for p in parts) >= least
    assert same(parts, partition.dirichlet(labels, clients, alpha, seed, minimum_rows=least))


@FAST
@given(LABELS, st.integers(1, 30), SEEDS, st.data())
def test_by_label(labels, clients, seed, data):
    rows = np.bincount(labels)
    rows = rows[rows > 0]
    each = data.draw(st.integers(1, len(rows)))
    if clients * each < len(rows) or clients * each > np.minimum(rows, clients).sum():
        with pytest.raises(ValueError, match=r"^classes_per_client: got"):
            partition.by_label(labels, clients, each, seed)
        return
    parts = partition.by_label(labels, clients, each, seed)
    check_partition(parts, len(labels), clients)
    assert all(len(np.unique(labels[p])) == each for p in parts)
    for label in np.unique(labels):
        held = [n for p in parts if (n := (labels[p] == label).sum())]
        assert max(held) - min(held) <= 1
    assert same(parts, partition.by_label(labels, clients, each, seed))


@FAST
@given(LABELS, st.integers(1, 30), SEEDS, st.data())
def test_shards(labels, clients, seed, data):
    if clients > len(labels):
        with pytest.raises(ValueError, match=r"^shards_per_client: got 1"):
            partition.shards(labels, clients, 1, seed)
        return
    each = data.draw(st.integers(1, len(labels) // clients))
    parts = partition.shards(labels, clients, each, seed)
    check_partition(parts, len(labels), clients)
    sizes = [len(p) for p in parts]
    assert max(sizes) - min(sizes) <= each
    assert same(parts, partition.shards(labels, clients, each, seed))


@FAST
@given(st.lists(st.sampled_from(["b", "a", "writer 10", "writer 2"]), min_size=1, max_size=100))
def test_by_column(values):
    parts, names = partition.by_column(values)
    check_partition(parts, len(values), len(set(values)))
    assert names == sorted(set(values))
    for part, name in zip(parts, names, strict=True):
        assert [values[r] for r in part] == [name] * len(part)


def balanced(classes=10, rows=100):
    return np.random.default_rng(0).permutation(np.repeat(np.arange(classes), rows))


@pytest.mark.parametrize(
    "split",
    [
        lambda seed: partition.iid(1000, 7, seed),
        lambda seed: partition.dirichlet(balanced(), 7, 0.5, seed),
        lambda seed: partition.dirichlet(balanced(), 7, 0.01, seed, minimum_rows=50),
        lambda seed: partition.by_label(balanced(), 7, 3, seed),
        lambda seed: partition.shards(balanced(), 7, 2, seed),
    ],
    ids=["iid", "dirichlet", "repaired", "by_label", "shards"],
)
def test_another_seed_gives_another_split(split):
    assert same(split(0), split(0))
    assert not same(split(0), split(1))


def test_a_smaller_alpha_is_more_heterogeneous():
    labels = balanced()

    def distance(alpha):
        """Mean total variation distance of the clients' label shares from the pooled ones."""
        found = []
        for seed in range(5):
            for p in partition.dirichlet(labels, 10, alpha, seed):
                if len(p):
                    shares = np.bincount(labels[p], minlength=10) / len(p)
                    found.append(np.abs(shares - 0.1).sum() / 2)
        return np.mean(found)

    assert distance(0.01) > distance(0.3) + 0.1 > distance(10) + 0.2


def test_dirichlet_limits_of_alpha():
    labels = balanced()
    each_whole = partition.dirichlet(labels, 5, 1e-9)
    assert all(set(np.bincount(labels[p], minlength=10)) <= {0, 100} for p in each_whole)
    even = partition.dirichlet(labels, 5, 1e9)
    assert all((np.bincount(labels[p]) == 20).all() for p in even)


def test_dirichlet_leaves_clients_empty_unless_asked():
    labels = balanced()
    parts = partition.dirichlet(labels, 100, 0.01)
    assert min(len(p) for p in parts) == 0
    repaired = partition.dirichlet(labels, 100, 0.01, minimum_rows=10)
    assert [len(p) for p in repaired] == [10] * 100
    some = partition.dirichlet(labels, 100, 0.01, minimum_rows=2)
    check_partition(some, 1000, 100)
    assert min(len(p) for p in some) == 2
    large = max(range(100), key=lambda i: len(parts[i]))
    assert set(some[large]) < set(parts[large])


def test_repair_takes_nothing_where_nothing_is_short():
    labels = balanced()
    parts = partition.dirichlet(labels, 5, 100.0, seed=3)
    assert same(parts, partition.dirichlet(labels, 5, 100.0, seed=3, minimum_rows=20))


def test_by_label_spreads_the_holders():
    labels = balanced()
    parts = partition.by_label(labels, 20, 2)
    holders = sum((np.bincount(labels[p], minlength=10) > 0).astype(int) for p in parts)
    assert (holders == 4).all()
    assert all(len(p) == 50 for p in parts)
    assert len({tuple(np.unique(labels[p])) for p in parts}) > 5


def test_by_label_with_a_rare_class():
    labels = np.array([0] * 1 + [1] * 50 + [2] * 50)
    parts = partition.by_label(labels, 10, 2)
    check_partition(parts, 101, 10)
    assert all(len(np.unique(labels[p])) == 2 for p in parts)


def test_shards_are_runs_of_the_sorted_rows():
    labels = np.repeat(np.arange(10), 60)
    parts = partition.shards(labels, 30, 2)
    assert all(len(p) == 20 for p in parts)
    assert all(len(np.unique(labels[p])) <= 2 for p in parts)
    for part in parts:
        assert (np.diff(part[:10]) == 1).all() and (np.diff(part[10:]) == 1).all()
    uneven = partition.shards(np.arange(23) % 3, 4, 2)
    check_partition(uneven, 23, 4)


def test_labels_may_be_text():
    text = np.array(["cat", "dog", "eel"])[np.arange(30) % 3]
    for parts in (
        partition.dirichlet(text, 4, 1.0),
        partition.by_label(text, 3, 1),
        partition.shards(text, 3, 2),
    ):
        check_partition(parts, 30, len(parts))


def test_by_column_sorts_numbers_by_size():
    parts, names = partition.by_column([10, 2, 10, 9])
    assert names == ["2", "9", "10"]
    assert [p.tolist() for p in parts] == [[1], [3], [0, 2]]
    assert partition.by_column([True, False])[1] == ["False", "True"]


LABELS_OF_3 = [0, 1, 2] * 4

BAD = {
    "rows": (lambda: partition.iid(0, 1), "rows: got 0; accepted is a whole number >= 1"),
    "more clients": (lambda: partition.iid(3, 4), "clients: got 4 for 3 rows; accepted is up to 3"),
    "no clients": (lambda: partition.iid(3, 0), "clients: got 0; accepted is a whole number >= 1"),
    "half": (lambda: partition.iid(3, 1.5), "clients: got 1.5; accepted is a whole number"),
    "true": (lambda: partition.iid(3, True), "clients: got True; accepted is a whole number"),
    "seed": (lambda: partition.iid(3, 1, -1), "seed: got -1; accepted is a whole number >= 0"),
    "no seed": (lambda: partition.iid(3, 1, None), "seed: got None; accepted is a whole number"),
    "alpha": (
        lambda: partition.dirichlet(LABELS_OF_3, 2, 0),
        "alpha: got 0; accepted is a number > 0",
    ),
    "alpha text": (lambda: partition.dirichlet(LABELS_OF_3, 2, "1"), "alpha: got '1'; accepted"),
    "alpha NaN": (lambda: partition.dirichlet(LABELS_OF_3, 2, np.nan), "alpha: got nan; accepted"),
    "alpha infinite": (lambda: partition.dirichlet(LABELS_OF_3, 2, np.inf), "alpha: got inf"),
    "minimum": (
        lambda: partition.dirichlet(LABELS_OF_3, 5, 1, minimum_rows=3),
        "minimum_rows: got 3 for 5 clients and 12 rows; accepted is a number up to 2",
    ),
    "negative minimum": (
        lambda: partition.dirichlet(LABELS_OF_3, 5, 1, minimum_rows=-1),
        "minimum_rows: got -1; accepted is a whole number >= 0",
    ),
    "too many classes": (
        lambda: partition.by_label(LABELS_OF_3, 2, 4),
        "classes_per_client: got 4 for 3 classes; accepted is a number up to 3",
    ),
    "unheld": (
        lambda: partition.by_label(LABELS_OF_3, 2, 1),
        "classes_per_client: got 1 for 2 clients, which leaves some of the 3 classes without a "
        "holder; accepted is 2 or more",
    ),
    "too few rows": (
        lambda: partition.by_label(LABELS_OF_3, 13, 1),
        "classes_per_client: got 1 for 13 clients, which takes 13 holders; the classes have rows "
        "for 12: take fewer",
    ),
    "shards": (
        lambda: partition.shards(LABELS_OF_3, 5, 3),
        "shards_per_client: got 3 for 5 clients, which takes 15 shards; accepted is a product up "
        "to the 12 rows",
    ),
    "no labels": (lambda: partition.shards([], 1, 1), "labels: got shape (0,); accepted is (rows"),
    "2-d labels": (lambda: partition.shards(np.eye(2), 1, 1), "labels: got shape (2, 2); accepted"),
    "missing": (
        lambda: partition.by_column(np.array(["a", None, "b", None], dtype=object)),
        "values: 2 missing, the first in row 1; drop or fill such rows",
    ),
    "NaN": (lambda: partition.by_column([1.0, np.nan]), "values: 1 missing, the first in row 1"),
    "mixture": (
        lambda: partition.by_column(np.array(["a", 1], dtype=object)),
        "values: got a mixture of int and str; accepted is one kind, as all text",
    ),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named_in_one_line(call, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)) as error:
        call()
    assert "\n" not in str(error.value)
