-- Reserve an operation key for this transaction. Return null, or the outcome of its first use: `existing` (fingerprint, status,
-- body) or `in_progress` (it has just ended without effect); then the key is not reserved. `p_ending`: it ends something.
create or replace function reserve_key(p_scope uuid, p_key text, p_fingerprint bytea, p_ending boolean, p_retire_seconds float8)
returns jsonb language plpgsql set enable_seqscan = off as $$
declare
    answer jsonb;
begin
    insert into operations (scope, key, fingerprint, ending, retire_after)
    values (p_scope, p_key, p_fingerprint, p_ending, clock_timestamp() + make_interval(secs => p_retire_seconds))
    on conflict do nothing;
    if not found then
        return coalesce(stored_response(p_scope, p_key), '{"outcome": "in_progress"}');
    end if;
    answer := standing_answer(p_scope, p_key);
    if answer is not null then
        delete from operations where scope = p_scope and key = p_key and status is null;
    end if;
    return answer;
end $$;
