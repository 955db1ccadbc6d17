"""What tables, pictures and the page share: colours, marks, and numbers as text."""

import math

import numpy as np

COLOURS = (
    "#2d4bff", "#c38700", "#00784b", "#ff2d96", "#1e96b4", "#d21e00", "#a578ff", "#963cb4",
)  # fmt: skip
"""Apart under normal, protanopic, deuteranopic and tritanopic vision, with a contrast of at least 3
against white and against the page's dark background."""

DASHES = ("solid", "dash", "dot", "dashdot")
"""One per turn through the colours, so that thirty-two curves stay distinct."""

MARKS = ("circle", "square", "diamond", "cross", "x", "triangle-up", "triangle-down", "star")

DASH = "-"
"""What stands for a value that is not there."""


def look(position: int) -> tuple[str, str, str]:
    """(colour, dash, mark) of the curve at a position."""
    turn, place = divmod(position, len(COLOURS))
    marks = MARKS[(place + 3 * turn) % len(MARKS)]
    return COLOURS[place], DASHES[turn % len(DASHES)], marks


def power(value: float) -> str:
    """A number such as 0.01 as 1e-2."""
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def short(value: float | None) -> str:
    """Three digits, without an exponent from 0.001 up to a million."""
    if value is None or math.isnan(value):
        return DASH
    if value == round(value) and abs(value) < 1e6:
        return f"{value:.0f}"
    if not 1e-3 <= abs(value) < 1e6:
        return f"{value:.1e}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def scientific(value: float | None) -> str:
    """Two digits and an exponent."""
    return DASH if value is None else f"{value:.1e}"


def share(value: float | None) -> str:
    """Three decimals, as of an accuracy."""
    if value is None or math.isnan(value):
        return DASH
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.1e}"


def measured(value: float | None, error: float | None = None) -> str:
    """A number to the second digit of its error, or without an error to four digits."""
    if value is None or not math.isfinite(value):
        return DASH
    if not error or not math.isfinite(error):
        return f"{value:#.4g}".rstrip(".") if value else "0"
    if not 1e-5 <= error < 1e6 or abs(value) >= 1e9:
        digits = math.floor(math.log10(max(abs(value), error))) - math.floor(math.log10(error)) + 1
        return f"{value:.{max(digits, 0)}e}"
    return f"{value:.{max(0, 1 - math.floor(math.log10(error)))}f}"


def chance(p: float | None) -> str:
    """A p value: three decimals, or <0.001."""
    if p is None or math.isnan(p):
        return DASH
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def at_most(bound: float) -> str:
    """A bound to one digit, rounded up."""
    if not 0 < bound < math.inf:
        return f"{bound:g}"
    mantissa, exponent = f"{bound:.17e}".split("e")
    digit = math.ceil(float(mantissa))
    return f"{digit}e{int(exponent)}" if digit < 10 else f"1e{int(exponent) + 1}"


def size(count: float) -> str:
    """Bytes in the unit that leaves up to three digits: 640 B, 55.0 kB, 1.23 GB; 1 kB is 1000 B."""
    if count < 999.5:
        return f"{count:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        count /= 1000
        if count < 999.5 or unit == "TB":
            break
    return f"{count:.{2 - math.floor(math.log10(max(1, min(count, 100))))}f} {unit}"


def cut(name: str, width: int) -> str:
    """A name on one line of at most ``width`` characters, nothing unprintable in it."""
    plain = "".join(c if c.isprintable() else " " for c in name)
    plain = " ".join(plain.split())
    return plain if len(plain) <= width else f"{plain[: width - 1]}…"


def limits(values, floor: float) -> tuple[float, float]:
    """The range of the vertical axis: from the least value drawn to a little above the start."""
    found = np.concatenate(values) if values else np.ones(1)
    found = found[np.isfinite(found)]
    low = max(floor, found.min()) if len(found) else floor
    high = min(max(found.max(), 1.0), 1e3) if len(found) else 1.0
    return 0.5 * low, 2 * high


def reach(curves, axis: str, floor: float) -> tuple[float, str]:
    """Where the horizontal axis ends, and words for runs that go on: "" where none does.

    By then every curve has come down to the least it reaches, so that a method which stays where it is does
    not press the others together. Against rounds all of them are shown.
    """
    whole = max(float(c.axes[axis][-1]) for c in curves)
    if axis == "rounds":
        return whole, ""
    ends = []
    for curve in curves:
        values = np.where(np.isfinite(curve.values), curve.values, np.inf)
        near = np.flatnonzero(values <= 2 * max(values.min(), floor))
        ends.append(curve.axes[axis][near[0] if len(near) else -1])
    end = 1.05 * (float(max(ends)) or whole or 1.0)
    return end, f" (runs go on to {short(whole)})" if whole > end else ""
