-- Prepaid balances: what each tenant's ledger comes to, who is to be looked at, and whose balance is used up (docs/billing.md).

-- A tenant whose balance is used up begins nothing new. It stands here because whatever begins something reads this row already.
alter table tenants add column depleted_at timestamptz;

-- Every tenant has one; only what `prepaid` ones run is ended by it. `look_at` is when it is to be looked at again: at once when
-- something of it changed, else before it can have sunk to its threshold or to nothing; null where nothing runs.
create table balances (
    tenant_id                 uuid primary key references tenants,
    prepaid                   boolean not null default false,
    settled_micro_units       numeric(38, 0) not null default 0,   -- the sum of its ledger lines, always
    low_threshold_micro_units numeric(38, 0) check (low_threshold_micro_units >= 0),
    low_told_at               timestamptz,                          -- null once it is above the threshold again
    look_at                   timestamptz,
    looked_at                 timestamptz,
    constraint only_prepaid_is_looked_at check (prepaid or num_nonnulls(look_at, low_told_at) = 0)
) with (fillfactor = 70);
create index balances_due on balances (look_at) where look_at is not null;

create function open_balance() returns trigger language plpgsql as $$
begin
    insert into balances (tenant_id) values (new.id);
    return null;
end $$;
create trigger tenants_have_balances after insert on tenants for each row execute function open_balance();

-- A line that takes back what was given: a top-up that was a mistake, or a refund.
alter table ledger drop constraint ledger_kind_check, drop constraint top_up_is_whole;
alter table ledger
    add constraint ledger_kind_check check (kind in ('usage', 'top_up', 'withdrawal')),
    add constraint payment_is_whole check ((kind <> 'usage') = (num_nulls(actor_id, operation_key) = 0)),
    add constraint withdrawal_says_why check (kind <> 'withdrawal' or reference is not null);
-- A key moves money once, however long its answer is forgotten.
create unique index ledger_payment_once on ledger (actor_id, operation_key) where kind <> 'usage';

-- What a line adds to the balance.
create function ledger_sign(p_kind text) returns integer language sql immutable as $$
    select case p_kind when 'top_up' then 1 else -1 end
$$;
-- Without these settings a plan made while the table was small would read all tenants for each line.
create function settle_lines() returns trigger language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    update balances b set settled_micro_units = b.settled_micro_units + w.amount,
                          look_at = case when b.prepaid then least(b.look_at, clock_timestamp()) end
    from (select tenant_id, sum(ledger_sign(kind) * amount_micro_units) as amount from written group by tenant_id) w
    where b.tenant_id = w.tenant_id;
    return null;
end $$;
create trigger ledger_is_settled after insert on ledger referencing new table as written
    for each statement execute function settle_lines();

create function look_at_opened() returns trigger language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    update balances b set look_at = least(b.look_at, clock_timestamp())
    from (select distinct tenant_id from opened) o where b.tenant_id = o.tenant_id and b.prepaid;
    return null;
end $$;
create trigger metering_intervals_are_looked_at after insert on metering_intervals referencing new table as opened
    for each statement execute function look_at_opened();

insert into balances (tenant_id, settled_micro_units)
select t.id, coalesce((select sum(ledger_sign(l.kind) * l.amount_micro_units) from ledger l where l.tenant_id = t.id), 0)
from tenants t;

-- Whatever begins something refuses a tenant whose balance is used up, by one more word in what it reads anyway. Only these
-- words of the functions change, wherever they were defined last.
create or replace function pg_temp.amend(p_function regprocedure, p_old text, p_new text) returns void language plpgsql as $$
declare
    definition text := pg_get_functiondef(p_function);
begin
    if position(p_old in definition) = 0 then
        raise exception 'the function % does not say: %', p_function, p_old;
    end if;
    execute replace(definition, p_old, p_new);
end $$;
select pg_temp.amend('place_together(jsonb, boolean)',
    $s$when t.state is distinct from 'active' then 'tenant'$s$,
    $s$when t.state is distinct from 'active' then 'tenant'
                   when t.depleted_at is not null then 'depleted'$s$);
select pg_temp.amend('turn_over_claim(jsonb)',
    $s$when not exists (select from tenants t where t.id = claim.tenant_id and t.state = 'active') then 'tenant'$s$,
    $s$when not exists (select from tenants t where t.id = claim.tenant_id and t.state = 'active') then 'tenant'
        when (select t.depleted_at from tenants t where t.id = claim.tenant_id) is not null then 'depleted'$s$);
select pg_temp.amend('hold_once(jsonb)',
    $s$not exists (select from tenants t where t.id = item.tenant_id and t.state = 'active') then
            answer := '{"outcome": "tenant"}';$s$,
    $s$not exists (select from tenants t where t.id = item.tenant_id and t.state = 'active' and t.depleted_at is null) then
            answer := jsonb_build_object('outcome', case when exists (
                select from tenants t where t.id = item.tenant_id and t.state = 'active') then 'depleted' else 'tenant' end);$s$);
