-- Lock a reservation with the nodes and resources of its open claims, in the order of all commands, and return it by the clock
-- after the locks. `moved`: its claims moved meanwhile, and some of their nodes are not locked. No row: the tenant (null: any)
-- has no such reservation. `offset 0`: a reservation's claims are looked up by their owner. While the planner knows of few open
-- claims it would go through all of them, which a session then does until the table is analysed.
create or replace function lock_reservation(p_id uuid, p_tenant uuid) returns table (
    id uuid, tenant_id uuid, holder_id text, state text, row_version bigint, starts_at timestamptz, ends_at timestamptz,
    expires_at timestamptz, gpus_held integer, sku text, template jsonb, correlation_id uuid, clock timestamptz, moved boolean
) language plpgsql set enable_seqscan = off as $$
#variable_conflict use_column
declare
    nodes_ uuid[];
    seats  text[];
begin
    nodes_ := array(select n.id from nodes n where n.id = any (array(
        select c.node_id from (select node_id, closed_at from claims where owner_id = p_id offset 0) c
        where c.closed_at is null and c.node_id is not null
    )) order by n.id for no key update);
    seats := array(select s.id from resources s where s.id = any (array(
        select c.resource_id from (select resource_id, closed_at from claims where owner_id = p_id offset 0) c
        where c.closed_at is null and c.resource_id is not null
    )) order by s.id for no key update);
    perform from reservations r where r.id = p_id and (p_tenant is null or r.tenant_id = p_tenant) for no key update;
    if not found then
        return;
    end if;
    return query                                             -- a new statement: the clock and the claims after the locks
    select r.id, r.tenant_id, r.holder_id, r.state, r.row_version, r.starts_at, r.ends_at, r.expires_at, r.gpus_held, r.sku,
           r.template, r.correlation_id, clock_timestamp(), exists (
               select from (select node_id, resource_id, closed_at from claims where owner_id = p_id offset 0) c
               where c.closed_at is null and (c.node_id is not null and c.node_id <> all (nodes_)
                    or c.resource_id is not null and c.resource_id <> all (seats)))
    from reservations r where r.id = p_id;
end $$;
