"""Data sets that come with scikit-learn, with their natural clients."""

import itertools
import operator

import numpy as np

from accord.data.clients import Clients

# The rows at which one writer's forms end and the next one's begin, in file order.
_WRITERS = (0, 130, 256, 386, 516, 646, 776, 915, 1029, 1157, 1287, 1415, 1545, 1667, 1797)


def writers() -> np.ndarray:
    """The number of each row's writer, from 0 (rows,), in scikit-learn's order."""
    return np.repeat(np.arange(len(_WRITERS) - 1), np.diff(_WRITERS))


def digits(test_every: int = 5) -> tuple[Clients, Clients]:
    """Handwritten digits by writer: (train, test), 14 clients each.

    - Source: the test part of "Optical Recognition of Handwritten Digits", E. Alpaydin and
      C. Kaynak, UCI Machine Learning Repository, 1998 (CC BY 4.0), bundled by scikit-learn.
    - Rows: 1,797 images of 8 x 8 pixels, as 64 features in [0, 1] (counts / 16, float64).
    - Targets: the digit, 0 to 9 (integers).
    - Clients: "writer 1" .. "writer 14", one per filled-in form, in file order, with 130, 126, 130,
      130, 130, 130, 139, 114, 128, 130, 128, 130, 122 and 130 rows (the source counts 13 people).
    - Split: of every writer, each ``test_every``-th row is held out for the test (2 to 114). With 5
      the train clients have 1,441 rows in all, the test clients 356.
    """
    from sklearn.datasets import load_digits

    try:
        every = operator.index(test_every)
    except TypeError:
        every = 0
    if not 2 <= every <= np.diff(_WRITERS).min():
        raise ValueError(f"test_every: got {test_every!r}; accepted are whole numbers 2 to 114")
    X, y = load_digits(return_X_y=True)
    X = X / 16
    train, test = [], []
    for first, end in itertools.pairwise(_WRITERS):
        rows = np.arange(first, end)
        held_out = np.arange(1, end - first + 1) % every == 0
        train.append(rows[~held_out])
        test.append(rows[held_out])
    names = [f"writer {i + 1}" for i in range(len(train))]
    return Clients.from_pooled(X, y, train, names), Clients.from_pooled(X, y, test, names)
