-- Places a list of creates in the caller's transaction and answers what became of each:
--   existing     the key has a stored answer: fingerprint, status, body
--   created      allocation_id, status, body
--   no_room      no unlocked node fits now; the caller looks again before it refuses
--   quota        the tenant's limit would be exceeded: gpus_used, gpus_limit
--   ssh_key      one of the keys is not the tenant's;  tenant: it is suspended;  stale: the catalogue moved on
--   lost         a constraint refused the claim; worth another try
-- It writes the keys (operations) and calls place_together: judge_creates, lock_best_node, settle_creates (nodes), in it
-- write_allocations (claims, allocations, allocation_timeline, outbox, operations) and change_quotas (tenant_quotas).
-- Items that were not created leave nothing behind. They are placed together; when a constraint refuses one of them the
-- list is taken back to its savepoint and each is placed in its own, so that only that one loses. Lock order: all keys
-- (sorted), nodes (never waiting, unless `wait`), quotas last, in tenant order. `p_quota_first` locks the quotas before
-- the nodes: the answer to BQ001.
-- Plans are made once a session, perhaps while a table is still empty: without the settings of these functions they would
-- keep reading whole tables for as long as the session lasts (measured: 800 placements/s and falling).
create or replace function place_allocations(p_items jsonb, p_quota_first boolean) returns jsonb language plpgsql as $$
declare
    item    jsonb;
    answers jsonb := '[]';
    answer  jsonb;
    taken   text;
begin
    insert into operations (scope, key, fingerprint, caller, retire_after)
    select i.tenant_id, i.key, decode(i.fingerprint, 'hex'), i.caller, clock_timestamp() + make_interval(secs => i.retire_seconds)
    from jsonb_to_recordset(p_items) as i(tenant_id uuid, key text, fingerprint text, caller jsonb, retire_seconds float8)
    order by i.tenant_id, i.key
    on conflict do nothing;

    begin
        return place_together(p_items, p_quota_first);
    exception when sqlstate 'BC001' then
        null;                                                -- one of them lost; which one, each finds out alone
    end;
    for item in select i from jsonb_array_elements(p_items) i order by (i ->> 'tenant_id')::uuid, (i ->> 'n')::integer loop
        begin
            answers := answers || place_together(jsonb_build_array(item), p_quota_first);
        exception when sqlstate 'BC001' then
            get stacked diagnostics taken = pg_exception_detail;
            -- The rollback released the node. A transaction that holds it now refreshes the fit by what it changes; to wait
            -- for it, or to overwrite its fit with claims that were read before, would be wrong.
            perform from nodes d where d.id = taken::uuid for no key update skip locked;
            if found then
                perform refresh_node_fit(taken::uuid);
            end if;
            delete from operations
            where scope = (item ->> 'tenant_id')::uuid and key = item ->> 'key' and status is null;
            -- The key's operation may have been retired while its allocation is still there: a creation never runs twice.
            select jsonb_build_object('outcome', 'existing', 'status', 201, 'body', creation_body(a)::text,
                                      'fingerprint', encode(a.operation_fingerprint, 'hex'))
            into answer from allocations a
            where a.tenant_id = (item ->> 'tenant_id')::uuid and a.operation_key = item ->> 'key';
            answers := answers || (coalesce(answer, '{"outcome": "lost"}') || jsonb_build_object('n', item -> 'n'));
        end;
    end loop;
    return answers;
end $$;
