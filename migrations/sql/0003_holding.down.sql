drop function confirm_together(jsonb);
drop function confirm_once(uuid, text, bytea, float8, uuid, text, text, boolean);
drop function hold_together(jsonb);
drop function hold_once(jsonb);
drop function change_quotas(uuid[], integer[]);
drop function told_before(uuid, text);
drop function standing_answer(uuid, text);
create or replace function standing_creation(p_scope uuid, p_key text)
returns table (fingerprint bytea, status smallint, body text, subject_id uuid) language sql stable as $$
    select a.operation_fingerprint, 201::smallint, creation_body(a)::text, a.id
    from allocations a where a.tenant_id = p_scope and a.operation_key = p_key
$$;
drop function choose_by_mask(integer, text, integer, integer, smallint[], smallint[], smallint[], boolean);
drop function rivals_for(uuid[], text[], int8multirange, tstzrange, timestamptz);
drop function named_units(uuid[], jsonb, text[]);
drop function close_reservation_claims(uuid);
drop trigger claim_blocked on claims;
drop function outgrow_blocked_claim();
drop function outgrow_claim(uuid, text);
create or replace function refresh_node_fit(p_node_id uuid) returns void language sql as $$
    with taken as (
        select range_agg(part) as units
        from claims c cross join lateral unnest(c.units) part
        where c.node_id = p_node_id and c.closed_at is null and (c.booked or c.occupied)
    ), fit as (
        select coalesce(sum(1::bigint << s.slot_index), 0)::bigint as mask,
               count(*) filter (where s.numa_half = 0) as low,
               count(*) filter (where s.numa_half = 1) as high
        from slots s left join taken t on true
        where s.node_id = p_node_id and s.state = 'in_service' and not coalesce(t.units @> s.unit, false)
    )
    update nodes set free_mask = fit.mask, fit_class = fit.low * 64 + fit.high, row_version = row_version + 1
    from fit where nodes.id = p_node_id
$$;
drop function advance_reservation(uuid, text, bigint, text, text, jsonb, timestamptz, float8, text, text);
drop function first_reservation_body(reservations);
drop function reservation_answer(reservations, text);
drop function reservation_body(reservations, bigint, bigint, text);
drop function rfc3339(timestamptz);
