-- The only function that changes a reservation's state, for many at once: each from its own `row_version`, with its event. Those that are
-- no longer in `p_from` at that version are left as they are, and not returned.
create or replace function advance_reservations(
    p_ids uuid[], p_from text, p_row_versions bigint[], p_to text, p_event_type text, p_payload jsonb, p_judged_at timestamptz,
    p_retention_seconds float8, p_operation_keys text[], p_request_ids text[]
) returns setof reservations language sql set enable_seqscan = off as $$
with asked as materialized (
    select a.*, uuidv7() as event
    from unnest(p_ids, p_row_versions, p_operation_keys, p_request_ids) as a(id, row_version, operation_key, request_id)
), moved as (
    update reservations r set
        state = p_to,
        row_version = r.row_version + 1,
        expires_at = case when p_to = 'expired' then r.expires_at end,
        confirmed_at = case when p_to = 'confirmed' then p_judged_at else r.confirmed_at end,
        confirmed_event = case when p_to = 'confirmed' then a.event else r.confirmed_event end,
        ended_at = case when p_to <> 'confirmed' then p_judged_at end,
        ended_event = case when p_to <> 'confirmed' then a.event end,
        template = case when p_to = 'confirmed' then r.template else r.template - 'user_data' end,
        retire_after = case when p_to <> 'confirmed' then p_judged_at + make_interval(secs => p_retention_seconds) end,
        waits_for = case when p_to = 'confirmed' then 'window' end,
        waits_since = case when p_to = 'confirmed' then p_judged_at end,
        waits_until = case when p_to = 'confirmed' then case when r.template is not null then r.starts_at else r.ends_at end end
    from asked a
    where r.id = a.id and r.state = p_from and r.row_version = a.row_version
    returning r as reservation, a.event, a.operation_key, a.request_id
), event as (
    insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
    select m.event, p_event_type, (m.reservation).correlation_id, (m.reservation).tenant_id,
           'reservations/' || (m.reservation).id, m.operation_key, m.request_id,
           jsonb_build_object('reservation_id', (m.reservation).id, 'holder_id', (m.reservation).holder_id,
                              'judged_at', rfc3339(p_judged_at)) || p_payload
    from moved m
)
select (m.reservation).* from moved m
$$;
