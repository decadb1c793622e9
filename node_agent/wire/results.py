"""What the result of a task may be, so that the database can hold it."""

from __future__ import annotations

import json
from typing import Final

from berth.process.json_objects import JsonObject
from node_agent.wire.depth import depth

RESULT_DEPTH_MAX: Final = 32


def storable(result: JsonObject) -> JsonObject:
    """Return `result` if the database can hold it: Unicode text, finite numbers, bounded depth. Raises ValueError."""
    try:
        written = json.dumps(result, ensure_ascii=False, allow_nan=False)
        written.encode()
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:  # NaN, infinities, lone surrogates: no JSON that could be stored
        raise ValueError("must be JSON of Unicode text and finite numbers") from error
    if "\\u0000" in written:
        raise ValueError("must not contain U+0000")
    if depth(result) > RESULT_DEPTH_MAX:
        raise ValueError(f"may be nested {RESULT_DEPTH_MAX} deep at most")
    return result
