-- Starts allocations that wait for units of this node and find them free, the earliest window first; returns their number.
-- The caller has locked the node, so no allocation begins to occupy any of its units meanwhile. Each gets a newer fence
-- than every former occupant of its units, or the node would refuse its task. One past its deadline is left to the
-- sweeper. Units of slots that are out of service are not free: one whose units stay so ends at its deadline.
create or replace function start_waiting(p_node uuid, p_start_seconds float8) returns integer language plpgsql
set enable_seqscan = off as $$
declare
    waiting record;
    fence_  bigint;
    stamp   timestamptz;
    started integer := 0;
begin
    for waiting in
        select a.*, c.units from allocations a join claims c on c.id = a.claim_id
        where a.node_id = p_node and a.waits_for = 'units' and a.state = 'requested' and c.booked
        order by lower(c.during), c.id for no key update of a, c
    loop
        stamp := clock_timestamp();
        continue when waiting.ends_at <= stamp;
        continue when exists (
            select from claims o
            where o.node_id = p_node and o.closed_at is null and o.occupied and o.units && waiting.units)
            or exists (select from slots s where s.node_id = p_node and s.state = 'out_of_service' and waiting.units @> s.unit);
        update claims set occupied = true, occupied_from = stamp, fence = nextval('fences')
        where id = waiting.claim_id returning fence into fence_;
        update allocations set row_version = row_version + 1, waits_for = 'worker', waits_since = stamp,
                               waits_until = stamp + make_interval(secs => p_start_seconds)
        where id = waiting.id;
        insert into allocation_timeline (allocation_id, at, kind, code, detail, actor_kind, actor_id, fence)
        values (waiting.id, stamp, 'note', 'units_free', 'nothing is left on its units; it starts', 'system', 'units', fence_);
        insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
        values ('provisioning.requested', stamp, waiting.correlation_id, waiting.tenant_id, 'allocations/' || waiting.id,
            requested_payload(waiting.id, fence_, false));
        started := started + 1;
    end loop;
    return started;
end $$;
