"""How times are written for clients: RFC 3339, UTC, microseconds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import overload


@overload
def rfc3339(moment: datetime) -> str: ...
@overload
def rfc3339(moment: None) -> None: ...
def rfc3339(moment: datetime | None) -> str | None:
    """`2026-01-01T00:00:00.000000Z`, or None for a time that has not come."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def wait_document(
    waits_for: str | None, since: datetime | None, until: datetime | None
) -> dict[str, str | None] | None:
    """What a wait is for, since when and until when, as JSON; None if nothing is awaited."""
    if waits_for is None:
        return None
    return {"for": waits_for, "since": rfc3339(since), "until": rfc3339(until)}
