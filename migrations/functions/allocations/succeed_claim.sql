-- Give an allocation another end: close its claim and insert the successor, whose `during` begins now. Return `outcome`:
--   succeeded   fence (the successor's)
--   busy        conflicts, waits_for, since: the units are not free until the new end (as `judge_rivals` returns them)
--   tenant, depleted   a suspended tenant, or one whose balance is depleted, gets no more time
--   again       a hold became overdue that is not locked
-- Everything but `succeeded` leaves nothing behind. The caller has locked the claim's allocation and what
-- `lock_overdue_rivals` returned, and judged by the clock `p_judged_at` after that. Overdue holds in the way expire here.
-- The successor inherits occupation and the fence of the allocation's tasks (decision 0021). The row version is the caller's.
create or replace function succeed_claim(
    p_claim bigint, p_ends_at timestamptz, p_judged_at timestamptz, p_due uuid[], p_nodes uuid[], p_resources text[],
    p_units_seconds float8, p_retention_seconds float8
) returns jsonb language plpgsql set enable_seqscan = off as $$
declare
    old      claims;
    made     claims;
    rivals   record;
    tenants_ uuid[] := '{}';
    changes  integer[] := '{}';
begin
    select * into strict old from claims where id = p_claim and owner_kind = 'allocation' and booked;
    if upper(old.during) < coalesce(p_ends_at, 'infinity') then
        if not exists (select from tenants t where t.id = old.tenant_id and t.state = 'active') then
            return '{"outcome": "tenant"}';
        elsif (select t.depleted_at from tenants t where t.id = old.tenant_id) is not null then
            return '{"outcome": "depleted"}';
        end if;
        -- Its own claim is no rival: the time asked for begins where that ends.
        rivals := judge_rivals(old.tenant_id, array[old.node_id], '{}', old.units,
                               tstzrange(upper(old.during), p_ends_at), p_judged_at, p_due, p_nodes, p_resources);
        if rivals.answer is not null then
            return rivals.answer;
        elsif cardinality(rivals.due) > 0 then
            select e.tenants, e.changes into tenants_, changes
            from expire_holds(rivals.due, p_judged_at, p_retention_seconds) e;
        end if;
    end if;

    update claims set booked = false, occupied = false, closed_at = p_judged_at,
                      occupied_until = case when old.occupied then p_judged_at end
    where id = old.id;
    insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, occupied, occupied_from, fence,
                        inherited_fence)
    values (old.node_id, old.tenant_id, 'allocation', old.owner_id, old.units, tstzrange(p_judged_at, p_ends_at),
            old.occupied, case when old.occupied then p_judged_at end, nextval('fences'),
            coalesce(old.inherited_fence, old.fence))
    returning * into made;
    perform bump_row_versions(old.node_id, null);
    update allocations a set claim_id = made.id, ends_at = p_ends_at, ending_told_at = null,
        waits_until = case when a.waits_for = 'units'
            then least(p_ends_at, a.waits_since + make_interval(secs => p_units_seconds)) else a.waits_until end
    where a.id = old.owner_id;
    perform change_quotas(tenants_, changes);
    return jsonb_build_object('outcome', 'succeeded', 'fence', made.fence);
end $$;
