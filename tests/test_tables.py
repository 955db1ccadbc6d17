"""Tables and bundled data sets -> clients."""

import re

import numpy as np
import polars as pl
import pytest

from accord.data import digits, read_table

TEXT = """hospital,age,sex,outcome,chol
Ulm,63,1,0,233.5
Basel,67,0,1,286
Ulm,41,1,1,204
Genf,56,0,0,236
Basel,57,1,1,354
"""
ROWS = {
    "Basel": ([[67, 0, 286], [57, 1, 354]], [1, 1]),
    "Genf": ([[56, 0, 236]], [0]),
    "Ulm": ([[63, 1, 233.5], [41, 1, 204]], [0, 1]),
}


def write(tmp_path, text, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def check(clients, rows=ROWS):
    assert clients.names == tuple(rows)
    for (X, y), (X_true, y_true) in zip(clients, rows.values(), strict=True):
        assert X.dtype == np.float64
        np.testing.assert_array_equal(X, X_true)
        np.testing.assert_array_equal(y, y_true)


def forms(tmp_path):
    """The same table in every form that is read."""
    frame = pl.read_csv(TEXT.encode())
    parquet = tmp_path / "table.parquet"
    frame.write_parquet(parquet)
    path = write(tmp_path, TEXT)
    return {"csv": path, "text": str(path), "parquet": parquet, "polars": frame}


@pytest.mark.parametrize("form", ["csv", "text", "parquet", "polars"])
def test_every_form_gives_the_same_clients(tmp_path, form):
    clients = read_table(forms(tmp_path)[form], target="outcome", client="hospital")
    check(clients)
    assert clients[0][1].dtype.kind == "i"


def test_pandas():
    pd = pytest.importorskip("pandas")
    columns = pl.read_csv(TEXT.encode()).to_dict(as_series=False)
    frame = pd.DataFrame(columns)
    check(read_table(frame, "outcome", "hospital"))
    shuffled = frame.set_index(np.array([7, 7, 1, 0, 3]))
    check(read_table(shuffled, "outcome", "hospital"))
    nullable = frame.convert_dtypes().astype({"hospital": "category", "sex": "boolean"})
    check(read_table(nullable, "outcome", "hospital"))
    numbered = pd.DataFrame(np.array([[1.0, 2, 0], [3, 4, 1]]))
    check(read_table(numbered, target=1, client=2), {"0.0": ([[1]], [2]), "1.0": ([[3]], [4])})
    frame.loc[1, "age"] = np.nan
    with pytest.raises(ValueError, match="missing values, client 'Basel': 'age' 1 of 2; drop"):
        read_table(frame, "outcome", "hospital")
    nullable.loc[0, "hospital"] = None
    with pytest.raises(ValueError, match=r"^client: 1 of 5 rows have no value"):
        read_table(nullable, "outcome", "hospital")
    frame.columns = ["hospital", "age", "age", "outcome", "chol"]
    with pytest.raises(ValueError, match="duplicate columns 'age'"):
        read_table(frame, "outcome", "hospital")


def test_features_are_taken_in_the_order_asked_for(tmp_path):
    path = write(tmp_path, TEXT)
    clients = read_table(path, "outcome", "hospital", features=["chol", "age"])
    np.testing.assert_array_equal(clients[0][0], [[286, 67], [354, 57]])
    clients = read_table(path, target="chol", client="hospital", features=("age",))
    assert clients[2][1].tolist() == [233.5, 204] and clients.features == (1,)


def test_booleans_are_numbers(tmp_path):
    path = write(tmp_path, "a,b,c\ntrue,false,x\nfalse,true,y\n")
    check(read_table(path, "b", "c"), {"x": ([[1]], [0]), "y": ([[0]], [1])})


def test_order_does_not_depend_on_the_rows():
    frame = pl.DataFrame({"c": ["b", "a", "b"], "x": [1.0, 2, 3], "y": [1.0, 2, 3]})
    for table in (frame, frame.reverse()):
        assert read_table(table, "y", "c").names == ("a", "b")
    frame = pl.DataFrame({"c": [10, 9, 10], "x": [1.0, 2, 3], "y": [1.0, 2, 3]})
    assert read_table(frame, "y", "c").names == ("9", "10")


def test_names_of_a_file_are_read_as_written(tmp_path):
    table = "c,x,y\n{},1,2\n{},3,4\n{},5,6\n"
    numbers = write(tmp_path, table.format(10, 9, 10))
    assert read_table(numbers, "y", "c").names == ("9", "10")
    padded = write(tmp_path, table.format("007", "7", "7"))
    assert read_table(padded, "y", "c").names == ("007", "7")


def test_quotes_marks_and_blank_lines_of_a_file(tmp_path):
    text = '\ufeff"c, d",x,"y\n1"\r\n"Ulm, Nord", 1,2\r\n\r\nBasel,2.5,3\r\n\r\n'
    clients = read_table(write(tmp_path, text, "TABLE.CSV"), "y\n1", "c, d")
    check(clients, {"Basel": ([[2.5]], [3]), "Ulm, Nord": ([[1]], [2])})


def test_other_types_of_a_frame():
    frame = pl.DataFrame(
        {
            "c": pl.Series(["u", "v"], dtype=pl.Categorical),
            "d": pl.Series([1, 2]).cast(pl.Decimal(10, 2)),
            "e": pl.Series([3, 4], dtype=pl.UInt8),
            "f": pl.Series([5, 6], dtype=pl.Int128),
            "y": pl.Series([5, 6]).cast(pl.Decimal(10, 2)),
        }
    )
    check(read_table(frame, "y", "c"), {"u": ([[1, 3, 5]], [5]), "v": ([[2, 4, 6]], [6])})
    rows = {"u": ([[1, 3]], [5]), "v": ([[2, 4]], [6])}
    check(read_table(frame, "f", "c", features=["d", "e"]), rows)


def table(**columns):
    return pl.DataFrame({"c": ["u", "u", "v"], "x": [1.0, 2, 3], "y": [0, 1, 0]} | columns)


NAN = float("nan")
MANY = {f"x{i}": ["low", "high", None] for i in range(12)}

BAD = {
    "unknown target": (
        lambda: read_table(table(), "z", "c"),
        "target: there is no column 'z'; accepted are 'c', 'x', 'y'",
    ),
    "closest": (
        lambda: read_table(table(age=[1, 2, 3]), "y", "c", features=["Age"]),
        "features: there is no column 'Age'; did you mean 'age'?",
    ),
    "unknown client": (
        lambda: read_table(table(hospital=[1, 2, 3]), "y", "hospitals"),
        "client: there is no column 'hospitals'; did you mean 'hospital'?",
    ),
    "not numeric": (
        lambda: read_table(table(sex=["f", "m", "f"], b=["1", "?", "2"]), "y", "c"),
        "features: not numeric: 'sex' (text, as 'f'), 'b' (text, as '?'); encode them as numbers",
    ),
    "dates": (
        lambda: read_table(table(x=pl.Series(["2020-01-02"] * 3).str.to_date()), "y", "c"),
        "features: not numeric: 'x' (Date); encode them as numbers, or leave them out",
    ),
    "many": (
        lambda: read_table(table(**MANY), "y", "c"),
        "features: not numeric: 'x0' (text, as 'low'), 'x1' (text, as 'low')",
    ),
    "text target": (
        lambda: read_table(table(y=["yes", "no", "no"]), "y", "c"),
        "target: the column 'y' is not numeric (text, as 'yes'); recode it, as 0 and 1",
    ),
    "missing": (
        lambda: read_table(table(x=[NAN, None, 3.0], z=[1, 2, None]), "y", "c"),
        "path_or_frame: missing values, client 'u': 'x' 2 of 2; client 'v': 'z' 1 of 1; drop or",
    ),
    "missing target": (
        lambda: read_table(table(y=[0, 1, None]), "y", "c"),
        "path_or_frame: missing values, client 'v': 'y' 1 of 1; drop",
    ),
    "all missing": (
        lambda: read_table(table(x=[None, None, None]), "y", "c"),
        "path_or_frame: missing values, client 'u': 'x' 2 of 2; client 'v': 'x' 1 of 1",
    ),
    "missing client": (
        lambda: read_table(table(c=["u", None, None]), "y", "c"),
        "client: 2 of 3 rows have no value in the column 'c' (rows 2, 3, the first being 1); name",
    ),
    "infinite": (
        lambda: read_table(table(x=[1.0, 2, np.inf]), "y", "c"),
        "client 'v': X has a NaN or infinite value at (0, 0)",
    ),
    "client is target": (
        lambda: read_table(table(), "y", "y"),
        "client: got 'y', the target column; accepted is another column",
    ),
    "target is feature": (
        lambda: read_table(table(), "y", "c", features=["x", "y"]),
        "features: 'y' is the target or client column; leave it out",
    ),
    "feature twice": (
        lambda: read_table(table(), "y", "c", features=["x", "x"]),
        "features: 'x' given twice; name each column once",
    ),
    "no features": (
        lambda: read_table(table(), "y", "c", features=[]),
        "features: got an empty list; accepted is one column or more",
    ),
    "nothing left": (
        lambda: read_table(table().drop("x"), "y", "c"),
        "features: the table has only the target and the client column",
    ),
    "no rows": (
        lambda: read_table(table().clear(), "y", "c"),
        "path_or_frame: the table has no rows; at least one is needed",
    ),
    "wrong suffix": (
        lambda: read_table("table.xlsx", "y", "c"),
        "path_or_frame: got 'table.xlsx'; accepted are .csv, .tsv and .parquet files",
    ),
    "no file": (
        lambda: read_table("nowhere.csv", "y", "c"),
        "path_or_frame: there is no file 'nowhere.csv'; check the path",
    ),
}


def check_message(call, message, kind=ValueError):
    with pytest.raises(kind, match=re.escape(message)) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_named_in_one_line(call, message):
    check_message(call, message)


def test_a_long_list_is_cut():
    check_message(lambda: read_table(table(**MANY), "y", "c"), "'x7' (text, as 'low') and 4 more;")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected a table with a header"),
        ("c,x,y\n", "the table has no rows"),
        ("c,x,x,y\nu,1,2,3\n", "path_or_frame: duplicate columns 'x'; rename them"),
        ("c,x,y\nu,1,2\nu,1,2,3\n", "cannot be read: found more fields"),
        ("c,x,y\nu,1\nu,1,2\n", "missing values, client 'u': 'y' 1 of 2"),
        ("c,x,y\nu,NA,2\nu,1,2\n", "missing values, client 'u': 'x' 1 of 2"),
        ("c,x,y\nu,none,2\nu,1,2\n", "features: not numeric: 'x' (text, as 'none')"),
        ("c,x,y\nu,NaN,2\nu,1,2\n", "missing values, client 'u': 'x' 1 of 2"),
        ("c,x,y\nu,,2\nu,1.5,2\n", "missing values, client 'u': 'x' 1 of 2"),
        ("c,x,y\n,3,2\nu,1.5,2\n", "client: 1 of 2 rows have no value in the column 'c'"),
        (",c,x,y\n0,u,1,2\n", "features: column 1 has no name (an index that was saved along?)"),
        (
            b"c,x,y\n\xff\xfe,1,2\n",
            "cannot be read: line 2 is not UTF-8 (byte 0xff); save the file",
        ),
        (b"\xff\xfec,x,y\nu,1,2\n", "cannot be read: line 1 is not UTF-8"),
        ("c|x|y\nu|1|2\n", "target: there is no column 'y'; accepted are 'c|x|y'"),
        ('c,x,y\nu,1,"2\n', "cannot be read: "),
    ],
)
def test_bad_files_are_named_in_one_line(tmp_path, text, message):
    path = write(tmp_path, text)
    check_message(lambda: read_table(path, "y", "c"), message)


def test_a_broken_parquet_file(tmp_path):
    path = write(tmp_path, "c,x,y\n", "table.parquet")
    check_message(lambda: read_table(path, "y", "c"), "cannot be read: ")
    (tmp_path / "folder.csv").mkdir()
    check_message(lambda: read_table(tmp_path / "folder.csv", "y", "c"), "there is no file")


def test_wrong_kinds_of_argument():
    check_message(
        lambda: read_table({"x": [1]}, "y", "c"), "path_or_frame: got dict; accepted", TypeError
    )
    check_message(lambda: read_table(table(), "y", "c", features=3), "features: got 3", TypeError)
    check_message(
        lambda: read_table(table(), "y", "c", features="x"),
        "features: got 'x'; accepted is a list of column names",
        TypeError,
    )


def test_digits_agree_with_their_data_card():
    from sklearn.datasets import load_digits

    train, test = digits()
    X, y = load_digits(return_X_y=True)
    rows = [130, 126, 130, 130, 130, 130, 139, 114, 128, 130, 128, 130, 122, 130]
    assert (train.sizes + test.sizes).tolist() == rows and sum(rows) == 1797
    assert (train.rows, test.rows) == (1441, 356)
    assert train.names == test.names == tuple(f"writer {i}" for i in range(1, 15))
    start = 0
    for i, n in enumerate(rows):
        # Every writer's form begins with the ten digits in order.
        assert y[start : start + 10].tolist() == list(range(10))
        held_out = np.arange(start + 4, start + n, 5)
        np.testing.assert_array_equal(test[i][0], X[held_out] / 16)
        np.testing.assert_array_equal(test[i][1], y[held_out])
        kept = np.setdiff1d(np.arange(start, start + n), held_out)
        np.testing.assert_array_equal(train[i][0], X[kept] / 16)
        np.testing.assert_array_equal(train[i][1], y[kept])
        start += n
    for clients in (train, test):
        assert clients.features == (64,) and clients[0][0].dtype == np.float64
        assert clients[0][1].dtype.kind == "i"
        assert min(X.min() for X, _ in clients) == 0 and max(X.max() for X, _ in clients) == 1
    card = " ".join(digits.__doc__.split())
    for fact in (", ".join(map(str, rows[:-1])) + " and 130", "1,797", "1,441", "356", "64"):
        assert fact in card


def test_digits_held_out_share():
    train, test = digits(test_every=2)
    assert abs(train.sizes - test.sizes).max() <= 1
    train, test = digits(test_every=114)
    assert (test.sizes == 1).all() and train.rows == 1797 - 14
    for wrong in (0, 1, 115, 2.5, "5", None):
        check_message(
            lambda wrong=wrong: digits(test_every=wrong),
            f"test_every: got {wrong!r}; accepted are whole numbers 2 to 114",
        )
