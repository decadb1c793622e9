"""Fault reports of tenants, and the quarantines that follow from them."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0033"
down_revision = "0032"

_STATEMENTS = b"""
create table fault_reports (
    id                  uuid primary key default uuidv7(),
    tenant_id           uuid not null,
    allocation_id       uuid not null,
    node_id             uuid not null references nodes(id),
    slots               smallint[] not null,
    symptom             text not null,
    evidence            text not null,
    details             jsonb not null default '{}',
    replace             boolean not null,
    reported_at         timestamptz not null default clock_timestamp(),
    reported_by         text not null,
    closed_at           timestamptz,
    replacement_id      uuid,
    replacement_outcome text,
    waits_for           text,
    waits_since         timestamptz,
    waits_until         timestamptz,
    constraint symptom_is_known check (symptom in ('unreachable', 'gpu_error', 'slow', 'network', 'storage', 'other')),
    constraint replacement_outcome_is_known check (replacement_outcome in ('replaced', 'failed', 'released', 'overdue')),
    constraint replacement_wait_is_whole check (num_nulls(waits_for, waits_since, waits_until) in (0, 3)),
    constraint replacement_is_whole check (replace = (replacement_id is not null)
        and (replacement_id is not null) = (num_nonnulls(waits_for, replacement_outcome) = 1))
);
comment on table fault_reports is 'Faults that tenants reported of the units of an allocation.';
comment on column fault_reports.slots is 'Indexes of the allocation''s slots on that node when the fault was reported.';
comment on column fault_reports.evidence is 'What shows the fault, in the tenant''s words.';
comment on column fault_reports.closed_at is 'When the units were released into quarantine; null: the allocation has them.';
comment on column fault_reports.replacement_id is 'The allocation that replaces the one reported.';
create index fault_reports_open on fault_reports (allocation_id) where closed_at is null;
comment on index fault_reports_open is 'The reports that a release puts into quarantine, and their number.';
create index fault_reports_by_tenant on fault_reports (tenant_id, reported_at);
comment on index fault_reports_by_tenant is 'How many a tenant has sent in the last day.';
create index fault_reports_waiting on fault_reports (waits_until) where waits_for is not null;
comment on index fault_reports_waiting is 'Replacements that are not concluded.';
create index fault_reports_closed on fault_reports (closed_at) where closed_at is not null;
comment on index fault_reports_closed is 'The sweep of reports past their retention.';
alter table slot_quarantines add column fault_report_id uuid;
alter table slot_quarantines drop constraint quarantine_source;
alter table slot_quarantines add constraint quarantine_source check (source in ('operator', 'probe', 'fault_report'));
comment on column slot_quarantines.fault_report_id is 'The report whose units were released; null: an operator''s decision.';
"""


def upgrade() -> None:
    """Add the table and the column. Processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
