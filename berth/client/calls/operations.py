"""What became of a write, asked for by its key (docs/reference/http-api.md)."""

from __future__ import annotations

from datetime import UTC, datetime

from berth.client.calls.call import Call, read, segment, written
from berth.client.requests.operation_keys import parse_key
from berth.client.reservation_models import Operation


def get_operation(key: str, *, since: datetime | None = None) -> Call[Operation]:
    """What became of the write with this key. Once it is `unknown`, no request with the key is done any more.

    `since` is when the key was first sent; a key made by this client contains its time.
    """
    if since is None and (parsed := parse_key(key)) is not None:
        since = moment(parsed.created_at_seconds)
    return read(f"/api/v1/operations/{segment(key)}", Operation, since=written(since))


def moment(seconds: float) -> datetime | None:
    """A moment of the server's clock; None for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None
