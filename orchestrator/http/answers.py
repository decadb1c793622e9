"""How objects are written: one JSON form for fresh, stored and listed answers."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi.responses import Response

from orchestrator.operations.execution import json_value


def json_response(content: Any, status: int = 200) -> Response:
    """The content as JSON; dataclasses are objects, times are RFC 3339 in UTC with microseconds."""
    body = orjson.dumps(content, option=orjson.OPT_PASSTHROUGH_DATETIME, default=json_value)
    return Response(body, status, media_type="application/json")
