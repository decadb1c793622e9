-- Metering, the ledger and prepaid balances (docs/reference/billing.md).

create table metering_intervals (
    allocation_id              uuid primary key,
    tenant_id                  uuid not null,
    sku                        text not null,
    gpus                       integer not null check (gpus > 0),
    price_version              bigint not null,
    price_micro_per_gpu_second bigint not null check (price_micro_per_gpu_second >= 0),
    active_at                  timestamptz not null,
    opened_version             bigint not null,
    ended_at                   timestamptz,
    closed_version             bigint,
    constraint closed_whole check ((ended_at is null) = (closed_version is null))
);
comment on table metering_intervals is 'Active time of allocations, one interval each; never reopened or deleted.';
comment on column metering_intervals.opened_version is 'Version of the event that opened it.';
comment on column metering_intervals.closed_version is 'Version of the event that closed it.';
-- Running intervals of a tenant.
create index metering_intervals_open on metering_intervals (tenant_id) where ended_at is null;
-- Closed intervals of a tenant by time (usage).
create index metering_intervals_ended on metering_intervals (tenant_id, ended_at);

create table ledger (
    id                         bigint primary key generated always as identity,
    tenant_id                  uuid not null,
    kind                       text not null,
    amount_micro_units         numeric(38, 0) not null check (amount_micro_units >= 0),
    written_at                 timestamptz not null default clock_timestamp(),
    allocation_id              uuid,
    sku                        text,
    gpus                       integer,
    price_version              bigint,
    price_micro_per_gpu_second bigint,
    starts_at                  timestamptz,
    ends_at                    timestamptz,
    gpu_microseconds           numeric(38, 0),
    version                    bigint,
    actor_id                   text,
    reference                  text,
    operation_key              text,
    constraint ledger_kind_check check (kind in ('usage', 'top_up', 'withdrawal')),
    constraint usage_is_whole check ((kind = 'usage') = (num_nulls(allocation_id, sku, gpus, price_version,
        price_micro_per_gpu_second, starts_at, ends_at, gpu_microseconds, version) = 0)),
    constraint payment_is_whole check ((kind <> 'usage') = (num_nulls(actor_id, operation_key) = 0)),
    constraint withdrawal_says_why check (kind <> 'withdrawal' or reference is not null)
);
comment on table ledger is 'Usage and payments of tenants; append-only.';
comment on column ledger.amount_micro_units is 'Millionths of the currency unit; usage and withdrawals are subtracted, top-ups added (ledger_sign).';
comment on column ledger.version is 'Version of the event that closed the interval.';
comment on column ledger.actor_id is 'The operator that entered the payment.';
comment on column ledger.reference is 'The operator''s reference, for example an invoice number.';
-- Refuse a second usage line of an allocation.
create unique index ledger_usage_once on ledger (allocation_id) where kind = 'usage';
-- Page through a tenant's lines.
create index ledger_by_tenant on ledger (tenant_id, id);
-- A key moves money once, even after its operation has been retired.
create unique index ledger_payment_once on ledger (actor_id, operation_key) where kind <> 'usage';

create table balances (
    tenant_id                 uuid primary key references tenants,
    prepaid                   boolean not null default false,
    settled_micro_units       numeric(38, 0) not null default 0,
    low_threshold_micro_units numeric(38, 0) check (low_threshold_micro_units >= 0),
    low_told_at               timestamptz,
    look_at                   timestamptz,
    looked_at                 timestamptz,
    constraint only_prepaid_is_looked_at check (prepaid or num_nonnulls(look_at, low_told_at) = 0)
) with (fillfactor = 70);
comment on table balances is 'Balances, one for each tenant; only allocations of prepaid tenants end by it.';
comment on column balances.settled_micro_units is 'Sum of the tenant''s ledger lines.';
comment on column balances.low_told_at is 'When balance.low was emitted; null once the balance is above the threshold again.';
comment on column balances.look_at is 'When the balance is evaluated next: before it can reach the threshold or zero; null where nothing runs.';
comment on column balances.looked_at is 'When the balance was evaluated last.';
-- Balances that are due for evaluation (sweeper).
create index balances_due on balances (look_at) where look_at is not null;

create trigger metering_intervals_close_once before update on metering_intervals
    for each row execute function refuse_reopening();
create trigger metering_intervals_stay before delete on metering_intervals
    for each row execute function refuse_change();
create trigger metering_intervals_are_looked_at after insert on metering_intervals referencing new table as opened
    for each statement execute function look_at_opened();
create trigger ledger_never_changes before update or delete on ledger for each row execute function refuse_change();
create trigger ledger_is_never_emptied before truncate on ledger for each statement execute function refuse_change();
create trigger ledger_is_settled after insert on ledger referencing new table as written
    for each statement execute function settle_lines();
create trigger tenants_have_balances after insert on tenants for each row execute function open_balance();
