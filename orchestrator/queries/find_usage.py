"""What was used, and what it costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from orchestrator.domain.transaction_refusals import RangeInvalid
from orchestrator.store.clock import read_clock
from orchestrator.store.database import Database
from orchestrator.store.usage import Grouping, Usage, read_usage

WINDOW_MAX = timedelta(days=400)
_FIRST = datetime(1, 1, 2, tzinfo=UTC)


async def find_usage(
    database: Database,
    by: Grouping,
    tenant_id: UUID | None,
    begin: datetime | None,
    end: datetime | None,
    *,
    after: str,
    limit: int,
) -> list[Usage]:
    """Up to `limit` items behind `after`. Default: from the beginning of this month (UTC) to now.

    Raises `RangeInvalid` for a window that is empty, reversed, or longer than `WINDOW_MAX`.
    """
    async with database.reading() as reading:
        last = await read_clock(reading) if end is None else end
        first = _month_of(last) if begin is None else begin
        if first >= last:
            raise RangeInvalid("`from` is not before `to`")
        if last - first > WINDOW_MAX:
            raise RangeInvalid(f"`from` is more than {WINDOW_MAX.days} days before `to`")
        return await read_usage(reading, by, tenant_id, first, last, after=after, limit=limit)


def _month_of(end: datetime) -> datetime:
    """The beginning of the month (UTC) that ends with `end`, or in which it lies."""
    inside = max(end.astimezone(UTC), _FIRST) - timedelta(microseconds=1)
    return inside.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
