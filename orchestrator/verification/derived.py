"""What is stored although it could be derived: a node's materialised fit, a tenant's use. It must equal its source."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

FIT = """
with taken as (
    select distinct unit from claims c cross join lateral unnest(c.units) part
         cross join lateral generate_series(lower(part), upper(part) - 1) unit
    where c.closed_at is null and (c.booked or c.occupied)
), fit as (
    select s.node_id,
           coalesce(sum(1::bigint << s.slot_index) filter (where free), 0)::bigint as mask,
           count(*) filter (where free and s.numa_half = 0) * 64
           + count(*) filter (where free and s.numa_half = 1) as class
    from slots s left join taken t on t.unit = s.unit
         cross join lateral (select s.state = 'in_service' and t.unit is null as free) f
    group by s.node_id
)
select n.name, n.free_mask, n.fit_class, f.mask, f.class from nodes n left join fit f on f.node_id = n.id
where n.free_mask is distinct from f.mask or n.fit_class is distinct from f.class
"""
USE = """
with held as (
    select tenant_id, sum(gpus) as gpus from (
        select tenant_id, gpus from allocations where state not in ('released', 'failed')
        union all
        select c.tenant_id, (select sum(upper(part) - lower(part)) from unnest(c.units) part)
        from claims c where c.owner_kind = 'reservation' and c.closed_at is null and c.node_id is not null
    ) each group by tenant_id
)
select coalesce(q.tenant_id, h.tenant_id), q.gpus_used, coalesce(h.gpus, 0)
from tenant_quotas q full join held h on h.tenant_id = q.tenant_id
where coalesce(q.gpus_used, -1) <> coalesce(h.gpus, 0)
"""


def check_fit(connection: Connection, _: Bounds) -> Verdict:
    """Every node's free mask and class are what its slots and open claims say."""
    verdict = Verdict("fit", "every node's free slots are what its claims say")
    verdict.count(connection, "select count(*) from nodes")
    verdict.scan(connection, FIT, "node {0} says mask {1}, class {2}; its claims say mask {3}, class {4}")
    return verdict


def check_quotas(connection: Connection, _: Bounds) -> Verdict:
    """Every tenant's use is the sum of its allocations that are not final and of what its reservations hold."""
    verdict = Verdict("quota", "every tenant's use is the sum of its allocations and reservations")
    verdict.count(connection, "select count(*) from tenant_quotas")
    verdict.scan(connection, USE, "tenant {0} is charged {1} GPUs and holds {2}")
    return verdict
