"""Burn-ins of nodes, what permits a return from quarantine, and what an agent's version can do."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0035"
down_revision = "0034"

_STATEMENTS = b"""
create table node_burn_ins (
    id           uuid primary key default uuidv7(),
    node_id      uuid not null references nodes (id),
    slots        smallint[] not null,
    requested_at timestamptz not null default clock_timestamp(),
    requested_by text not null,
    task_id      uuid,
    issued_at    timestamptz,
    shared       boolean,
    waits_for    text,
    waits_since  timestamptz,
    waits_until  timestamptz,
    ended_at     timestamptz,
    outcome      text constraint burn_in_outcome check (outcome in ('passed', 'faulty', 'failed')),
    failure      text constraint burn_in_failure_is_bounded check (char_length(failure) <= 500),
    report       jsonb,
    constraint burn_in_task_is_whole check (num_nulls(task_id, issued_at, shared) in (0, 3)),
    constraint burn_in_end_is_whole check (num_nulls(ended_at, outcome) in (0, 2)),
    constraint burn_in_waits check (num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(outcome)),
    constraint burn_in_pass_is_proven check (outcome <> 'passed' or num_nulls(task_id, report) = 0)
);
comment on table node_burn_ins is 'Tests of nodes whose slots are to return from quarantine; the last ones of each node.';
comment on column node_burn_ins.slots is 'Indexes of the slots under test: in quarantine, without an allocation.';
comment on column node_burn_ins.task_id is 'Null: no task was issued yet.';
comment on column node_burn_ins.issued_at is 'It proves nothing about a fault that was found later.';
comment on column node_burn_ins.shared is 'Allocations were on other slots: the bounds were smaller.';
comment on column node_burn_ins.failure is 'Why it did not pass.';
create unique index one_burn_in on node_burn_ins (node_id) where ended_at is null;
comment on index one_burn_in is 'One open burn-in for each node, and those that wait for the sweeper.';
create index burn_ins_by_node on node_burn_ins (node_id, id);
comment on index burn_ins_by_node is 'The history of a node, and what permits a return.';
alter table slot_quarantines add column last_fault_at timestamptz, add column burn_in_id uuid;
comment on column slot_quarantines.last_fault_at is 'When a health probe last found another fault of the slot meanwhile.';
comment on column slot_quarantines.burn_in_id is 'The burn-in after which the slot returned; null: it returned without one.';
alter table nodes add column agent_features text[] not null default '{}';
comment on column nodes.agent_features is 'What the agent can do that one of the version before cannot, by its last heartbeat.';
"""


def upgrade() -> None:
    """Add the table and the columns. Processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
