"""What was used, and what it costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from orchestrator.domain.errors import Invalid
from orchestrator.store.clock import read_clock
from orchestrator.store.database import Database
from orchestrator.store.usage import Grouping, Usage, read_usage

WINDOW_MAX = timedelta(days=400)


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

    Raises `Invalid` for a window that is empty, reversed, or longer than `WINDOW_MAX`.
    """
    async with database.reading() as reading:
        now = await read_clock(reading)
        last = now if end is None else end
        first = begin or last.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        if first >= last:
            raise _invalid("from", "is not before `to`")
        if last - first > WINDOW_MAX:
            raise _invalid("from", f"is more than {WINDOW_MAX.days} days before `to`")
        return await read_usage(reading, by, tenant_id, first, last, after=after, limit=limit)


def _invalid(field: str, message: str) -> Invalid:
    return Invalid(f"{field}: {message}", errors=[{"field": field, "message": message}])
