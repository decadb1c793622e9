-- Insert the claims of a reservation, on nodes and on registered resources, each with its fence; return them as events show them.
-- Runs under the planner settings of `hold_once`: setting them again costs more than the call.
create or replace function write_hold_claims(
    p_id uuid, p_tenant uuid, p_during tstzrange, p_nodes uuid[], p_units int8multirange[], p_seats text[],
    p_seat_units int8multirange[]
) returns jsonb language plpgsql as $$
declare
    written jsonb;
begin
    with put as (
        insert into claims (node_id, resource_id, tenant_id, owner_kind, owner_id, units, during, fence)
        select n.node_id, null, p_tenant, 'reservation', p_id, n.units, p_during, nextval('fences')
        from unnest(p_nodes, p_units) as n(node_id, units)
        union all
        select null, s.resource_id, p_tenant, 'reservation', p_id, s.units, p_during, nextval('fences')
        from unnest(p_seats, p_seat_units) as s(resource_id, units)
        returning id, node_id, resource_id, units, fence
    )
    select jsonb_agg(jsonb_build_object(
        'node_id', p.node_id, 'resource_id', p.resource_id, 'fence', p.fence,
        'units', (select jsonb_agg(jsonb_build_array(lower(part), upper(part)) order by part) from unnest(p.units) part)
    ) order by p.id) into written from put p;
    return written;
end $$;
