-- Opens and closes intervals by a list of events in their order, and writes a line for each that closes; returns the number
-- of lines. A repeated event changes nothing. Raises BB001 where a price is not known.
create or replace function meter(p_opens jsonb, p_closes jsonb) returns integer language plpgsql as $$
declare
    missing record;
    written integer;
begin
    select o.sku, o.price_version into missing
    from jsonb_to_recordset(p_opens) as o(sku text, price_version bigint)
    where not exists (select from sku_prices p where p.sku = o.sku and p.price_version = o.price_version) limit 1;
    if found then
        raise exception 'there is no price version % of SKU %', missing.price_version, missing.sku using errcode = 'BB001';
    end if;
    insert into metering_intervals (allocation_id, tenant_id, sku, gpus, price_version, price_micro_per_gpu_second, active_at,
                                    opened_version)
    select o.allocation_id, o.tenant_id, o.sku, o.gpus, o.price_version, p.price_micro_per_gpu_second, o.at, o.version
    from jsonb_to_recordset(p_opens) as o(allocation_id uuid, tenant_id uuid, sku text, gpus integer, price_version bigint,
                                          at timestamptz, version bigint)
    join sku_prices p on p.sku = o.sku and p.price_version = o.price_version
    order by o.version
    on conflict (allocation_id) do nothing;
    -- Whatever closes an allocation's interval comes after what opened it: the first of them counts.
    with ends as (
        select distinct on (c.allocation_id) c.allocation_id, c.at, c.version
        from jsonb_to_recordset(p_closes) as c(allocation_id uuid, at timestamptz, version bigint)
        order by c.allocation_id, c.version
    ), closed as (
        update metering_intervals i set ended_at = e.at, closed_version = e.version
        from ends e where i.allocation_id = e.allocation_id and i.ended_at is null
        returning i.*
    )
    insert into ledger (tenant_id, kind, amount_micro_units, allocation_id, sku, gpus, price_version,
                        price_micro_per_gpu_second, starts_at, ends_at, gpu_microseconds, version)
    select c.tenant_id, 'usage', metered_micro_units(c.gpus, c.price_micro_per_gpu_second, c.active_at, c.ended_at),
           c.allocation_id, c.sku, c.gpus, c.price_version, c.price_micro_per_gpu_second, c.active_at, c.ended_at,
           metered_gpu_microseconds(c.gpus, c.active_at, c.ended_at), c.closed_version
    from closed c order by c.closed_version;
    get diagnostics written = row_count;
    return written;
end $$;
