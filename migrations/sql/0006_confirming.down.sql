create or replace function confirm_together(p_items jsonb) returns jsonb language plpgsql as $$
declare
    item    record;
    answers jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
begin
    for item in select i.* from rows from (jsonb_to_recordset(p_items) as (tenant_id uuid, key text, fingerprint text,
                    retention_seconds float8, id uuid, holder_id text, request_id text)) with ordinality
                as i(tenant_id, key, fingerprint, retention_seconds, id, holder_id, request_id, n)
                order by i.tenant_id, i.key collate "C" loop
        answers[item.n] := confirm_once(item.tenant_id, item.key, decode(item.fingerprint, 'hex'), item.retention_seconds,
                                        item.id, item.holder_id, item.request_id, true);
    end loop;
    return to_jsonb(answers);
end $$;

create or replace function advance_reservation(
    p_id uuid, p_from text, p_row_version bigint, p_to text, p_event_type text, p_payload jsonb, p_judged_at timestamptz,
    p_retention_seconds float8, p_operation_key text, p_request_id text
) returns bigint language plpgsql set enable_seqscan = off as $$
declare
    event uuid := uuidv7();
    moved reservations;
begin
    update reservations r set
        state = p_to,
        row_version = r.row_version + 1,
        expires_at = case when p_to = 'expired' then r.expires_at end,
        confirmed_at = case when p_to = 'confirmed' then p_judged_at else r.confirmed_at end,
        ended_at = case when p_to <> 'confirmed' then p_judged_at end,
        ended_event = case when p_to <> 'confirmed' then event end,
        retire_after = case when p_to <> 'confirmed' then p_judged_at + make_interval(secs => p_retention_seconds) end,
        waits_for = case when p_to = 'confirmed' then 'window' end,
        waits_since = case when p_to = 'confirmed' then p_judged_at end,
        waits_until = case when p_to = 'confirmed' then case when r.template is not null then r.starts_at else r.ends_at end end
    where r.id = p_id and r.state = p_from and r.row_version = p_row_version
    returning * into moved;
    if not found then
        return null;
    end if;
    insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    values (event, p_event_type, moved.correlation_id, moved.tenant_id, 'reservations/' || moved.id, p_operation_key,
            p_request_id,
            jsonb_build_object('reservation_id', moved.id, 'holder_id', moved.holder_id, 'judged_at', rfc3339(p_judged_at))
            || p_payload);
    return moved.row_version;
end $$;

drop function confirm_plain(jsonb);
drop function confirms_of(jsonb);
drop function advance_reservations(uuid[], text, bigint[], text, text, jsonb, timestamptz, float8, text[], text[]);
