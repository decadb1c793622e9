-- The holds of a list, each with its place in it (`n`, from 1).
create or replace function holds_of(p_items jsonb) returns table (
    tenant_id uuid, key text, fingerprint text, retire_seconds float8, correlation_id uuid, request_id text, holder_id text,
    name text, template jsonb, starts_at timestamptz, ends_at timestamptz, ttl_seconds float8, window_seconds_max float8,
    shard bigint, resources text[], nodes uuid[], slots jsonb, registered text[], sku text, gpus integer, region text,
    quantity integer, pool_id integer, shape text, classes smallint[], lows smallint[], highs smallint[], picks jsonb,
    spread bigint, n bigint
) language sql immutable as $$
select i.* from rows from (jsonb_to_recordset(p_items) as (
    tenant_id uuid, key text, fingerprint text, retire_seconds float8, correlation_id uuid, request_id text, holder_id text,
    name text, template jsonb, starts_at timestamptz, ends_at timestamptz, ttl_seconds float8, window_seconds_max float8,
    shard bigint, resources text[], nodes uuid[], slots jsonb, registered text[], sku text, gpus integer, region text,
    quantity integer, pool_id integer, shape text, classes smallint[], lows smallint[], highs smallint[], picks jsonb,
    spread bigint)) with ordinality as i
$$;
