-- Confirms a hold for its holder, under its operation key and its own lock alone, as its claims stay what they are.
-- Answers `outcome`: ok, noop (status, body), with which everything is written, the operation included; existing, in_progress
-- as `hold_once` does; missing, holder, state (with state), and overdue: its deadline has passed by the clock after the
-- lock. These leave nothing behind.
create or replace function confirm_once(
    p_tenant uuid, p_key text, p_fingerprint bytea, p_retire_seconds float8, p_id uuid, p_holder text, p_request_id text, p_together boolean
) returns jsonb language plpgsql set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    found_ reservations;
    stamp  timestamptz;
    done   text := 'ok';
    answer jsonb;
begin
    insert into operations (scope, key, fingerprint, ending, retire_after)
    values (p_tenant, p_key, p_fingerprint, true, clock_timestamp() + make_interval(secs => p_retire_seconds))
    on conflict do nothing;
    if not found then
        return coalesce(stored_response(p_tenant, p_key), '{"outcome": "in_progress"}');
    end if;
    answer := standing_answer(p_tenant, p_key);
    if answer is null and p_together then
        perform from reservations r where r.id = p_id and r.tenant_id = p_tenant for no key update skip locked;
        if not found and exists (select from reservations r where r.id = p_id and r.tenant_id = p_tenant) then
            answer := '{"outcome": "again"}';
        elsif not found then
            answer := '{"outcome": "missing"}';
        end if;
    elsif answer is null then
        perform from reservations r where r.id = p_id and r.tenant_id = p_tenant for no key update;
        if not found then
            answer := '{"outcome": "missing"}';
        end if;
    end if;
    if answer is null then
        stamp := clock_timestamp();
        select * into found_ from reservations r where r.id = p_id;
        if found_.holder_id <> p_holder then
            answer := '{"outcome": "holder"}';
        elsif found_.state = 'confirmed' then
            done := 'noop';
        elsif found_.state <> 'hold' then
            answer := jsonb_build_object('outcome', 'state', 'state', found_.state);
        elsif found_.expires_at <= stamp then
            answer := '{"outcome": "overdue"}';
        else
            perform advance_reservation(p_id, 'hold', found_.row_version, 'confirmed', 'reservation.confirmed',
                                        '{"actor_kind": "tenant"}', stamp, 0, p_key, p_request_id);
            select * into found_ from reservations r where r.id = p_id;
        end if;
    end if;
    if answer is not null then
        delete from operations where scope = p_tenant and key = p_key and status is null;
        return answer;
    end if;
    answer := jsonb_build_object('outcome', done, 'status', 200, 'body', reservation_answer(found_, done)::text);
    update operations set status = 200, code = done, body = answer ->> 'body', subject_id = p_id, event_id = found_.confirmed_event
    where scope = p_tenant and key = p_key;
    return answer;
end $$;
