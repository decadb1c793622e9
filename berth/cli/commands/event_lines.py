"""Formats one event of the log as a line."""

from __future__ import annotations

import contextlib
import json
from datetime import datetime

from berth.cli.terminal import visible
from berth.process.json_objects import JsonObject

TYPE_PREFIX = "berth."
TYPE_WIDTH = len("provisioning.releasing.completed")


def line(version: int, event: JsonObject) -> str:
    """Format an event: version, local time, type, subject, data, in aligned columns."""
    time, type_ = event.get("time", "-"), event.get("type", "-").removeprefix(TYPE_PREFIX)
    with contextlib.suppress(ValueError):
        time = datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")
    data = "  ".join(f"{name}={_short(value)}" for name, value in (event.get("data") or {}).items())
    return visible(f"{version:>8}  {time}  {type_:<{TYPE_WIDTH}}  {event.get('subject', '-')}  {data}".rstrip())


def _short(value: object) -> str:
    plain = isinstance(value, str) and value.isprintable()  # otherwise it could move the cursor or start a line
    return str(value) if plain else json.dumps(value, separators=(",", ":"))
