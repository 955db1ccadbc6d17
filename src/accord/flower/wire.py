"""What crosses the wire: parameter trees and plain values as Flower's records, and what may come back."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from accord import oracles
from accord.algorithms import REGISTRY, LinearDecay
from accord.core.checks import closest

_HEADER = 4096
"""More bytes than the header of an array in NumPy's format has."""

_START = 10
"""Where that header begins, after its own length in two bytes."""


class RefusedError(ValueError):
    """A letter that is not what was agreed; its text says what is wrong with it."""


class NotFiniteError(RefusedError):
    """A letter with a NaN or an infinite number, as of a method that diverges."""


def flatten(tree, prefix: str) -> dict[str, np.ndarray]:
    """A tree's leaves as NumPy arrays, by ``prefix`` and their path in the tree."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {prefix + jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(arrays: dict[str, np.ndarray], like, prefix: str):
    """The tree of ``flatten``, in the structure of ``like``."""
    paths, structure = jax.tree_util.tree_flatten_with_path(like)
    names = [prefix + jax.tree_util.keystr(path) for path, _ in paths]
    return jax.tree_util.tree_unflatten(structure, [arrays[name] for name in names])


def letter(about: dict[str, Any], arrays: dict[str, np.ndarray]) -> RecordDict:
    """A message's content: plain values, and named arrays."""
    records = {name: as_record(array) for name, array in arrays.items()}
    return RecordDict(
        {"accord": ConfigRecord({"about": json.dumps(about)}), "arrays": ArrayRecord(records)}
    )


def as_record(array) -> Array:
    """An array as Flower's own, where it is not one yet."""
    return array if isinstance(array, Array) else Array(np.asarray(array, order="C"))


def opened(content: RecordDict) -> tuple[dict[str, Any], ArrayRecord]:
    """(plain values, arrays) of a ``letter``; ``RefusedError`` for anything else."""
    try:
        about = json.loads(str(content["accord"]["about"]))
        arrays = content["arrays"]
    except (KeyError, TypeError, ValueError) as error:
        raise RefusedError(f"it is no letter of Accord ({type(error).__name__}: {error})") from None
    if not isinstance(about, dict) or not isinstance(arrays, ArrayRecord):
        raise RefusedError("it is no letter of Accord")
    return about, arrays


def tree_of(record: ArrayRecord, like, prefix: str):
    """The tree under ``prefix``, as NumPy arrays, where it is exactly of the shapes and dtypes of ``like``.

    Raises ``RefusedError`` naming the array that is missing, of another shape or dtype, too large or not
    finite. Sizes are looked at before anything is decoded.
    """
    wanted = _named(like, prefix)
    lacking = [name for name in wanted if name not in record]
    if lacking:
        raise RefusedError(f"no array {lacking[0]!r}; expected are {', '.join(wanted)}")
    leaves = [_array(name, record[name], leaf) for name, leaf in wanted.items()]
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def trees_of(record: ArrayRecord, like: Mapping[str, Any]) -> dict[str, Any]:
    """The trees by their prefixes, as ``tree_of`` gives them, of a record that holds them and no more."""
    known = [name for prefix, tree in like.items() for name in _named(tree, prefix)]
    strange = [name for name in record if name not in known]
    if strange:
        raise RefusedError(f"unknown array {strange[0]!r}; expected are {', '.join(known)}")
    return {prefix: tree_of(record, tree, prefix) for prefix, tree in like.items()}


def _named(like, prefix: str) -> dict[str, Any]:
    paths, _ = jax.tree_util.tree_flatten_with_path(like)
    return {prefix + jax.tree_util.keystr(path): leaf for path, leaf in paths}


def _array(name: str, array: Array, like) -> np.ndarray:
    shape, dtype = tuple(np.shape(like)), np.dtype(like.dtype)
    most = int(np.prod(shape)) * dtype.itemsize + _HEADER
    if len(array.data) > most:
        raise RefusedError(f"{name!r} has {len(array.data):,} bytes; expected at most {most:,}")
    try:
        value = array.numpy()
    except Exception as error:
        raise RefusedError(f"{name!r} cannot be decoded ({type(error).__name__})") from None
    if value.dtype != dtype:
        raise RefusedError(f"{name!r} is {value.dtype}; expected {dtype}")
    if value.shape != shape:
        raise RefusedError(f"{name!r} has shape {value.shape}; expected {shape}")
    if not np.isfinite(value).all():
        raise NotFiniteError(f"{name!r} has a NaN or infinite entry")
    return value


def size_of(record: ArrayRecord) -> int:
    """Bytes of the arrays of a record, without the headers of NumPy's format.

    What a record says of its arrays' shapes and dtypes is not relied on.
    """
    return sum(max(len(a.data) - _START - _length(a.data), 0) for a in record.values())


def _length(data: bytes) -> int:
    """The length of the header of an array in NumPy's format, version 1.0."""
    return int.from_bytes(data[_START - 2 : _START], "little")


_PARTS: dict[str, Any] = {name: getattr(oracles, name) for name in oracles.__all__} | {
    "LinearDecay": LinearDecay
}
"""Classes that a field of an algorithm may be of."""


def described(algorithm, classes: Mapping[str, type] = REGISTRY) -> dict[str, Any]:
    """An algorithm in plain values: its class by name, one of ``classes``, and its fields.

    Raises ``ValueError`` for a class the sites do not know, or a field that cannot travel, as a function.
    """
    name = type(algorithm).__name__
    if classes.get(name) is not type(algorithm):
        raise ValueError(
            f"algorithm: {name} is not known at the sites; give its class to both apps: "
            f"server_app(..., classes=[{name}]) and client_app(..., classes=[{name}])"
        )
    fields = {}
    for field in dataclasses.fields(classes[name]):
        value = getattr(algorithm, field.name)
        if dataclasses.is_dataclass(value):
            value = described(value, {**_PARTS, **classes})
        elif isinstance(value, np.generic):
            value = value.item()
        if not isinstance(value, dict | str | int | float | bool | None):
            raise ValueError(
                f"{name}({field.name}=...): {value!r} cannot be sent to the sites; accepted are numbers, "
                "text, and known classes such as LinearDecay"
            )
        fields[field.name] = value
    return {"class": name, "fields": fields}


def rebuilt(description: dict[str, Any], classes: Mapping[str, type] = REGISTRY):
    """The algorithm of ``described``; ``ValueError`` for a class that is not known here."""
    name = description["class"]
    if name not in classes:
        raise ValueError(closest(str(name), classes, "algorithm"))
    fields = {
        key: rebuilt(value, {**_PARTS, **classes}) if isinstance(value, dict) else value
        for key, value in description["fields"].items()
    }
    return classes[name](**fields)


def known_classes(classes) -> dict[str, Any]:
    """The registry and the user's own classes, by name."""
    return REGISTRY | {cls.__name__: cls for cls in classes}
