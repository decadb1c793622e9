"""What is left to tenants, and whose balance is to be looked at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from orchestrator.billing.rules import Standing
from orchestrator.billing.store import balances
from orchestrator.billing.store.metering import Lag, read_lag, read_trusted_head
from orchestrator.billing.store.usage import Grouping, Usage, read_usage
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Database
from orchestrator.keyvalue.rules import RangeInvalid
from orchestrator.operations.execution import Context


async def find_balance(database: Database, tenant_id: UUID) -> Standing:
    """One tenant's, now. Raises `NotFound`."""
    async with database.reading() as reading:
        return await balances.read_standing(reading, tenant_id)


async def find_due_balances(context: Context, limit: int) -> list[UUID]:
    """At most `limit` tenants whose balance is to be looked at by now, the earliest first."""
    async with context.database.reading() as reading:
        return await balances.find_due(reading, limit)


async def find_running_allocations(context: Context, tenant_id: UUID, limit: int) -> list[UUID]:
    """At most `limit` of the tenant's metered allocations that are active, the longest first."""
    async with context.database.reading() as reading:
        return await balances.find_running(reading, tenant_id, limit)


async def find_late_seconds(context: Context) -> float:
    """How long ago the balance that is most overdue was to be looked at; not positive if none is."""
    async with context.database.read_one() as reading:
        return await balances.find_late_seconds(reading)


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


async def find_metering_lag(context: Context) -> Lag:
    """In versions, and in seconds."""
    async with context.database.read_one() as reading:
        return await read_lag(reading)


async def find_trusted_head(context: Context) -> int | None:
    """The newest version; None while versions may still change, because nobody has accepted this Postgres yet."""
    async with context.database.read_one() as reading:
        return await read_trusted_head(reading)
