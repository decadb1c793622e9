-- Decide whether rivals leave the wanted units free: `answer` is `busy` with the tenant's own owners in `conflicts` and
-- what `cleanup_awaited` returns, or
-- `again`, or null. `due`: overdue holds that must end first. `lock_nodes`, `lock_resources`: what is to be locked, the
-- claims of those holds included. `p_overdue`, if not null: this is locked; a due hold outside of it is `again`.
-- Runs under the planner settings of `hold_once`: setting them again costs more than the call.
create or replace function judge_rivals(
    p_tenant uuid, p_nodes uuid[], p_seats text[], p_wanted int8multirange, p_during tstzrange, p_now timestamptz,
    p_overdue uuid[], p_locked_nodes uuid[], p_locked_resources text[],
    out answer jsonb, out due uuid[], out lock_nodes uuid[], out lock_resources text[]
) language plpgsql as $$
declare
    rivals record;
begin
    select coalesce(bool_or(not r.overdue), false) as busy,
           coalesce(array_agg(r.owner_id order by r.owner_id) filter (where r.overdue), '{}') as due,
           coalesce(jsonb_agg(r.owner_kind || 's/' || r.owner_id order by r.owner_id)
                    filter (where not r.overdue and r.tenant_id = p_tenant), '[]') as conflicts
    into rivals from rivals_for(p_nodes, p_seats, p_wanted, p_during, p_now) r;
    due := rivals.due;
    if rivals.busy then
        answer := jsonb_build_object('outcome', 'busy', 'conflicts', rivals.conflicts)
                  || coalesce(cleanup_awaited(p_nodes, p_seats, p_wanted, p_during, p_now), '{}');
    elsif p_overdue is null then
        lock_nodes := p_nodes;
        lock_resources := p_seats;
        if cardinality(due) > 0 then
            select lock_nodes || coalesce(array_agg(c.node_id) filter (where c.node_id is not null), '{}'),
                   lock_resources || coalesce(array_agg(c.resource_id) filter (where c.resource_id is not null), '{}')
            into lock_nodes, lock_resources
            from claims c where c.owner_id = any (due) and c.closed_at is null;
        end if;
    elsif cardinality(due) > 0 and (not due <@ p_overdue or exists (
        select from claims c where c.owner_id = any (due) and c.closed_at is null
        and (c.node_id is null or c.node_id <> all (p_locked_nodes))
        and (c.resource_id is null or c.resource_id <> all (p_locked_resources))
    )) then
        answer := '{"outcome": "again"}';
    end if;
end $$;
