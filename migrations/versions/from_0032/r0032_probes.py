"""Health of nodes' hardware: the last report of each node and its faults, a bounded history, and what began a quarantine."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0032"
down_revision = "0031"

_STATEMENTS = b"""
create table node_health (
    node_id     uuid primary key references nodes (id),
    task_id     uuid not null,
    epoch       bigint not null,
    waits_for   text,
    waits_since timestamptz,
    waits_until timestamptz,
    next_at     timestamptz not null,
    failure     text constraint health_failure_is_bounded check (char_length(failure) <= 500),
    report      jsonb,
    reported_at timestamptz,
    faults      jsonb not null default '[]',
    accepted    jsonb not null default '{}',
    constraint health_waits_for_node check (num_nulls(waits_for, waits_since, waits_until) in (0, 3)),
    constraint health_report_is_whole check (num_nulls(report, reported_at) in (0, 2))
);
comment on table node_health is 'How the hardware of each node is, by its last health probe.';
comment on column node_health.task_id is 'The probe issued last; open while waits_for is not null.';
comment on column node_health.next_at is 'When the next probe is due; the end of an occupation sets it to now.';
comment on column node_health.failure is 'Why the last probe failed; null: it did not.';
comment on column node_health.faults is 'What the last report has beyond the thresholds, with the slots concerned.';
comment on column node_health.accepted is 'Counters as they were when a slot was returned: only what exceeds them is a fault.';
create index health_open on node_health (task_id) where waits_for is not null;
comment on index health_open is 'Probes whose task may have ended.';
create index health_faulty on node_health (node_id) where faults <> '[]';
comment on index health_faulty is 'Nodes with faults, for counts.';
create table node_health_reports (
    id          uuid primary key default uuidv7(),
    node_id     uuid not null references nodes (id),
    reported_at timestamptz not null,
    report      jsonb not null,
    faults      jsonb not null
);
comment on table node_health_reports is 'The last reports of each node, bounded per node by BERTH_PROBE_HISTORY_MAX.';
create index health_reports_by_node on node_health_reports (node_id, id);
comment on index health_reports_by_node is 'The history of a node, and its oldest reports, which are deleted.';
alter table slot_quarantines add column source text not null default 'operator'
    constraint quarantine_source check (source in ('operator', 'probe'));
comment on column slot_quarantines.source is 'What began it: an operator, or the report of a health probe.';
"""


def upgrade() -> None:
    """Add the tables and the column. Processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
