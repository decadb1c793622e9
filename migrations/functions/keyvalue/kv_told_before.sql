-- The stored response of a commit's key, if there is one.
create or replace function kv_told_before(p_scope uuid, p_key text) returns jsonb language plpgsql set enable_seqscan = off as $$
declare
    stored record;
begin
    select o.fingerprint, o.status, o.body, o.subject_id, o.version, o.leader_id into stored
    from operations o where o.scope = p_scope and o.key = p_key;
    if not found then
        return standing_answer(p_scope, p_key);
    end if;
    return jsonb_build_object('outcome', 'existing', 'status', stored.status, 'body', stored.body,
                              'event_id', stored.subject_id, 'version', stored.version, 'leader_id', stored.leader_id,
                              'fingerprint', encode(stored.fingerprint, 'hex'));
end $$;
