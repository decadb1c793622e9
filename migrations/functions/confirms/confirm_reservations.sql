-- Confirm a list of reservations, each under its operation key and the lock of its reservation; claims do not change, so no
-- node is locked. Return one outcome for each, in input order:
--   ok, noop      status, body; everything is written, the operation included
--   existing      the key was used before: fingerprint, status, body
--   in_progress   the key's first use has just ended without effect
--   missing, holder, state (with state)
--   overdue       its deadline has passed, by the clock after the locks; `refuse_late_confirm` is next
--   again         in a list: another transaction holds its reservation; an item alone waits for it
-- All but `ok` and `noop` leave nothing behind. `p_actor_kind`, `p_actor_id`: the actor of the whole list; the id is an
-- operator's, and null for holders.
-- This function reserves and locks, `judge_confirms` decides, `write_confirms` writes.
-- Lock order: keys in their order, waited for briefly by a list, then reservations.
create or replace function confirm_reservations(p_items jsonb, p_actor_kind text, p_actor_id text) returns jsonb language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    alone    constant boolean := jsonb_array_length(p_items) = 1;
    reserved bigint[];
    standing jsonb;
    locked   uuid[];
    stamp    timestamptz;
begin
    if not alone then
        perform shorten_lock_timeout();
    end if;
    with added as (
        insert into operations (scope, key, fingerprint, ending, caller, retire_after)
        select i.scope, i.key, decode(i.fingerprint, 'hex'), true, p_items -> (i.n - 1)::integer -> 'caller',
               clock_timestamp() + make_interval(secs => i.retire_seconds)
        from confirm_items(p_items) i order by i.scope, i.key collate "C"
        on conflict do nothing
        returning scope, key, standing_answer(scope, key) as answer
    )
    select coalesce(array_agg(i.n) filter (where a.answer is null), '{}'),
           coalesce(jsonb_object_agg(i.n, a.answer) filter (where a.answer is not null), '{}')
    into reserved, standing
    from confirm_items(p_items) i join added a on a.scope = i.scope and a.key = i.key;
    if alone then
        locked := array(select r.id from confirm_items(p_items) i join reservations r on r.id = i.id and r.tenant_id = i.tenant_id
                        where i.n = any (reserved) for no key update of r);
    else
        locked := array(select r.id from confirm_items(p_items) i join reservations r on r.id = i.id and r.tenant_id = i.tenant_id
                        where i.n = any (reserved) for no key update of r skip locked);
    end if;
    stamp := clock_timestamp();                              -- a new statement: after the locks
    return write_confirms(p_items, reserved, standing, locked, stamp, p_actor_kind, p_actor_id);
end $$;
