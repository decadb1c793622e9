"""What must hold of the database at every moment, whatever was done to it. Each query answers the rows that break it."""

from __future__ import annotations

from typing import Any

from tests.allocations.seeding import connect
from tests.event_payloads import unpromised

INVARIANTS = {
    "a tenant's quota is the sum of its live allocations and reservations": """
        select q.tenant_id, q.gpus_used, coalesce(sum(held.gpus), 0)
        from tenant_quotas q left join (
            select tenant_id, gpus from allocations where state not in ('released', 'failed')
            union all select tenant_id, gpus_held from reservations where state in ('hold', 'confirmed')
        ) held on held.tenant_id = q.tenant_id
        group by q.tenant_id, q.gpus_used having q.gpus_used <> coalesce(sum(held.gpus), 0)""",
    "what a live reservation counts is what it still holds": """
        select r.id, r.gpus_held from reservations r
        where r.state in ('hold', 'confirmed') and r.gpus_held <> coalesce((
            select sum(upper(part) - lower(part)) from claims c cross join lateral unnest(c.units) part
            where c.owner_id = r.id and c.closed_at is null and c.node_id is not null), 0)""",
    "an allocation that waits for units has booked them, does not occupy them, and has no start event": """
        select a.id from allocations a join claims c on c.id = a.claim_id
        where (a.waits_for = 'units') <> (not c.occupied and c.booked)
           or (a.waits_for = 'units' and (a.state <> 'requested' or exists (
               select from (select event_type, subject from outbox union all select event_type, subject from log) e
               where e.event_type = 'provisioning.requested' and e.subject = 'allocations/' || a.id)))""",
    "an allocation has one start event": """
        select subject, count(*) from (select event_type, subject from outbox union all select event_type, subject from log) e
        where event_type = 'provisioning.requested' group by subject having count(*) > 1""",
    "a node's mask is what its claims leave": """
        select n.name, n.free_mask, fit.mask from nodes n join lateral (
            select coalesce(sum(1::bigint << s.slot_index), 0)::bigint as mask,
                   count(*) filter (where s.numa_half = 0) * 64 + count(*) filter (where s.numa_half = 1) as class
            from slots s where s.node_id = n.id and s.state = 'in_service' and not exists (
                select from claims c where c.node_id = n.id and (c.booked or c.occupied) and c.units @> s.unit)
        ) fit on true where (n.free_mask, n.fit_class) <> (fit.mask, fit.class)""",
    "no two claims occupy a unit": """
        select a.id, b.id from claims a join claims b on a.id < b.id and a.occupied and b.occupied and a.units && b.units""",
    "only proof or an end before the start frees units": """
        select a.id, a.state, c.closed_at from allocations a join claims c on c.id = a.claim_id
        where (a.state = 'released') <> (c.closed_at is not null) and a.state <> 'failed'""",
    "units are freed on proof or an admin's word alone": """
        select c.id from claims c join allocations a on a.claim_id = c.id
        where c.closed_at is not null and c.occupied_from is not null and not exists (
            select from node_tasks t where t.allocation_id = c.owner_id and t.state = 'completed' and t.fence = c.fence
              and (t.result ->> 'wiped')::boolean and (t.result ->> 'leases_released')::boolean)
          and not exists (select from audit u where u.subject = 'allocations/' || c.owner_id
                          and u.action = 'allocation.force_cleanup')""",
    "at most one task of an allocation is live, under the newest fence": """
        select t.allocation_id from node_tasks t join allocations a on a.id = t.allocation_id
        join claims c on c.id = a.claim_id
        where t.state in ('queued', 'dispatched') group by t.allocation_id
        having count(*) > 1 or bool_or(t.fence <> coalesce(c.inherited_fence, c.fence))""",
    "an allocation's former claims are closed, and each ends where the next begins": """
        select c.id, c.owner_id from claims c join allocations a on a.id = c.owner_id and a.claim_id <> c.id
        where c.closed_at is null or not exists (
            select from claims s where s.owner_id = c.owner_id and s.units = c.units and s.fence > c.fence
              and lower(s.during) = c.closed_at and (c.occupied_until is null or s.occupied_from = c.occupied_until))""",
    "the timeline's transitions are those of DESIGN §4, each from where the last led": """
        with steps as (
            select allocation_id, from_state, to_state, row_version,
                   lag(to_state) over story as came_from, lag(row_version) over story as before
            from allocation_timeline where kind = 'transition' window story as (partition by allocation_id order by id)
        )
        select * from steps where from_state is distinct from came_from or row_version <= before
           or (coalesce(from_state, ''), to_state) not in (
            ('', 'requested'), ('requested', 'provisioning'), ('requested', 'failed'), ('requested', 'releasing'),
            ('provisioning', 'active'), ('provisioning', 'failed'), ('provisioning', 'releasing'),
            ('active', 'releasing'), ('releasing', 'released'), ('releasing', 'release_failed'),
            ('release_failed', 'releasing'))""",
    "the timeline ends in the state of the allocation": """
        select a.id from allocations a where a.state <> (
            select to_state from allocation_timeline l where l.allocation_id = a.id and l.kind = 'transition'
            order by id desc limit 1)""",
    "fences in a story never go back": """
        select * from (
            select allocation_id, fence, lag(fence) over (partition by allocation_id order by id) as before
            from allocation_timeline where actor_kind <> 'node' and fence is not null
        ) f where fence < before""",
    "every transition with an event type has its event": """
        select l.allocation_id, l.to_state from allocation_timeline l
        join (values ('requested', 'provisioning.requested'), ('active', 'provisioning.active'),
                     ('failed', 'provisioning.failed'), ('released', 'provisioning.releasing.completed'),
                     ('release_failed', 'provisioning.release_failed')) expected(state, type) on expected.state = l.to_state
        where l.kind = 'transition' and not exists (
            select from (select event_type, occurred_at, payload from outbox
                         union all select event_type, occurred_at, payload from log) e
            where (e.event_type = expected.type or (expected.state = 'requested' and e.event_type = 'provisioning.waiting'))
              and e.occurred_at = l.at
              and e.payload ->> 'allocation_id' = l.allocation_id::text)""",
    "an active allocation has a guest, and waits for a worker or its node exactly while a verb is in progress": """
        select a.id, a.state, a.guest_state, a.guest_verb, a.waits_for, a.waits_until from allocations a
        where (a.state = 'active') <> (a.guest_state is not null) or (a.guest_verb is not null and a.state <> 'active')
           or (a.state = 'active' and (a.guest_verb is null) <> (a.waits_for = 'tenant'))
           or (a.guest_verb is not null and (a.waits_until is null or a.waits_for not in ('worker', 'node')))""",
    "what waits says until when, or waits for a person": """
        select a.id, a.state, a.waits_for, c.waits_for from allocations a join claims c on c.id = a.claim_id
        where (a.waits_until is null and a.state in ('requested', 'provisioning', 'releasing'))
           or (a.state = 'failed' and c.closed_at is null
               and (c.waits_for is null or (c.waits_until is null and c.waits_for <> 'operator')))
           or (c.closed_at is not null and c.waits_for is not null)""",
}


def violations(url: str) -> list[tuple[str, list[Any]]]:
    """Every broken invariant with the rows that break it."""
    with connect(url) as connection:
        found = [(name, connection.execute(query.encode()).fetchall()) for name, query in INVARIANTS.items()]
    found.append(("events say what they promise", unpromised(url)))
    return [(name, rows) for name, rows in found if rows]
