"""Sessions of serial consoles: what waits, which process serves it, and how it ended; never the content."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0038"
down_revision = "0037"

_STATEMENTS = b"""
create table console_sessions (
    id             uuid primary key default uuidv7(),
    allocation_id  uuid not null,
    tenant_id      uuid not null,
    node_id        uuid not null references nodes (id),
    mode           text not null constraint console_mode check (mode in ('attach', 'log')),
    opened_by      text not null,
    process_id     uuid not null,
    address        text not null constraint console_address_is_bounded check (char_length(address) between 1 and 300),
    secret_sha256  text not null constraint console_secret_is_hashed check (secret_sha256 ~ '^[0-9a-f]{64}$'),
    log_offset     bigint not null default 0,
    log_bytes_max  integer not null default 0,
    seconds_max    double precision not null,
    opened_at      timestamptz not null default clock_timestamp(),
    seen_at        timestamptz not null default clock_timestamp(),
    task_id        uuid,
    attached_at    timestamptz,
    waits_for      text constraint console_waits_for check (waits_for in ('worker', 'node', 'end')),
    waits_since    timestamptz,
    waits_until    timestamptz,
    ended_at       timestamptz,
    reason         text constraint console_reason_is_bounded check (char_length(reason) between 1 and 64),
    bytes_to_guest   bigint not null default 0 constraint console_input_is_counted check (bytes_to_guest >= 0),
    bytes_to_tenant  bigint not null default 0 constraint console_output_is_counted check (bytes_to_tenant >= 0),
    bytes_dropped    bigint not null default 0 constraint console_losses_are_counted check (bytes_dropped >= 0),
    constraint console_end_is_whole check (num_nulls(ended_at, reason) in (0, 2)),
    constraint console_waits check (num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(reason)),
    constraint console_attached_by_task check (attached_at is null or task_id is not null)
);
comment on table console_sessions is 'Sessions of serial consoles, open and ended ones; of their content nothing is kept.';
comment on column console_sessions.mode is 'attach: both directions. log: a part of the log, once.';
comment on column console_sessions.opened_by is 'The principal: kind and id.';
comment on column console_sessions.process_id is 'The API process at which the tenant''s connection ends.';
comment on column console_sessions.address is 'Host and port at which the agent reaches that process.';
comment on column console_sessions.secret_sha256 is 'SHA-256 of the secret with which that process proves itself to the agent.';
comment on column console_sessions.seconds_max is 'The longest time from the task to the end.';
comment on column console_sessions.seen_at is 'When the process last said that it serves the session.';
comment on column console_sessions.task_id is 'Null: no task was issued yet.';
comment on column console_sessions.attached_at is 'When the agent connected.';
comment on column console_sessions.bytes_dropped is 'Output that the tenant was too slow to read.';
create unique index one_attached_console on console_sessions (allocation_id) where ended_at is null and mode = 'attach';
comment on index one_attached_console is 'One writer for each guest.';
create index open_consoles on console_sessions (tenant_id) where ended_at is null;
comment on index open_consoles is 'The open sessions of a tenant, and of all for the sweeper.';
create index unsigned_consoles on console_sessions (opened_at) where ended_at is null and task_id is null;
comment on index unsigned_consoles is 'Those whose task the worker issues next.';
create index ended_consoles on console_sessions (ended_at) where ended_at is not null;
comment on index ended_consoles is 'Those past their retention.';
create index consoles_of_process on console_sessions (process_id) where ended_at is null;
comment on index consoles_of_process is 'What a process serves.';
"""


def upgrade() -> None:
    """Add the table. Processes of the version before do not use it."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
