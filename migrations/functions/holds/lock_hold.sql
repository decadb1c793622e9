-- Lock what a hold needs, in the order of all commands: nodes, resources, overdue reservations, each by id. Return false if
-- an item that must not wait would have to: the item of a list for any of these, one with `picks` but without `wait` for a node.
-- Runs under the planner settings of `hold_once`: setting them again costs more than the call.
create or replace function lock_hold(p_item record, p_nodes uuid[], p_resources text[], p_overdue uuid[]) returns boolean
language plpgsql as $$
declare
    passing constant boolean := p_item.together or p_item.picks is not null and not coalesce(p_item.wait, true);
begin
    if passing and (
        select count(*) from (select from nodes n where n.id = any (p_nodes)
                              order by n.id for no key update skip locked) locked
    ) < (select count(distinct id) from unnest(p_nodes) wanted(id)) then
        return false;
    elsif not passing then
        perform from nodes n where n.id = any (p_nodes) order by n.id for no key update;
    end if;
    if p_item.together and (
        (select count(*) from (select from resources r where r.id = any (p_resources)
                               order by r.id for no key update skip locked) locked)
        + case when cardinality(p_overdue) > 0 then lock_overdue_holds(p_overdue, false) else 0 end
    ) < (select count(distinct id) from unnest(p_resources) wanted(id)) + cardinality(p_overdue) then
        return false;
    elsif not p_item.together then
        if cardinality(p_resources) > 0 then
            perform from resources r where r.id = any (p_resources) order by r.id for no key update;
        end if;
        if cardinality(p_overdue) > 0 then
            perform lock_overdue_holds(p_overdue, true);
        end if;
    end if;
    return true;
end $$;
