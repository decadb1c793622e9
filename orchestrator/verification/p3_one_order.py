"""P3: every committed event has one place in one gapless order that respects cause and effect."""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

GAPS = """
with ordered as (select version, event_type, payload, lag(version) over (order by version) as before from log)
select before, version from ordered where before is not null and version <> before + 1
  and not (event_type = 'log.versions_skipped' and (payload ->> 'first')::bigint = before + 1
           and (payload ->> 'last')::bigint = version)
"""
HEAD = """
select h.version, newest.version from log_head h, (select coalesce(max(version), 0) as version from log) newest
where newest.version <> h.version
"""
BEGINNING = """
select f.version, coalesce((select version from log order by version limit 1), h.version + 1) from log_first f, log_head h
where f.version <> coalesce((select version from log order by version limit 1), h.version + 1)
  and not exists (select from (select * from log order by version limit 1) l
                  where l.event_type = 'log.versions_skipped' and f.version between (l.payload ->> 'first')::bigint and l.version)
"""
TAKEN_AWAY = """
select c.kind, c.name, c.needs_from, f.version from log_cursors c, log_first f where c.needs_from < f.version
"""
CHAIN = """
with chained as (
    select version, prev_version, tenant_id, lag(version) over (partition by tenant_id order by version) as before,
           case event_type when 'log.versions_skipped' then (payload ->> 'first')::bigint - 1 else 0 end as without_tenant
    from log
), kept as (
    select version as oldest from log order by version limit 1
)
select version, prev_version, coalesce(before, 0) from chained, kept
where case when tenant_id is null then prev_version <> without_tenant
           when before is not null then prev_version <> before
           -- The first one kept of a tenant may follow one that retention has taken away.
           else prev_version <> 0 and (prev_version >= oldest or oldest = 1) end
"""
TENANT_HEADS = """
with newest as (select tenant_id, max(version) as version from log where tenant_id is not null group by tenant_id)
select coalesce(n.tenant_id, t.tenant_id), t.version, n.version
from newest n full join log_tenants t on t.tenant_id = n.tenant_id
where n.version is distinct from t.version and (n.version is not null or t.version >= (select min(version) from log))
"""
TWICE = """
with ordered as (select event_id, lag(event_id) over (order by event_id) as before from log)
select event_id, count(*) + 1 from ordered where event_id = before group by event_id
"""
# An event that follows one of its subject with a higher outbox id also follows it in the whole log, where no sort is needed.
CAUSE = """
with emitted as (
    select version, subject, outbox_id, max(outbox_id) over (order by version
               rows between unbounded preceding and 1 preceding) as before
    from log
), overtaken as materialized (
    select version, subject, outbox_id from emitted where outbox_id <= before
)
select o.version, o.subject from overtaken o where exists (
    select from log l where l.subject = o.subject and l.version < o.version and l.outbox_id >= o.outbox_id)
"""
AHEAD = """
select p.consumer, p.version, h.version from consumer_positions p, log_head h where p.version > h.version
"""
WAITING = """
select count(*), extract(epoch from clock_timestamp() - min(occurred_at))::integer from outbox
where occurred_at < clock_timestamp() - make_interval(secs => %(seconds)s) having count(*) > 0
"""


def check_one_order(connection: Connection, bounds: Bounds) -> Verdict:
    """The log is gapless from its recorded beginning to its head, but for what `log.versions_skipped` names, and keeps everything
    that a reader still needs.

    Its chain per tenant is right, no event is there twice or waits too long.
    """
    verdict = Verdict("P3", "every event has one place in one gapless order")
    verdict.count(connection, "select count(*) from log")
    verdict.scan(connection, GAPS, "the log jumps from version {0} to {1}")
    verdict.scan(connection, HEAD, "the log's head says {0}, its newest version is {1}")
    verdict.scan(connection, BEGINNING, "the log is said to begin at version {0}, its oldest is {1}")
    verdict.scan(connection, TAKEN_AWAY, "{0} {1} needs the log from version {2} on, and it begins at {3}")
    verdict.scan(connection, CHAIN, "version {0} names {1} as its tenant's previous version, which is {2}")
    verdict.scan(connection, TENANT_HEADS, "tenant {0}'s newest version is noted as {1} and is {2}")
    verdict.scan(connection, TWICE, "event {0} is in the log {1} times")
    verdict.scan(connection, CAUSE, "version {0} of {1} was written before the one it follows")
    verdict.scan(connection, AHEAD, "consumer {0} says it is done up to version {1}; the log ends at {2}")
    verdict.scan(
        connection, WAITING, "{0} events wait for their version, the oldest for {1} s; is the relay running?",
        seconds=bounds.outbox_seconds,
    )  # fmt: skip
    return verdict
