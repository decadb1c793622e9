-- Writes a credit for each outage that has ended, by a list of events in their order; returns the number of lines. A credit is the
-- part of the interval's cost between two times, within metered time and after the allocation's last credit. A repeated event
-- changes nothing.
create or replace function credit_outages(p_credits jsonb) returns integer language plpgsql as $$
declare
    written integer;
begin
    insert into ledger (tenant_id, kind, amount_micro_units, allocation_id, sku, gpus, price_version,
                        price_micro_per_gpu_second, starts_at, ends_at, gpu_microseconds, version)
    select i.tenant_id, 'credit',
           metered_micro_units(i.gpus, i.price_micro_per_gpu_second, i.active_at, t.ends_at)
           - metered_micro_units(i.gpus, i.price_micro_per_gpu_second, i.active_at, t.starts_at),
           i.allocation_id, i.sku, i.gpus, i.price_version, i.price_micro_per_gpu_second, t.starts_at, t.ends_at,
           metered_gpu_microseconds(i.gpus, i.active_at, t.ends_at) - metered_gpu_microseconds(i.gpus, i.active_at, t.starts_at),
           c.version
    from (
        select o.*, max(o.ends_at) over (partition by o.allocation_id order by o.version
                                         rows between unbounded preceding and 1 preceding) as after
        from jsonb_to_recordset(p_credits) as o(allocation_id uuid, starts_at timestamptz, ends_at timestamptz, version bigint)
    ) c
    join metering_intervals i on i.allocation_id = c.allocation_id
    cross join lateral (
        select greatest(c.starts_at, i.active_at, c.after,
                        (select max(l.ends_at) from ledger l
                         where l.allocation_id = c.allocation_id and l.kind = 'credit')) as starts_at,
               least(c.ends_at, i.ended_at) as ends_at
    ) t
    where t.ends_at > t.starts_at order by c.version
    on conflict (allocation_id, version) where kind = 'credit' do nothing;
    get diagnostics written = row_count;
    return written;
end $$;
