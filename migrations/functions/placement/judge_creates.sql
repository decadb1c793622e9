-- Return each create of a list with the tenant's quota and, where one is known without placement, the outcome (`refusal`);
-- by tenant and place in the list. `place_together` compares the quota. Their keys are in `operations`.
-- Runs under the planner settings of its caller: setting them again costs more than the call.
create or replace function judge_creates(p_items jsonb) returns table (
    n integer, tenant_id uuid, shape text, gpus integer, pool_id integer, classes smallint[], lows smallint[],
    highs smallint[], wait boolean, ends_at timestamptz, node_id uuid, mask bigint, gpus_limit integer, gpus_used integer,
    refusal text, status smallint, body text, fingerprint bytea
) language plpgsql as $$
#variable_conflict use_column
begin
    return query
    -- An operation without a status belongs to this transaction: others are invisible until they commit.
    select i.n, i.tenant_id, i.shape, i.gpus, i.pool_id, i.classes, i.lows, i.highs, i.wait,
           i.ends_at, i.node_id, i.mask, q.gpus_limit, q.gpus_used,
           case
               when o.scope is null then 'lost'
               when o.status is not null then 'existing'
               when t.state is distinct from 'active' then 'tenant'
               when t.depleted_at is not null then 'depleted'
               when not exists (select from skus s where s.name = i.sku and s.row_version = i.sku_row_version)
                 or not exists (select from images m where m.name = i.image and m.row_version = i.image_row_version)
               then 'stale'
               when (select count(*) from ssh_keys k where k.id = any (i.ssh_key_ids) and k.tenant_id = i.tenant_id)
                 <> cardinality(i.ssh_key_ids) then 'ssh_key'
               when i.ends_at <= clock_timestamp() then 'window_over'
               when i.ends_at > clock_timestamp() + make_interval(secs => i.window_seconds_max) then 'window_too_long'
           end, o.status, o.body, o.fingerprint::bytea
    from jsonb_to_recordset(p_items) as i(
        n integer, tenant_id uuid, key text, sku text, sku_row_version bigint, shape text, gpus integer,
        pool_id integer, image text, image_row_version bigint, ssh_key_ids uuid[], classes smallint[],
        lows smallint[], highs smallint[], wait boolean, ends_at timestamptz, window_seconds_max float8, node_id uuid,
        mask bigint)
    left join operations o on o.scope = i.tenant_id and o.key = i.key
    left join tenants t on t.id = i.tenant_id
    left join tenant_quotas q on q.tenant_id = i.tenant_id
    order by i.tenant_id, i.n;
end $$;
