-- The parameters of `confirm_reservations` as rows, with their places in the list.
create or replace function confirm_items(p_items jsonb) returns table (
    scope uuid, key text, fingerprint text, retire_seconds float8, tenant_id uuid, id uuid, holder_id text, request_id text, n bigint
) language sql immutable as $$
select i.* from rows from (jsonb_to_recordset(p_items) as (scope uuid, key text, fingerprint text, retire_seconds float8,
                           tenant_id uuid, id uuid, holder_id text, request_id text)) with ordinality
    as i(scope, key, fingerprint, retire_seconds, tenant_id, id, holder_id, request_id, n)
$$;
