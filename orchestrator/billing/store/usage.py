"""Usage and its cost within a window, by allocation, by day (UTC) or by tenant.

Computed from the allocations, so it is as new as its snapshot. The ledger holds the same amounts for what has ended once
metering has processed it; `berth verify` compares the two (docs/reference/billing.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.billing.rules import Grouping
from orchestrator.database.transactions import Reading


@dataclass(frozen=True, slots=True)
class Usage:
    """One item of a usage list: its JSON body, and the place that orders the list."""

    place: str
    document: JsonObject


# The part of each active time within the window (by day: then within each day). A part costs the difference between the cost
# from the beginning to its end and to its start, so parts add up to the whole.
_BY_ALLOCATION = """
with clock as materialized (select clock_timestamp() as now),
active as (
    select a.id, a.tenant_id, a.sku, a.gpus, a.price_version, p.price_micro_per_gpu_second as price, a.active_at,
           coalesce(a.releasing_at, a.failed_at) is null as is_open,
           greatest(a.active_at, :begin) as lo, least(coalesce(a.releasing_at, a.failed_at, c.now), :end) as hi
    from allocations a cross join clock c
    join sku_prices p on p.sku = a.sku and p.price_version = a.price_version
    where a.active_at < :end and coalesce(a.releasing_at, a.failed_at, 'infinity') > :begin
      and (cast(:tenant_id as uuid) is null or a.tenant_id = :tenant_id)
), costs as (
    select t.*, metered_gpu_microseconds(gpus, active_at, hi) - metered_gpu_microseconds(gpus, active_at, lo) as microseconds,
           metered_micro_units(gpus, price, active_at, hi) - metered_micro_units(gpus, price, active_at, lo) as amount
    from active t where hi > lo
)
select id::text as place, tenant_id, id as allocation_id, sku, gpus, price_version, price, lo, hi, is_open, microseconds, amount
from costs where id::text > :after order by place limit :limit
"""
_BY_DAY = """
with clock as materialized (select clock_timestamp() as now),
active as (
    select a.id, a.tenant_id, a.sku, a.gpus, a.price_version, p.price_micro_per_gpu_second as price, a.active_at,
           coalesce(a.releasing_at, a.failed_at) is null as is_open,
           greatest(a.active_at, :begin) as lo, least(coalesce(a.releasing_at, a.failed_at, c.now), :end) as hi
    from allocations a cross join clock c
    join sku_prices p on p.sku = a.sku and p.price_version = a.price_version
    where a.active_at < :end and coalesce(a.releasing_at, a.failed_at, 'infinity') > :begin
      and (cast(:tenant_id as uuid) is null or a.tenant_id = :tenant_id)
), parts as (
    select id, tenant_id, sku, gpus, price_version, price, active_at, is_open and hi <= upper as is_open,
           greatest(lo, lower) as lo, least(hi, upper) as hi, day
    from active cross join lateral (
        select d as day, d at time zone 'UTC' as lower, (d + interval '1 day') at time zone 'UTC' as upper
        from generate_series(date_trunc('day', lo at time zone 'UTC'), hi at time zone 'UTC', interval '1 day') d
    ) days where hi > lo
), costs as (
    select t.*, metered_gpu_microseconds(gpus, active_at, hi) - metered_gpu_microseconds(gpus, active_at, lo) as microseconds,
           metered_micro_units(gpus, price, active_at, hi) - metered_micro_units(gpus, price, active_at, lo) as amount
    from parts t where hi > lo
)
select to_char(day, 'YYYY-MM-DD') || ' ' || tenant_id as place, tenant_id, to_char(day, 'YYYY-MM-DD') as day,
       count(distinct id) as allocations, bool_or(is_open) as is_open, sum(microseconds) as microseconds, sum(amount) as amount
from costs group by day, tenant_id
having to_char(day, 'YYYY-MM-DD') || ' ' || tenant_id > :after order by place limit :limit
"""
_BY_TENANT = """
with clock as materialized (select clock_timestamp() as now),
active as (
    select a.id, a.tenant_id, a.sku, a.gpus, a.price_version, p.price_micro_per_gpu_second as price, a.active_at,
           coalesce(a.releasing_at, a.failed_at) is null as is_open,
           greatest(a.active_at, :begin) as lo, least(coalesce(a.releasing_at, a.failed_at, c.now), :end) as hi
    from allocations a cross join clock c
    join sku_prices p on p.sku = a.sku and p.price_version = a.price_version
    where a.active_at < :end and coalesce(a.releasing_at, a.failed_at, 'infinity') > :begin
      and (cast(:tenant_id as uuid) is null or a.tenant_id = :tenant_id)
), costs as (
    select t.*, metered_gpu_microseconds(gpus, active_at, hi) - metered_gpu_microseconds(gpus, active_at, lo) as microseconds,
           metered_micro_units(gpus, price, active_at, hi) - metered_micro_units(gpus, price, active_at, lo) as amount
    from active t where hi > lo
)
select tenant_id::text as place, tenant_id, count(distinct id) as allocations, bool_or(is_open) as is_open,
       sum(microseconds) as microseconds, sum(amount) as amount
from costs group by tenant_id having tenant_id::text > :after order by place limit :limit
"""
_STATEMENTS = {Grouping.ALLOCATION: _BY_ALLOCATION, Grouping.DAY: _BY_DAY, Grouping.TENANT: _BY_TENANT}


async def read_usage(
    reading: Reading, by: Grouping, tenant_id: UUID | None, begin: datetime, end: datetime, *, after: str, limit: int
) -> list[Usage]:
    """Return up to `limit` items behind the place `after`, of one tenant or of all, within `[begin, end)`.

    What is still active counts up to now and is marked `is_open`.
    """
    values = {"tenant_id": tenant_id, "begin": begin, "end": end, "after": after, "limit": limit}
    rows = (await reading.execute(_STATEMENTS[by], values)).all()
    return [Usage(row.place, _document(by, row)) for row in rows]


def _document(by: Grouping, row: Any) -> JsonObject:
    found: JsonObject = {"tenant_id": row.tenant_id}
    if by is Grouping.ALLOCATION:
        found |= {
            "allocation_id": row.allocation_id, "sku": row.sku, "gpus": row.gpus, "price_version": row.price_version,
            "price_micro_per_gpu_second": row.price, "starts_at": row.lo, "ends_at": row.hi,
        }  # fmt: skip
    else:
        found |= {"allocations": row.allocations}
        if by is Grouping.DAY:
            found |= {"day": row.day}
    return found | {
        "is_open": row.is_open,
        "gpu_microseconds": int(row.microseconds),
        "amount_micro_units": int(row.amount),
    }
