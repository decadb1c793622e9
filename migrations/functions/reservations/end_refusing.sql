-- End a reservation whose time is over, for a request that came too late, and store the refusal under the request's operation key.
-- Return `refused` with status and body. `p_subject`: the reservation as `lock_reservation` returned it; the caller holds its
-- locks. `p_item`: scope, key, request_id, actor_kind, retention_seconds, and caller_tenant, which an operator has not.
create or replace function end_refusing(p_subject jsonb, p_to text, p_refusal jsonb, p_item jsonb) returns jsonb
language plpgsql set enable_seqscan = off as $$
declare
    item    record;
    subject record;
begin
    select * into item from jsonb_to_record(p_item) as i(
        scope uuid, key text, request_id text, actor_kind text, retention_seconds float8, caller_tenant uuid);
    select * into subject from jsonb_to_record(p_subject) as s(
        id uuid, state text, row_version bigint, expires_at timestamptz, clock timestamptz);
    if p_to <> subject.state then
        perform end_reservation(
            subject.id, subject.state, subject.row_version, p_to, 'reservation.' || p_to,
            jsonb_build_object('actor_kind', item.actor_kind)
                || case when p_to = 'expired' then jsonb_build_object('deadline', rfc3339(subject.expires_at)) else '{}' end,
            subject.clock, item.retention_seconds, item.key, item.request_id);
    end if;
    return jsonb_build_object(
        'outcome', 'refused', 'status', p_refusal -> 'status',
        'body', conclude_refused(item.scope, item.key, item.caller_tenant, p_refusal, subject.id, item.request_id));
end $$;
