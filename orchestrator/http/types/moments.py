"""Times in requests: RFC 3339 with an offset, kept in UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from orchestrator.reservations.states import MOMENT_MAX

_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})", re.ASCII
)


def _moment(value: Any) -> datetime:
    """An RFC 3339 time, in UTC; what lies beyond the representable years, by its offset, is their last or first moment."""
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise ValueError("must be an RFC 3339 time with an offset, such as 2026-01-31T12:00:00Z")
    moment = datetime.fromisoformat(value.upper())
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        return MOMENT_MAX if moment.year > 1 else datetime.min.replace(tzinfo=UTC)


Moment = Annotated[datetime, BeforeValidator(_moment), WithJsonSchema({"type": "string", "format": "date-time"})]
