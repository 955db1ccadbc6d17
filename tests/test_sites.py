"""Tables, folders and LIBSVM files -> one frame per site."""

import re

import numpy as np
import polars as pl
import pytest

from accord.data import read_sites

HEADER = ["ward", "age", "sex", "chol", "note, if any"]
ROWS = [
    ["Ulm", "63", "m", "233.5", "a"],
    ["Basel", "67", "f", "", "b, c"],
    ["Ulm", "41", "m", "204", "?"],
    ["Genf", "56", "NA", "236", 'said "no"'],
    ["Basel", "57", "m", "354.25", "none"],
]
SITES = {
    "Basel": [(67, "f", None, "b, c"), (57, "m", 354.25, "none")],
    "Genf": [(56, None, 236.0, 'said "no"')],
    "Ulm": [(63, "m", 233.5, "a"), (41, "m", 204.0, None)],
}


def quoted(field, separator):
    if any(mark in field for mark in (separator, '"', "\n")):
        return '"' + field.replace('"', '""') + '"'
    return field


def text(separator=",", end="\n", decimal=".", rows=None):
    """The table as a CSV file would hold it."""
    rows = [[*row[:3], row[3].replace(".", decimal), row[4]] for row in rows or ROWS]
    lines = [separator.join(quoted(f, separator) for f in row) for row in [HEADER, *rows]]
    return end.join(lines) + end


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def told(sites):
    return {site.name: site.frame.rows() for site in sites}


def check_message(call, message, kind=ValueError):
    with pytest.raises(kind, match=re.escape(message)) as error:
        call()
    assert "\n" not in str(error.value)


DIALECTS = {
    "commas": text(),
    "mark": b"\xef\xbb\xbf" + text().encode(),
    "windows": text(end="\r\n"),
    "mark, windows, semicolons": b"\xef\xbb\xbf" + text(";", "\r\n").encode(),
    "semicolons": text(";"),
    "decimal commas": text(";", decimal=","),
    "tabs": text("\t"),
    "tabs, decimal commas": text("\t", decimal=","),
    "blank lines": "\n\n" + text().replace("\n", "\n\n") + "\n\n",
    "blank lines, windows": "\r\n" + text(end="\r\n\r\n"),
    "empty fields": text() + ",,,,\n",
    "quoted all": "\n".join(
        ";".join('"' + f.replace('"', '""') + '"' for f in row) for row in [HEADER, *ROWS]
    ),
    "blanks": text("\t").replace("\t", "  \t").replace("\t6", "\t 6"),
    "no last end": text().rstrip(),
}


@pytest.mark.parametrize("content", DIALECTS.values(), ids=DIALECTS)
def test_every_dialect_gives_the_same_sites(tmp_path, content):
    sites = read_sites(write(tmp_path / "t.csv", content), "ward")
    assert told(sites) == SITES
    for site in sites:
        assert site.frame.columns == HEADER[1:]
        dtypes = site.frame.dtypes
        assert dtypes[0].is_numeric() and dtypes[2] == pl.Float64
        assert dtypes[1] == dtypes[3] == pl.String


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "polars", "categorical", "pandas"])
def test_every_form_gives_the_same_sites(tmp_path, form):
    frame = pl.read_csv(text().encode(), null_values=["NA", "?"])
    if form == "pandas":
        pd = pytest.importorskip("pandas")
        source = pd.DataFrame(frame.to_dict(as_series=False))
    elif form == "parquet":
        frame.write_parquet(source := tmp_path / "t.parquet")
    elif form in ("csv", "tsv"):
        source = str(write(tmp_path / f"t.{form}", text()))
    else:
        source = frame
        if form == "categorical":
            source = frame.reverse().with_columns(pl.col("ward").cast(pl.Categorical)).reverse()
    assert told(read_sites(source, "ward")) == SITES


@pytest.mark.parametrize(
    ("header", "row", "names"),
    [
        ("c;weight, kg;height, cm", "u;1,5;2", ["weight, kg", "height, cm"]),
        ("c\tweight, kg", "u\t1,5", ["weight, kg"]),
        ('c,"a;b;d;e"', "u,1.5", ["a;b;d;e"]),
        ('"c","a\nb"', 'u,"1"', ["a\nb"]),
        (" c , x ", "u,1", ["x"]),
    ],
)
def test_the_separator_is_that_of_the_header_and_the_rows(tmp_path, header, row, names):
    (site,) = read_sites(write(tmp_path / "t.csv", f"{header}\n{row}\n"), "c")
    assert site.frame.columns == names
    assert site.frame[names[0]].dtype.is_numeric()


def test_missing_marks(tmp_path):
    marks = ["", "NA", "N/A", "NaN", "null", "?", ".", '"NA"', '""', " ? "]
    rows = "".join(f"u,{mark},{mark}\n" for mark in marks)
    (site,) = read_sites(write(tmp_path / "t.csv", f"c,x,s\n{rows}u,1.5,none\n"), "c")
    assert site.frame.null_count().row(0) == (len(marks), len(marks))
    assert site.frame.row(-1) == (1.5, "none")


def test_a_column_is_numbers_or_text_as_a_whole(tmp_path):
    content = "c;a;b;d;e;f\nu;1;1,5;1,5;1.5;007\nv;2;<2;2.5;2.5;8\n"
    sites = read_sites(write(tmp_path / "t.csv", content), "c")
    assert told(sites) == {"u": [(1, "1,5", "1,5", 1.5, 7)], "v": [(2, "<2", "2.5", 2.5, 8)]}


def test_a_comma_in_a_file_with_commas_is_no_decimal_mark(tmp_path):
    sites = read_sites(write(tmp_path / "t.csv", 'c,a\nu,"1,500"\nu,"2,5"\n'), "c")
    assert told(sites) == {"u": [("1,500",), ("2,5",)]}


def test_names_are_read_as_written_and_sorted(tmp_path):
    path = write(tmp_path / "t.csv", "c,x\n10,1\n9,2\n10,3\n")
    assert told(read_sites(path, "c")) == {"9": [(2,)], "10": [(1,), (3,)]}
    path = write(tmp_path / "t.csv", "c,x\n7,1\n007,2\n10,3\n")
    assert told(read_sites(path, "c")) == {"007": [(2,)], "10": [(3,)], "7": [(1,)]}
    frame = pl.DataFrame({"c": [True, False, True], "x": [1, 2, 3]})
    assert told(read_sites(frame, "c")) == {"False": [(2,)], "True": [(1,), (3,)]}


def test_rows_keep_their_order_in_a_large_table():
    generator = np.random.default_rng(0)
    names = generator.choice([f"s{i:03}" for i in range(300)], 20_000)
    frame = pl.DataFrame({"x": np.arange(20_000), "c": names})
    sites = read_sites(frame, "c")
    assert [s.name for s in sites] == sorted(set(names))
    for site in sites:
        np.testing.assert_array_equal(site.frame["x"], np.flatnonzero(names == site.name))


def folder(tmp_path, **files):
    home = tmp_path / "sites"
    home.mkdir()
    for name, content in files.items():
        if isinstance(content, pl.DataFrame):
            content.write_parquet(home / f"{name}.parquet")
        else:
            write(home / f"{name}.csv", content)
    return home


def test_a_folder_holds_a_table_per_client(tmp_path):
    home = folder(
        tmp_path,
        ulm="age;chol\n63;233,5\n",
        basel="chol,age\n?,67\n,\n354.25,57\n",
        genf=pl.DataFrame({"age": [56], "chol": [236.0]}),
    )
    write(home / ".hidden.txt", "x")
    sites = read_sites(home)
    assert [s.name for s in sites] == ["basel", "genf", "ulm"]
    assert {tuple(s.frame.columns) for s in sites} == {("chol", "age")}
    assert told(sites) == {
        "basel": [(None, 67), (354.25, 57)],
        "genf": [(236, 56)],
        "ulm": [(233.5, 63)],
    }
    numbered = folder(tmp_path / "sites", **{"10": "x\n1\n", "9": "x\n2\n"})
    assert told(read_sites(str(numbered))) == {"9": [(2,)], "10": [(1,)]}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "' is empty; expected one .csv or .parquet file per client"),
        ({"a": "x\n1\n", "a.b": b""}, "a.b.csv' is empty; expected a table with a header"),
        ({"a": "x\n1\n", "b": "x\n"}, "source: b.csv has no rows; fill or remove it"),
        ({"a": "x,y\n1,2\n", "b": "y\n1\n"}, "source: b.csv lacks the column 'x', against a.csv;"),
        (
            {"a": "x\n1\n", "b": "y,x\n1,2\n"},
            "source: b.csv alone has the column 'y', against a.csv",
        ),
        ({"a": "x,x\n1,2\n"}, "source: a.csv: duplicate columns 'x'; rename them"),
        (
            {"a": ",x\n1,2\n"},
            "source: a.csv: column 1 has no name (an index that was saved along?)",
        ),
        ({"a": b"x\n\xe9\n"}, "a.csv' cannot be read: line 2 is not UTF-8 (byte 0xe9); save the"),
        ({"a": "x\n1\n", "b": pl.DataFrame({"z": [1]})}, "source: b.parquet lacks the column 'x'"),
    ],
)
def test_bad_folders_are_named_in_one_line(tmp_path, files, message):
    check_message(lambda: read_sites(folder(tmp_path, **files)), message)


def test_files_that_do_not_belong(tmp_path):
    home = folder(tmp_path, a="x\n1\n")
    check_message(
        lambda: read_sites(home, "ward"), "client: got 'ward' with a folder, which has no"
    )
    write(home / "notes.xlsx", "x")
    (home / "b.csv").mkdir()
    check_message(
        lambda: read_sites(home), "holds 'b.csv', 'notes.xlsx'; accepted are .csv, .tsv and"
    )
    home = folder(home, a="x\n1\n")
    pl.DataFrame({"x": [1]}).write_parquet(home / "a.parquet")
    check_message(lambda: read_sites(home), "source: two files are of one client: 'a'; keep one")


NAN = float("nan")
BAD = {
    "no client": (pl.DataFrame({"c": ["u"], "x": [1]}), None, "its columns are 'c', 'x'"),
    "unknown": (
        pl.DataFrame({"hospital": ["u"], "x": [1]}),
        "hospitl",
        "client: there is no column 'hospitl'; did you mean 'hospital'?",
    ),
    "fractions": (
        pl.DataFrame({"c": [1.0, 2.5], "x": [1, 2]}),
        "c",
        "client: the column 'c' holds numbers with fractions, as 1.0; accepted are names or whole",
    ),
    "missing": (
        pl.DataFrame({"c": ["u", None, "v", None], "x": [1, 2, 3, 4]}),
        "c",
        "client: 2 of 4 rows have no value in the column 'c' (rows 2, 4, the first being 1); name",
    ),
    "all missing": (pl.DataFrame({"c": [None], "x": [1]}), "c", "the column 'c' holds Null"),
    "lists": (pl.DataFrame({"c": [[1]], "x": [1]}), "c", "the column 'c' holds List(Int64)"),
    "no rows": (pl.DataFrame({"c": ["u"], "x": [1]}).clear(), "c", "source: the table has no rows"),
    "alone": (pl.DataFrame({"c": ["u"]}), "c", "source: the table has only the client column 'c'"),
}


@pytest.mark.parametrize(("frame", "client", "message"), BAD.values(), ids=BAD)
def test_bad_tables_are_named_in_one_line(frame, client, message):
    check_message(lambda: read_sites(frame, client), message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; expected a table with a header"),
        ("\n\r\n\n", "is empty; expected a table with a header"),
        ("c,x\n", "source: the table has no rows; at least one is needed"),
        ("c,x,x\nu,1,2\n", "source: duplicate columns 'x'; rename them"),
        ("c,x, x\nu,1,2\n", "source: duplicate columns 'x'; rename them"),
        ("c,,x\nu,1,2\n", "source: column 2 has no name (an index that was saved along?)"),
        ("c,x\nü,1\n".encode("latin-1"), "line 2 is not UTF-8 (byte 0xfc); save the file as UTF-8"),
        ("c,x\nu,1\n".encode("utf-16"), "line 1 is not UTF-8 (byte 0xff); save the file as UTF-8"),
        ("c,x\n1.5,1\n2,2\n", "client: the column 'c' holds numbers with fractions, as 1.5"),
        ("c,x\nu,1\nNA,2\n", "client: 1 of 2 rows have no value in the column 'c' (row 2, the"),
        ("c,x\nu,1\nu,1,2\n", "cannot be read: found more fields"),
    ],
)
def test_bad_files_are_named_in_one_line(tmp_path, content, message):
    path = write(tmp_path / "t.csv", content)
    check_message(lambda: read_sites(path, "c"), message)


def test_many_rows_without_a_client_are_counted(tmp_path):
    path = write(tmp_path / "t.csv", "c,x\n" + "u,1\n" * 90 + ",2\n" * 10)
    told = "client: 10 of 100 rows have no value in the column 'c' (rows 91, 92, 93, 94, 95, 96, 97, 98"
    check_message(lambda: read_sites(path, "c"), told + " and 2 more, the first being 1)")


def test_wrong_sources(tmp_path):
    check_message(
        lambda: read_sites("t.xlsx", "c"), "source: got 't.xlsx'; accepted are .csv, .tsv,"
    )
    check_message(lambda: read_sites(tmp_path / "no", "c"), "accepted are .csv")
    check_message(lambda: read_sites("no.csv", "c"), "source: there is no file 'no.csv'; check the")
    check_message(lambda: read_sites({"c": [1]}, "c"), "source: got dict; accepted are", TypeError)
    path = write(tmp_path / "t.csv", "c,x\nu,1\n")
    message = "client_file: got 'f' with a table with a client column, which has no use for it"
    check_message(lambda: read_sites(path, "c", client_file="f"), message)
    path = write(tmp_path / "t.parquet", "c,x\nu,1\n")
    check_message(lambda: read_sites(path, "c"), "t.parquet' cannot be read: ")


SVM = "+1 1:0.5 3:2\n-1 2:-1\n+1 1:4\n"


@pytest.mark.parametrize("suffix", [".svm", ".libsvm", ".txt"])
def test_a_libsvm_file(tmp_path, suffix):
    path = write(tmp_path / f"t{suffix}", SVM)
    owners = write(tmp_path / "owners", b"\xef\xbb\xbf10\r\n9\r\n10\r\n\r\n")
    sites = read_sites(path, client_file=owners)
    assert told(sites) == {"9": [(0, -1, 0, -1)], "10": [(0.5, 0, 2, 1), (4, 0, 0, 1)]}
    assert sites[0].frame.columns == ["x1", "x2", "x3", "target"]
    wide = read_sites(path, client_file=owners, n_features=5)
    assert wide[0].frame.columns == ["x1", "x2", "x3", "x4", "x5", "target"]
    # An index counted from 0 is the column before.
    zero = read_sites(path, client_file=owners, n_features=4, zero_based=True)
    assert told(zero)["9"] == [(0, 0, -1, 0, -1)]


@pytest.mark.parametrize(
    ("content", "owners", "options", "message"),
    [
        (SVM, "u\nv\n", {}, "has 2 lines for 3 rows of t.svm; one a row is expected"),
        (
            SVM,
            "u\n \nv\n",
            {},
            "client_file: 1 of 3 rows have no value in the column 'client' (row 2,",
        ),
        (SVM, "", {}, "client_file: "),
        (SVM, None, {}, "client_file: "),
        (SVM, b"\xe9\nu\nv\n", {}, "client_file: "),
        (SVM, "u\nu\nu\n", {"n_features": 2}, "t.svm' cannot be read: n_features was set to 2"),
        (SVM, "u\nu\nu\n", {"client": "c"}, "client: got 'c' with a LIBSVM file, which has no use"),
        ("1 2:1 1:1\n", "u\n", {}, "t.svm' cannot be read: Feature indices"),
        ("1 0:1\n", "u\n", {}, "t.svm' cannot be read: Invalid index 0"),
        ("1 x\n", "u\n", {}, "t.svm' cannot be read: "),
    ],
)
def test_bad_libsvm_files_are_named_in_one_line(tmp_path, content, owners, options, message):
    path = write(tmp_path / "t.svm", content)
    options = {"client_file": owners if owners is None else write(tmp_path / "o", owners)} | options
    check_message(lambda: read_sites(path, **options), message)
