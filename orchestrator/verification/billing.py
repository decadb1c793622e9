"""Billing: what was metered, and what the ledger says it costs, is what the allocations say, to the unit.

Up to metering's position: an event behind it is not metered yet. What an interval costs is computed here anew,
from the allocation's times and the SKU's price, and not by the function that wrote the ledger. A balance is the sum of its
tenant's lines; prepaid balances are evaluated, and what their tenants run is released when nothing is left.
"""

from __future__ import annotations

from typing import LiteralString

from psycopg.sql import SQL

from orchestrator.verification.verdict import Bounds, Connection, Verdict

_COMING = SQL("""
coming as materialized (
    select e.subject, e.event_type = 'provisioning.active' as opens from (
        select subject, event_type from log
        where version > coalesce((select version from consumer_positions where consumer = 'metering'), 0)
        union all select subject, event_type from outbox
    ) e where e.event_type in ('provisioning.active', 'provisioning.releasing.requested', 'provisioning.failed')
)""")
UNMETERED = SQL("""
with {coming}
select a.id, a.active_at from allocations a
where a.active_at is not null and not exists (select from metering_intervals i where i.allocation_id = a.id)
  and not exists (select from coming c where c.opens and c.subject = 'allocations/' || a.id)
""").format(coming=_COMING)
OTHERWISE: LiteralString = """
select i.allocation_id, to_jsonb(i) - array['allocation_id', 'opened_version', 'closed_version', 'ended_at'],
       case when a.id is null then 'does not know it' else 'says ' || jsonb_build_object('tenant_id', a.tenant_id, 'sku', a.sku,
           'gpus', a.gpus, 'price_version', a.price_version, 'active_at', a.active_at,
           'price_micro_per_gpu_second', p.price_micro_per_gpu_second)::text end
from metering_intervals i left join allocations a on a.id = i.allocation_id
left join sku_prices p on p.sku = a.sku and p.price_version = a.price_version
where (i.tenant_id, i.sku, i.gpus, i.price_version, i.active_at, i.price_micro_per_gpu_second)
      is distinct from (a.tenant_id, a.sku, a.gpus, a.price_version, a.active_at, p.price_micro_per_gpu_second)
  and not exists (select from archived_allocations x where x.allocation_id = i.allocation_id)
"""
ENDS = SQL("""
with {coming}
select i.allocation_id, coalesce(i.ended_at::text, 'open'), coalesce(coalesce(a.releasing_at, a.failed_at)::text, 'open')
from metering_intervals i join allocations a on a.id = i.allocation_id
where i.ended_at is distinct from coalesce(a.releasing_at, a.failed_at)
  and not (i.ended_at is null and exists (select from coming c where not c.opens and c.subject = 'allocations/' || a.id))
""").format(coming=_COMING)
COST: LiteralString = """
with meant as (
    select i.*, i.gpus * greatest(0, (extract(epoch from i.ended_at) - extract(epoch from i.active_at)) * 1000000)::numeric
           as gpu_microseconds
    from metering_intervals i where i.ended_at is not null
), line as (
    select m.*, div(trunc(m.gpu_microseconds) * m.price_micro_per_gpu_second, 1000000) as amount from meant m
)
select coalesce(m.allocation_id, l.allocation_id), coalesce(l.amount_micro_units::text, 'nothing'),
       coalesce(m.amount::text, 'nothing')
from line m full join (select * from ledger where kind = 'usage') l on l.allocation_id = m.allocation_id
where (l.tenant_id, l.amount_micro_units, l.sku, l.gpus, l.price_version, l.price_micro_per_gpu_second, l.starts_at,
       l.ends_at, l.gpu_microseconds)
      is distinct from (m.tenant_id, m.amount, m.sku, m.gpus, m.price_version, m.price_micro_per_gpu_second, m.active_at,
       m.ended_at, trunc(m.gpu_microseconds))
"""
SETTLED: LiteralString = """
select b.tenant_id, b.settled_micro_units, coalesce(l.amount, 0)
from balances b full join (
    select tenant_id, sum(case when kind in ('top_up', 'credit') then amount_micro_units else -amount_micro_units end) as amount
    from ledger group by tenant_id
) l on l.tenant_id = b.tenant_id
where b.tenant_id is null or b.settled_micro_units <> coalesce(l.amount, 0)
"""
# A part costs the difference of the costs from the interval's beginning to its two ends, each rounded down.
CREDITS: LiteralString = """
select l.id, l.amount_micro_units, l.allocation_id, coalesce((c.until_end - c.until_start)::text, 'nothing')
from ledger l left join lateral (
    select div(i.gpus * trunc((extract(epoch from l.ends_at) - extract(epoch from i.active_at)) * 1000000)
               * i.price_micro_per_gpu_second, 1000000) as until_end,
           div(i.gpus * trunc((extract(epoch from l.starts_at) - extract(epoch from i.active_at)) * 1000000)
               * i.price_micro_per_gpu_second, 1000000) as until_start
    from metering_intervals i
    where i.allocation_id = l.allocation_id and l.starts_at < l.ends_at and l.starts_at >= i.active_at
      and l.ends_at <= coalesce(i.ended_at, 'infinity') and l.tenant_id = i.tenant_id
) c on true
where l.kind = 'credit' and l.amount_micro_units is distinct from c.until_end - c.until_start
"""
OVERLAPPING: LiteralString = """
select l.id, l.allocation_id, o.id from ledger l join ledger o on o.allocation_id = l.allocation_id and o.kind = 'credit'
where l.kind = 'credit' and l.id < o.id and l.starts_at < o.ends_at and o.starts_at < l.ends_at
"""
UNLOOKED: LiteralString = """
select b.tenant_id, count(*) from balances b
join metering_intervals i on i.tenant_id = b.tenant_id and i.ended_at is null
join allocations a on a.id = i.allocation_id and a.state = 'active'
where b.prepaid and b.look_at is null group by b.tenant_id
"""
LATE: LiteralString = """
select b.tenant_id, b.look_at from balances b where b.look_at < clock_timestamp() - make_interval(secs => %(overdue)s)
"""
POSTPAID: LiteralString = """
select t.id, t.depleted_at from tenants t join balances b on b.tenant_id = t.id where t.depleted_at is not null and not b.prepaid
"""
RUNNING: LiteralString = """
select a.id, t.id, t.depleted_at from tenants t
join metering_intervals i on i.tenant_id = t.id and i.ended_at is null
join allocations a on a.id = i.allocation_id and a.state = 'active'
where greatest(t.depleted_at, a.active_at) < clock_timestamp() - make_interval(secs => %(overdue)s)
  and t.depleted_at is not null
"""


def check_billing(connection: Connection, bounds: Bounds) -> Verdict:
    """Every active time is metered once, from its beginning to its end, at its price, and costs what the ledger says.

    Balances equal the ledger's sums; a tenant with a depleted balance runs nothing.
    """
    verdict = Verdict("billing", "the ledger is what the allocations cost, to the unit")
    verdict.count(connection, "select count(*) from allocations where active_at is not null")
    verdict.scan(connection, UNMETERED, "allocation {0} was active from {1} on and is not metered")
    verdict.scan(connection, OTHERWISE, "allocation {0} is metered as {1}; its row {2}")
    verdict.scan(connection, ENDS, "allocation {0} is metered until {1}; its row says {2}")
    verdict.scan(connection, COST, "the ledger charges {1} for allocation {0}, which costs {2}")
    verdict.scan(connection, CREDITS, "line {0} credits {1} for allocation {2}, whose metered time costs {3}")
    verdict.scan(connection, OVERLAPPING, "line {0} credits time of allocation {1} that line {2} credits too")
    verdict.scan(connection, SETTLED, "the balance of tenant {0} is {1}, and its ledger adds up to {2}")
    verdict.scan(
        connection, UNLOOKED, "the balance of tenant {0}, with {1} allocations, has no time of the next evaluation"
    )
    verdict.scan(
        connection, LATE, "the balance of tenant {0} was due for evaluation at {1}", overdue=bounds.overdue_seconds
    )
    verdict.scan(connection, POSTPAID, "tenant {0} is refused since {1} for a balance, and is not prepaid")
    verdict.scan(
        connection,
        RUNNING,
        "allocation {0} is active although the balance of tenant {1} is used up since {2}",
        overdue=bounds.overdue_seconds,
    )
    return verdict
