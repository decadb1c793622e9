drop function confirm_held(uuid, uuid, text, text, text);
drop function hold_once(jsonb);
drop function told_before(uuid, text);
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
drop function advance_reservation(uuid, text, bigint, text, text, jsonb, timestamptz, float8, text, text);
drop function first_reservation_body(reservations);
drop function reservation_answer(reservations, text);
drop function reservation_body(reservations, bigint, bigint, text);
drop function rfc3339(timestamptz);
