-- The creation under a key that still exists, however long its operation has been retired: it never runs twice. The body is
-- that of its first response.
create or replace function standing_creation(p_scope uuid, p_key text)
returns table (fingerprint bytea, status smallint, body text, subject_id uuid) language sql stable as $$
    select a.operation_fingerprint, 201::smallint, creation_body(a)::text, a.id
    from allocations a where a.tenant_id = p_scope and a.operation_key = p_key
    union all
    select r.operation_fingerprint, 201::smallint, first_reservation_body(as_held(r))::text, r.id
    from reservations r where r.tenant_id = p_scope and r.operation_key = p_key
$$;
