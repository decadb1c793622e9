-- Lock, before its allocation is locked, what a later end of it needs: overdue holds in the way (`due`), and the nodes and
-- resources of their claims (`nodes`, `resources`), its own node among them. In the order of all commands: nodes, resources,
-- reservations, each by id. Without such a hold nothing is locked. `p_until` null: without an end; `p_tenant` null: any.
create or replace function lock_overdue_rivals(
    p_allocation uuid, p_tenant uuid, p_until timestamptz, out due uuid[], out nodes uuid[], out resources text[]
) language plpgsql set enable_seqscan = off as $$
declare
    own record;
begin
    due := '{}';
    nodes := '{}';
    resources := '{}';
    select c.node_id, c.units, upper(c.during) as ends_at into own
    from allocations a join claims c on c.id = a.claim_id
    where a.id = p_allocation and (p_tenant is null or a.tenant_id = p_tenant)
      and c.booked and upper(c.during) < coalesce(p_until, 'infinity');
    if not found then
        return;
    end if;
    -- One statement, so that a hold that a sweeper closes meanwhile is found with all of its nodes and resources, or not at all.
    select coalesce(array_agg(distinct r.owner_id), '{}'),
           coalesce(array_agg(distinct c.node_id) filter (where c.node_id is not null), '{}'),
           coalesce(array_agg(distinct c.resource_id) filter (where c.resource_id is not null), '{}')
    into due, nodes, resources
    from rivals_for(array[own.node_id], '{}', own.units, tstzrange(own.ends_at, p_until), clock_timestamp()) r
    cross join lateral (
        -- By owner, for each: a plan that begins with all open claims reads the dead index entries of closed ones.
        select o.node_id, o.resource_id from claims o where o.owner_id = r.owner_id and o.closed_at is null offset 0
    ) c
    where r.overdue;
    perform from nodes n where n.id = any (lock_overdue_rivals.nodes) order by n.id for no key update;
    perform from resources r where r.id = any (lock_overdue_rivals.resources) order by r.id for no key update;
    if cardinality(due) > 0 then
        perform lock_overdue_holds(due, true);
    end if;
end $$;
