"""The model file: schema, preprocessing, coefficients and provenance as one JSON, and predictions."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from accord.analysis.families import FAMILIES
from accord.analysis.schema import Schema
from accord.files import write_whole
from accord.problems.base import positive

FORMAT = "accord model"
VERSION = 1


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model of a table.

    ``kind``: linear, logistic, softmax, poisson or huber; ``schema``: the columns and their
    preprocessing; ``x``: coefficients of the encoded columns, (d,) or (d, C), the intercept last where
    ``intercept``; ``threshold``: Huber's; ``provenance``: where it comes from, in plain JSON values.
    """

    kind: str
    schema: Schema
    x: np.ndarray
    intercept: bool
    threshold: float = 1.0
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def classes(self) -> list | None:
        """The classes in the order of their numbers, or None for a numeric target."""
        target, _ = self.schema.explained
        return list(target.classes) if target.kind == "classes" else None

    @property
    def coefficients(self) -> tuple[np.ndarray, np.ndarray]:
        """(coefficients, intercept) on the table's scale: (d,) and (), or (d, C) and (C,)."""
        d = len(self.schema.columns)
        last = self.x[d] if self.intercept else np.zeros(self.x.shape[1:])
        return self.schema.unscale(self.x[:d], last)

    def predictor(self, frame, unknown: str = "error") -> np.ndarray:
        """The linear predictor of every row of a frame: (rows,) or (rows, C)."""
        X, _ = self.schema.encode(frame, target=False, unknown=unknown)
        return X @ self.x[:-1] + self.x[-1] if self.intercept else X @ self.x

    def predict(self, frame, unknown: str = "error"):
        """Predictions for a table, as a polars DataFrame with one row for each of its rows.

        ``prediction`` is the expected target, or the likeliest class; classifiers add ``probability of
        <class>`` of every class. ``unknown="baseline"`` takes a category that no site had for the
        baseline; by default it is an error that names it.
        """
        import polars as pl

        mean = FAMILIES[self.kind].mean(self.predictor(frame, unknown))
        kept = self.schema.kept(frame, target=False)
        if self.classes is None:
            told = pl.DataFrame({"prediction": mean})
        else:
            shares = np.column_stack([1 - mean, mean]) if mean.ndim == 1 else mean
            chosen = pl.Series([self.classes[k] for k in shares.argmax(1)], strict=False)
            named = {f"probability of {c}": shares[:, k] for k, c in enumerate(self.classes)}
            told = pl.DataFrame({"prediction": chosen} | named)
        # A row that the fit would have dropped has no prediction.
        places = [int(p) if k else None for p, k in zip(np.cumsum(kept) - 1, kept, strict=True)]
        return told.select(pl.all().gather(pl.Series(places, dtype=pl.Int64)))

    def to_json(self) -> str:
        """The model file's text; ``from_json`` gives back the same model to the last bit."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "intercept": self.intercept,
            "threshold": self.threshold,
            "x": self.x.tolist(),
            "schema": json.loads(self.schema.to_json()),
            "provenance": self.provenance,
        }
        return json.dumps(content, indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Model":
        """A model from its file's text; nothing in it is executed.

        Raises ``ValueError`` for anything but a model file of this version.
        """
        try:
            content = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"model: not a model file: {error}") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError('model: not a model file: expected JSON with "format": "accord model"')
        if content.get("version") != VERSION:
            raise ValueError(
                f"model: version {content.get('version')!r} of the format; this Accord reads {VERSION}: "
                "fit again, or install the Accord that wrote it"
            )
        try:
            kind, x = content["kind"], np.array(content["x"], float)
            schema = Schema.from_json(json.dumps(content["schema"]))
            intercept = content["intercept"]
            threshold = positive("threshold", content["threshold"])
            provenance = dict(content["provenance"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"model: the file is damaged: {error!r}") from None
        if (kind, intercept) != (schema.model, schema.intercept) or schema.target is None:
            raise ValueError(
                f"model: the file is damaged: kind {kind!r} and intercept {intercept!r} are not those of "
                f"its schema, {schema.model!r} and {schema.intercept!r}"
            )
        rows = len(schema.columns) + intercept
        wide = (len(schema.target.classes),) if kind == "softmax" else ()
        if x.shape != (rows, *wide) or not np.isfinite(x).all():
            raise ValueError(
                f"model: the file is damaged: coefficients of shape {x.shape}, expected {(rows, *wide)} "
                "finite numbers"
            )
        return cls(kind, schema, x, intercept, threshold, provenance)

    def save(self, path) -> Path:
        """Writes the model file, whole or not at all."""
        return write_whole(Path(path), self.to_json())

    @classmethod
    def load(cls, path) -> "Model":
        """A model from a file that ``save`` wrote, or from the folder of its model.json."""
        path = Path(path)
        path = path / "model.json" if path.is_dir() else path
        if not path.is_file():
            raise ValueError(f"model: there is no file {str(path)!r}; check the path")
        try:
            return cls.from_json(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise ValueError(f"model: {path.name} is not a model file (not UTF-8 text)") from None
