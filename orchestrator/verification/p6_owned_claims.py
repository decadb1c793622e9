"""P6, the other way round: every open claim belongs to a live owner. Otherwise units are lost or held for nothing.

An open claim belongs to an allocation that is not final, to a failed one that is not cleaned up, to a reservation that is
held or confirmed, or to a maintenance window that is scheduled or active. An orphan holds no claim; its slots are out of
service until it is destroyed, and that is proven. So are those of a drift, and only those that its differences name.
"""

from __future__ import annotations

from orchestrator.verification.verdict import Bounds, Connection, Verdict

OF_NOBODY = """
select c.id, c.owner_kind, c.owner_id, coalesce(a.state, r.state, w.state, 'nothing') from claims c
    left join allocations a on c.owner_kind = 'allocation' and a.id = c.owner_id and a.claim_id = c.id
    left join reservations r on c.owner_kind = 'reservation' and r.id = c.owner_id
    left join maintenance_windows w on c.owner_kind = 'maintenance' and w.id = c.owner_id
where (c.closed_at is null or c.booked or c.occupied) and coalesce(a.state, 'released') = 'released'
  and coalesce(r.state, 'released') not in ('hold', 'confirmed')
  and coalesce(w.state, 'ended') not in ('scheduled', 'active')
"""
HALF_CLOSED = """
select id, closed_at::text, booked, occupied from claims where (closed_at is not null) = (booked or occupied)
"""
RIGHT_WITHOUT_LIFE = """
select c.id, a.id, a.state from claims c join allocations a on a.claim_id = c.id
where c.booked and a.state not in ('requested', 'provisioning', 'active')
"""
ORPHAN_IN_SERVICE = """
select o.id, n.name, slot from node_orphans o join nodes n on n.id = o.node_id cross join lateral unnest(o.slots) slot
    left join slots s on s.node_id = o.node_id and s.slot_index = slot
where o.state <> 'destroyed' and s.state is distinct from 'out_of_service'
"""
OF_NO_ORPHAN = """
select n.name, s.slot_index from slots s join nodes n on n.id = s.node_id
where s.state = 'out_of_service' and s.reason like 'an orphan is on it%%' and not exists (
    select from node_orphans o where o.node_id = s.node_id and o.state <> 'destroyed' and s.slot_index = any (o.slots))
"""
QUARANTINED_IN_SERVICE = """
select q.id, n.name, q.slot_index from slot_quarantines q join nodes n on n.id = q.node_id left join slots s on s.unit = q.unit
where q.returned_at is null and s.state is distinct from 'out_of_service'
"""
OF_NO_QUARANTINE = """
select n.name, s.slot_index from slots s join nodes n on n.id = s.node_id
where s.state = 'out_of_service' and s.reason like 'quarantined: %%' and not exists (
    select from slot_quarantines q where q.unit = s.unit and q.returned_at is null)
"""
REPORTED_IN_SERVICE = """
select f.id, f.allocation_id from fault_reports f join allocations a on a.id = f.allocation_id
join claims c on c.id = a.claim_id where f.closed_at is null and c.closed_at is not null
"""
ON_RETIRED = """
select c.id, n.name from claims c join nodes n on n.id = c.node_id where c.closed_at is null and n.state = 'retired'
"""
ORPHAN_UNPROVEN = """
select id, allocation_id from node_orphans where state = 'destroyed'
  and not coalesce(proof @> '{"released": true, "wiped": true, "leases_released": true}', false)
"""
DRIFT_IN_SERVICE = """
select n.name, slot from node_topologies t join nodes n on n.id = t.node_id cross join lateral unnest(t.drifted_slots) slot
    left join slots s on s.node_id = t.node_id and s.slot_index = slot
where s.state is distinct from 'out_of_service'
"""
OF_NO_DRIFT = """
select n.name, s.slot_index from slots s join nodes n on n.id = s.node_id
where s.state = 'out_of_service' and s.reason like 'its hardware differs%%' and not exists (
    select from node_topologies t where t.node_id = s.node_id and s.slot_index = any (t.drifted_slots))
"""
DRIFT_UNNAMED = """
select n.name from node_topologies t join nodes n on n.id = t.node_id
where t.drifted_slots is distinct from (
    select coalesce(array_agg(distinct slot::smallint order by slot::smallint), '{}')
    from jsonb_array_elements(t.differences) d cross join lateral jsonb_array_elements_text(d -> 'slots') slot)
"""


def check_owned_claims(connection: Connection, _: Bounds) -> Verdict:
    """Every open claim has a live owner, and is closed exactly when nothing of it is left."""
    verdict = Verdict("claims", "an open claim belongs to an owner that may hold it")
    verdict.count(connection, "select count(*) from claims where closed_at is null or booked or occupied")
    verdict.scan(connection, OF_NOBODY, "claim {0} still holds its units for {1} {2}, which is {3}")
    verdict.scan(connection, HALF_CLOSED, "claim {0} is closed at {1}, booked {2}, occupied {3}")
    verdict.scan(connection, RIGHT_WITHOUT_LIFE, "claim {0} keeps the right of allocation {1}, which is {2}")
    verdict.scan(connection, ORPHAN_IN_SERVICE, "orphan {0} is on slot {2} of node {1}, which is in service")
    verdict.scan(connection, OF_NO_ORPHAN, "slot {1} of node {0} is out of service for an orphan that is not there")
    verdict.scan(connection, DRIFT_IN_SERVICE, "slot {1} of node {0} differs from what is approved and is in service")
    verdict.scan(connection, OF_NO_DRIFT, "slot {1} of node {0} is out of service for a drift that is not there")
    verdict.scan(connection, DRIFT_UNNAMED, "the slots that drift of node {0} takes are not those of its differences")
    verdict.scan(connection, QUARANTINED_IN_SERVICE, "slot {2} of node {1} is in service despite quarantine {0}")
    verdict.scan(
        connection, OF_NO_QUARANTINE, "slot {1} of node {0} is out of service for a quarantine that is not open"
    )
    verdict.scan(
        connection, REPORTED_IN_SERVICE, "the units of allocation {1} were released despite the open fault report {0}"
    )
    verdict.scan(connection, ON_RETIRED, "claim {0} is open on node {1}, which is retired")
    verdict.scan(connection, ORPHAN_UNPROVEN, "orphan {0} (allocation {1}) is destroyed, but nothing proves it")
    return verdict
