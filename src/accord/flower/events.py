"""What happens in a run, as lines of JSON in a file and as lines of Python's logging."""

import json
import logging
import math
import time
from pathlib import Path
from typing import Any

from accord.report.style import size

logger = logging.getLogger("accord")


class Events:
    """A run's log: ``events("state_lost", client="a", round=7)``.

    Each event is a line of JSON with ``time`` (seconds since 1970), ``event`` and what belongs to it, in
    ``path`` where one is given; ``seen`` holds them all but the rounds'.
    """

    def __init__(self, path: Path | None = None):
        self.path = path
        self.seen: list[dict[str, Any]] = []
        if path is not None and path.exists():
            told = [json.loads(line) for line in path.read_text().splitlines() if _whole(line)]
            self.seen = [e for e in told if e["event"] != "round"]

    def __call__(self, event: str, **fields: Any) -> None:
        if event != "round":
            self.seen.append({"event": event, **fields})
        if self.path is not None:
            now = round(time.time(), 3)
            line = json.dumps(_plain({"time": now, "event": event, **fields}), allow_nan=False)
            with self.path.open("a") as file:
                file.write(line + "\n")
        logger.info("%s", _sentence(event, fields))

    def of(self, event: str) -> list[dict[str, Any]]:
        """The events of one name so far."""
        return [e for e in self.seen if e["event"] == event]


def _whole(line: str) -> bool:
    """Whether a line was written to its end."""
    return line.startswith("{") and line.endswith("}")


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with None for numbers that JSON does not have."""
    odd = {k for k, v in fields.items() if isinstance(v, float) and not math.isfinite(v)}
    return {name: None if name in odd else value for name, value in fields.items()}


def _sentence(event: str, fields: dict[str, Any]) -> str:
    if event == "round" and "of" in fields:
        up, down = (size(fields[f"{way}_bytes"]) for way in ("uplink", "downlink"))
        return (
            f"round {fields['round']}: {fields['heard']} of {fields['of']} sites, "
            f"{_measures(fields)}{up} up, {down} down"
        )
    told = ", ".join(f"{name} {_short(value)}" for name, value in fields.items())
    return f"{event.replace('_', ' ')}: {told}" if told else event.replace("_", " ")


def _measures(fields: dict[str, Any]) -> str:
    if fields.get("objective") is None:
        return ""
    return f"F {fields['objective']:.6g}, gradient norm {fields['gradient_norm']:.1e}, "


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
