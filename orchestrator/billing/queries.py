"""Reads of balances, usage and metering's progress."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from orchestrator.billing.rules import BalanceSnapshot, Grouping
from orchestrator.billing.store import balances
from orchestrator.billing.store.metering import Lag, read_lag, read_trusted_head
from orchestrator.billing.store.usage import Usage, read_usage
from orchestrator.database.clock import read_clock
from orchestrator.database.replicas.reads import read_replicated
from orchestrator.database.transactions import Database, Reading
from orchestrator.keyvalue.rules import RangeInvalid
from orchestrator.operations.execution import Context

WINDOW_MAX = timedelta(days=400)
"""The longest window of one usage request."""
_FIRST = datetime(1, 1, 2, tzinfo=UTC)


async def find_balance(database: Database, tenant_id: UUID) -> BalanceSnapshot:
    """Return the tenant's present balance. Raises `NotFound`."""
    async with database.reading() as reading:
        return await balances.read_balance(reading, tenant_id)


async def find_due_balances(context: Context, limit: int) -> list[UUID]:
    """Return at most `limit` tenants whose balance is due for evaluation, the most overdue first."""
    async with context.database.reading() as reading:
        return await balances.find_due(reading, limit)


async def find_running_allocations(context: Context, tenant_id: UUID, limit: int) -> list[UUID]:
    """Return at most `limit` of the tenant's metered allocations that are active, the longest-running first."""
    async with context.database.reading() as reading:
        return await balances.find_running(reading, tenant_id, limit)


async def find_late_seconds(context: Context) -> float:
    """Return how long the most overdue evaluation has been due, in seconds; not positive if none is."""
    async with context.database.read_one() as reading:
        return await balances.find_late_seconds(reading)


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
    """Return up to `limit` items behind `after`. The default window is the present month (UTC) up to now.

    Raises `RangeInvalid` for a window that is empty, reversed, or longer than `WINDOW_MAX`.
    """

    async def read(reading: Reading) -> list[Usage]:
        last = await read_clock(reading) if end is None else end
        first = _month_of(last) if begin is None else begin
        if first >= last:
            raise RangeInvalid("`from` must be before `to`")
        if last - first > WINDOW_MAX:
            raise RangeInvalid(f"`from` is more than {WINDOW_MAX.days} days before `to`; ask for a shorter window")
        return await read_usage(reading, by, tenant_id, first, last, after=after, limit=limit)

    return await read_replicated(database, read)


def _month_of(end: datetime) -> datetime:
    """Return the beginning of the month (UTC) that contains `end` or ends with it."""
    inside = max(end.astimezone(UTC), _FIRST) - timedelta(microseconds=1)
    return inside.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


async def find_metering_lag(context: Context) -> Lag:
    """Return how far metering is behind the log."""
    async with context.database.read_one() as reading:
        return await read_lag(reading)


async def find_trusted_head(context: Context) -> int | None:
    """Return the newest version; None while versions may still change, because this timeline is not accepted yet."""
    async with context.database.read_one() as reading:
        return await read_trusted_head(reading)
