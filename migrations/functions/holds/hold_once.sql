-- Hold units, all or nothing; return `outcome`:
--   held          status, body; everything is written, the operation included; GPUs that tenants use more or less: tenants, changes
--   existing      the key was used before: fingerprint, status, body
--   in_progress   the key's first use has just ended without effect
--   busy          conflicts: the caller's own allocations and reservations that overlap
--   not_found, out_of_service   names, and reason;   window: detail;   tenant: it is suspended;   depleted: its balance is
--   quota         gpus_used, gpus_limit
--   no_room       placement found no room (without `wait`: none on an unlocked node)
--   again         rivals changed the state between the first decision and the locks
-- `picks` are nodes and slots of a SKU that were found free in the window, [{node, mask}, ...], one claim each; they come as
-- `slots` too, and are checked like named slots. Without `wait` their nodes' locks are not waited for. `together`: the item
-- of a list, whose quota `hold_together` settles.
-- Every outcome but `held` leaves nothing behind. `judge_hold` decides once before any lock, so that most refusals wait for
-- nothing and write nothing, and once more after the locks, with the clock of that moment. A rival's hold that is past its
-- deadline by then expires in this transaction, with its event.
-- Raises BF001 (the message names the table) when a bound is reached, BQ001 when the quota moved.
create or replace function hold_once(p_item jsonb) returns jsonb language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    item   record;
    before record;                                           -- decided without a lock
    judged record;                                           -- decided under the locks
    answer jsonb;
begin
    select * into item from jsonb_to_record(p_item) as i(
        tenant_id uuid, key text, fingerprint text, retire_seconds float8, correlation_id uuid, request_id text,
        actor_kind text, holder_id text, name text, template jsonb, starts_at timestamptz, ends_at timestamptz,
        ttl_seconds float8, window_seconds_max float8, retention_seconds float8, shard bigint,
        reservations_max bigint, holds_max bigint,
        resources text[], nodes uuid[], slots jsonb, registered text[],
        sku text, gpus integer, region text, quantity integer, pool_id integer, shape text, classes smallint[],
        lows smallint[], highs smallint[], wait boolean, picks jsonb, together boolean);
    item.together := coalesce(item.together, false);
    answer := stored_response(item.tenant_id, item.key);
    if answer is not null then
        return answer;
    end if;
    before := judge_hold(item, null, null, null);
    if before.answer is not null then
        return before.answer;
    end if;

    insert into operations (scope, key, fingerprint, caller, retire_after)
    values (item.tenant_id, item.key, decode(item.fingerprint, 'hex'), p_item -> 'caller',
            clock_timestamp() + make_interval(secs => item.retire_seconds))
    on conflict do nothing;
    if not found then
        return coalesce(stored_response(item.tenant_id, item.key), '{"outcome": "in_progress"}');
    end if;
    if lock_hold(item, before.lock_nodes, before.lock_resources, before.due) then
        judged := judge_hold(item, before.due, before.lock_nodes, before.lock_resources);
        answer := judged.answer;
    else
        answer := '{"outcome": "again"}';
    end if;
    if answer is not null then
        delete from operations where scope = item.tenant_id and key = item.key and status is null;
        return answer;
    end if;
    return write_hold(item, judged.stamp, judged.during, judged.nodes, judged.units, judged.seats, judged.seat_units,
                      judged.gpus, judged.due);
end $$;
