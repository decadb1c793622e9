-- Metering: what was active, from when to when, at which price; and the ledger of what that costs (docs/billing.md).

-- Every price that a SKU ever had is kept, whoever writes the SKU, and never changes.
create function keep_price() returns trigger language plpgsql as $$
begin
    insert into sku_prices (sku, price_version, price_micro_per_gpu_second)
    values (new.name, new.price_version, new.price_micro_per_gpu_second) on conflict do nothing;
    return null;
end $$;
create trigger skus_keep_prices after insert or update of price_version on skus
    for each row execute function keep_price();
insert into sku_prices (sku, price_version, price_micro_per_gpu_second)
select name, price_version, price_micro_per_gpu_second from skus on conflict do nothing;

create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% of % is refused: its rows never change', tg_op, tg_table_name
        using errcode = 'BB002', table = tg_table_name;
end $$;
create trigger sku_prices_never_change before update or delete on sku_prices
    for each row execute function refuse_change();

create table metering_intervals (
    allocation_id              uuid primary key,
    tenant_id                  uuid not null,
    sku                        text not null,
    gpus                       integer not null check (gpus > 0),
    price_version              bigint not null,
    price_micro_per_gpu_second bigint not null check (price_micro_per_gpu_second >= 0),
    active_at                  timestamptz not null,
    opened_version             bigint not null,              -- the event's that opened it
    ended_at                   timestamptz,
    closed_version             bigint,                       -- the event's that closed it
    constraint closed_whole check ((ended_at is null) = (closed_version is null))
);
create index metering_intervals_open on metering_intervals (tenant_id) where ended_at is null;
create index metering_intervals_ended on metering_intervals (tenant_id, ended_at);

create function refuse_reopening() returns trigger language plpgsql as $$
begin
    if old.ended_at is not null
       or (to_jsonb(new) - array['ended_at', 'closed_version']) <> (to_jsonb(old) - array['ended_at', 'closed_version']) then
        raise exception 'the interval of allocation % is closed once, and nothing else of it changes', old.allocation_id
            using errcode = 'BB002', table = 'metering_intervals';
    end if;
    return new;
end $$;
create trigger metering_intervals_close_once before update on metering_intervals
    for each row execute function refuse_reopening();
create trigger metering_intervals_stay before delete on metering_intervals
    for each row execute function refuse_change();

create table ledger (
    id                         bigint primary key generated always as identity,
    tenant_id                  uuid not null,
    kind                       text not null check (kind in ('usage', 'top_up')),
    amount_micro_units         numeric(38, 0) not null check (amount_micro_units >= 0),  -- usage takes it, a top-up gives it
    written_at                 timestamptz not null default clock_timestamp(),
    allocation_id              uuid,
    sku                        text,
    gpus                       integer,
    price_version              bigint,
    price_micro_per_gpu_second bigint,
    starts_at                  timestamptz,
    ends_at                    timestamptz,
    gpu_microseconds           numeric(38, 0),
    version                    bigint,                       -- the event's that closed the interval
    actor_id                   text,
    reference                  text,
    operation_key              text,
    constraint usage_is_whole check ((kind = 'usage') = (num_nulls(allocation_id, sku, gpus, price_version,
        price_micro_per_gpu_second, starts_at, ends_at, gpu_microseconds, version) = 0)),
    constraint top_up_is_whole check ((kind = 'top_up') = (num_nulls(actor_id, operation_key) = 0))
);
create unique index ledger_usage_once on ledger (allocation_id) where kind = 'usage';
create index ledger_by_tenant on ledger (tenant_id, id);
create trigger ledger_never_changes before update or delete on ledger for each row execute function refuse_change();
create trigger ledger_is_never_emptied before truncate on ledger for each statement execute function refuse_change();

-- Metered GPU time in microseconds, never negative: a clock that was set back bills nothing.
create function metered_gpu_microseconds(p_gpus integer, p_from timestamptz, p_until timestamptz) returns numeric
language sql immutable as $$
    select p_gpus * greatest(0, trunc((extract(epoch from p_until) - extract(epoch from p_from)) * 1000000))
$$;
-- What that costs, in whole micro-units, rounded down once, for the time since the interval began. What a part of an interval
-- costs is the difference of two of these, so that parts always add up to the whole.
create function metered_micro_units(p_gpus integer, p_price bigint, p_from timestamptz, p_until timestamptz) returns numeric
language sql immutable as $$
    select div(metered_gpu_microseconds(p_gpus, p_from, p_until) * p_price, 1000000)
$$;

-- Opens and closes intervals by a list of events in their order, and writes a line for each that closes; answers how many
-- lines. Told again, an event changes nothing. Raises BB001 where a price is not known.
create function meter(p_opens jsonb, p_closes jsonb) returns integer language plpgsql as $$
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
