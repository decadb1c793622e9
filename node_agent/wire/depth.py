"""How deeply a JSON value is nested."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from berth.process.json_objects import JsonObject


def depth(value: object) -> int:
    """How deeply objects and lists are nested in `value`. Not recursive: it measures what a sender chose."""
    depth, level = 0, [value]
    while level := [inner for outer in level if isinstance(outer, dict | list) for inner in _members(outer)]:
        depth += 1
    return depth


def _members(value: JsonObject | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value
