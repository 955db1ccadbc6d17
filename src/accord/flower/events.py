"""What happens in a run, as lines of JSON in a file and as lines of Python's logging."""

import json
import logging
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

    def __call__(self, event: str, **fields: Any) -> None:
        if event != "round":
            self.seen.append({"event": event, **fields})
        if self.path is not None:
            line = json.dumps({"time": round(time.time(), 3), "event": event, **fields})
            with self.path.open("a") as file:
                file.write(line + "\n")
        logger.info("%s", _sentence(event, fields))

    def of(self, event: str) -> list[dict[str, Any]]:
        """The events of one name so far."""
        return [e for e in self.seen if e["event"] == event]


def _sentence(event: str, fields: dict[str, Any]) -> str:
    if event == "round" and "objective" in fields:
        up, down = (size(fields[f"{way}_bytes"]) for way in ("uplink", "downlink"))
        return (
            f"round {fields['round']}: {fields['heard']} of {fields['of']} sites, "
            f"F {fields['objective']:.6g}, "
            f"gradient norm {fields['gradient_norm']:.1e}, {up} up, {down} down"
        )
    told = ", ".join(f"{name} {_short(value)}" for name, value in fields.items())
    return f"{event.replace('_', ' ')}: {told}" if told else event.replace("_", " ")


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
