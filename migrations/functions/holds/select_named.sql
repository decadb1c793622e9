-- Select the units that a hold names, by node and by registered resource; `answer` is the refusal of a name that does not
-- exist or is out of service (`p_now`: the window begins now, when a node must be online, too).
-- Runs under the planner settings of `hold_once`: setting them again costs more than the call.
create or replace function select_named(
    p_nodes uuid[], p_slots jsonb, p_registered text[], p_now boolean, out answer jsonb, out nodes uuid[],
    out units int8multirange[], out seats text[], out seat_units int8multirange[],
    out wanted int8multirange, out gpus integer
) language plpgsql as $$
declare
    found_ record;
begin
    with named as materialized (
        select * from named_units(p_nodes, p_slots, p_registered)
    ), held as (
        select n.node_id, n.resource_id, range_agg(n.part) as units from named n group by 1, 2
    )
    select array_agg(n.name) filter (where n.node_id is null and n.resource_id is null) as missing,
           min(n.stopped) as stopped, min(n.stopped_now) as stopped_now,
           array_agg(n.name) filter (where n.stopped is not null) as stopped_names,
           array_agg(n.name) filter (where n.stopped_now is not null) as stopped_now_names,
           range_agg(n.part) as wanted,
           (select array_agg(h.node_id order by h.node_id) from held h where h.node_id is not null) as nodes,
           (select array_agg(h.units order by h.node_id) from held h where h.node_id is not null) as units,
           (select array_agg(h.resource_id order by h.resource_id) from held h where h.resource_id is not null) as seats,
           (select array_agg(h.units order by h.resource_id) from held h where h.resource_id is not null) as seat_units,
           (select sum(upper(part) - lower(part)) from held h, unnest(h.units) part where h.node_id is not null) as gpus
    into found_ from named n;
    if found_.missing is not null then
        answer := jsonb_build_object('outcome', 'not_found', 'names', found_.missing);
    elsif found_.stopped is not null then
        answer := jsonb_build_object('outcome', 'out_of_service', 'names', found_.stopped_names, 'reason', found_.stopped);
    elsif found_.stopped_now is not null and p_now then
        answer := jsonb_build_object('outcome', 'out_of_service', 'names', found_.stopped_now_names,
                                     'reason', found_.stopped_now);
    end if;
    nodes := coalesce(found_.nodes, '{}');
    units := coalesce(found_.units, '{}');
    seats := coalesce(found_.seats, '{}');
    seat_units := coalesce(found_.seat_units, '{}');
    wanted := found_.wanted;
    gpus := coalesce(found_.gpus, 0);
end $$;
