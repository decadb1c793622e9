-- What the calls take for a list, with its places in it.
create or replace function confirms_of(p_items jsonb) returns table (
    tenant_id uuid, key text, fingerprint text, retention_seconds float8, id uuid, holder_id text, request_id text, n bigint
) language sql immutable as $$
select i.* from rows from (jsonb_to_recordset(p_items) as (tenant_id uuid, key text, fingerprint text,
                           retention_seconds float8, id uuid, holder_id text, request_id text)) with ordinality
    as i(tenant_id, key, fingerprint, retention_seconds, id, holder_id, request_id, n)
$$;
