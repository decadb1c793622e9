"""How many rows there are of what is bounded: kept in `live_rows` and `tenant_rows`, held here against counting them (P13)."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

MISCOUNTED = """
with counted (kind, number) as (
    select 'operations', count(*) from operations
    union all select 'resources', count(*) from resources
    union all select 'reservations', count(*) from reservations where state in ('hold', 'confirmed')
    union all select 'holds', count(*) from reservations where state = 'hold'
), kept as (
    select kind, sum(number) as number from live_rows group by kind
)
select coalesce(c.kind, k.kind), coalesce(k.number, 0), coalesce(c.number, 0)
from counted c full join kept k on k.kind = c.kind
where coalesce(k.number, 0) <> coalesce(c.number, 0)
"""
MISCOUNTED_OF_TENANTS = """
with counted as (
    select scope as tenant_id, 'operations' as kind, count(*) as number from operations group by scope
    union all select tenant_id, 'reservations', count(*) from reservations where state in ('hold', 'confirmed') group by tenant_id
    union all select tenant_id, 'holds', count(*) from reservations where state = 'hold' group by tenant_id
), kept as (
    select tenant_id, kind, sum(number) as number from tenant_rows group by tenant_id, kind
)
select tenant_id, kind, coalesce(k.number, 0), coalesce(c.number, 0)
from counted c full join kept k using (tenant_id, kind)
where coalesce(k.number, 0) <> coalesce(c.number, 0) and tenant_id in (select q.tenant_id from tenant_quotas q)
"""


def check_counts(connection: Connection, _: Bounds) -> Verdict:
    """The bounds on operations, resources, reservations and holds are judged by numbers that are right."""
    verdict = Verdict("counts", "what is bounded is counted right")
    verdict.count(connection, "select count(*) from live_rows")
    verdict.scan(connection, MISCOUNTED, "{0} are counted as {1} and are {2}")
    verdict.scan(connection, MISCOUNTED_OF_TENANTS, "{1} of tenant {0} are counted as {2} and are {3}")
    return verdict
