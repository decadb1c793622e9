"""Resets of GPUs, and their entries in the history of the hardware."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0039"
down_revision = "0038"

_STATEMENTS = b"""
create table node_gpu_resets (
    id           uuid primary key default uuidv7(),
    node_id      uuid not null references nodes (id),
    slots        smallint[] not null,
    gpus         text[] not null,
    requested_at timestamptz not null default clock_timestamp(),
    requested_by text not null,
    task_id      uuid,
    issued_at    timestamptz,
    waits_for    text,
    waits_since  timestamptz,
    waits_until  timestamptz,
    ended_at     timestamptz,
    outcome      text constraint gpu_reset_outcome check (outcome in ('reset', 'failed')),
    failure      text constraint gpu_reset_failure_is_bounded check (char_length(failure) <= 500),
    report       jsonb,
    constraint gpu_reset_names_gpus check (cardinality(slots) between 1 and 64 and cardinality(gpus) = cardinality(slots)),
    constraint gpu_reset_task_is_whole check (num_nulls(task_id, issued_at) in (0, 2)),
    constraint gpu_reset_end_is_whole check (num_nulls(ended_at, outcome) in (0, 2)),
    constraint gpu_reset_waits check (num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(outcome)),
    constraint gpu_reset_is_proven check (outcome <> 'reset' or num_nulls(task_id, report) = 0)
);
comment on table node_gpu_resets is 'Resets of GPUs whose slots are out of service; the last ones of each node.';
comment on column node_gpu_resets.slots is 'Indexes of the slots whose GPUs are reset together.';
comment on column node_gpu_resets.gpus is 'PCI addresses of their GPUs, in the same order.';
comment on column node_gpu_resets.task_id is 'Null: no task was issued yet.';
comment on column node_gpu_resets.failure is 'Why it is not proven that every GPU was reset: a code, and what was found.';
create unique index one_gpu_reset on node_gpu_resets (node_id) where ended_at is null;
comment on index one_gpu_reset is 'One open reset for each node, and those that wait for the sweeper.';
create index gpu_resets_by_node on node_gpu_resets (node_id, id);
comment on index gpu_resets_by_node is 'The history of a node.';
alter table hardware_history drop constraint hardware_event_is_known, add constraint hardware_event_is_known check (
    happened in ('seen', 'moved', 'missing', 'contested', 'fault_found', 'fault_reported', 'quarantined', 'returned',
        'repair_opened', 'repair_closed', 'gpu_reset')) not valid;
alter table hardware_history validate constraint hardware_event_is_known;
"""


def upgrade() -> None:
    """Add the table, and admit its entries to the history. Processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
