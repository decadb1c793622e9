"""Topologies of nodes: what discovery found last, and what is approved; the run of a node's agent."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0030"
down_revision = "0029"

_STATEMENTS = b"""
alter table nodes add column agent_run uuid;
comment on column nodes.agent_run is 'Drawn by the agent at its start; another one means that it was started again.';
create table node_topologies (
    node_id         uuid primary key references nodes (id),
    task_id         uuid not null,
    epoch           bigint not null,
    agent_run       uuid,
    waits_for       text,
    waits_since     timestamptz,
    waits_until     timestamptz,
    next_at         timestamptz not null,
    failure         text constraint topology_failure_is_bounded check (char_length(failure) <= 500),
    found           jsonb,
    found_digest    text,
    found_at        timestamptz,
    approved        jsonb,
    approved_digest text,
    approved_at     timestamptz,
    approved_by     text,
    differences     jsonb not null default '[]',
    drifted_slots   smallint[] not null default '{}',
    drifted_since   timestamptz,
    constraint topology_waits_for_node check (num_nulls(waits_for, waits_since, waits_until) in (0, 3)),
    constraint topology_found_is_whole check (num_nulls(found, found_digest, found_at) in (0, 3)),
    constraint topology_approved_is_whole check (num_nulls(approved, approved_digest, approved_at, approved_by) in (0, 4)),
    constraint topology_drift_has_time check ((drifted_slots = '{}') = (drifted_since is null))
);
comment on table node_topologies is 'What each node is made of: found by its last discovery, and approved.';
comment on column node_topologies.task_id is 'The discovery issued last; open while waits_for is not null.';
comment on column node_topologies.next_at is 'When the next discovery is due.';
comment on column node_topologies.failure is 'Why the last discovery failed; null: it did not.';
comment on column node_topologies.drifted_slots is 'Slots out of service because of the differences.';
create index topologies_open on node_topologies (task_id) where waits_for is not null;
comment on index topologies_open is 'Discoveries whose task may have ended.';
create index topologies_drifted on node_topologies (node_id) where drifted_slots <> '{}';
comment on index topologies_drifted is 'Nodes with slots out of service because of drift, for counts.';
"""


def upgrade() -> None:
    """Add the table and the column. Processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
