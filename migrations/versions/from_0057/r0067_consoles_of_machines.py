"""Sessions with serial consoles of machines behind a BMC, and what an operator has decided about a BMC's SSH server."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0067"
down_revision = "0066"
LOCKS = ("console_sessions", "node_bmcs")

_STATEMENTS = b"""
alter table console_sessions add column site_id uuid, add column envelope jsonb, add column dispatched_at timestamptz,
    add column lease_fence bigint,
    add constraint console_dispatched_is_whole check (num_nulls(dispatched_at, lease_fence) in (0, 2)),
    add constraint console_task_of_site check (site_id is not null or num_nonnulls(envelope, dispatched_at) = 0),
    add constraint console_dispatched_was_signed check (dispatched_at is null or task_id is not null);
comment on column console_sessions.site_id is 'The site whose agent serves the console of a machine; null: its node does.';
comment on column console_sessions.envelope is 'The signed task for the agent of the site, until the session ends.';
comment on column console_sessions.dispatched_at is 'When it was handed to the holder of the lease, which happens once.';
comment on column console_sessions.lease_fence is 'The fence of the lease of that holder.';
create index consoles_to_dispatch on console_sessions (site_id, opened_at)
    where ended_at is null and dispatched_at is null and site_id is not null;
comment on index consoles_to_dispatch is 'What an agent of a site is handed next.';
alter table node_bmcs
    add column console_host_key text constraint bmc_console_host_key check (
        char_length(console_host_key) <= 2048
        and console_host_key ~ '^(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(256|384|521)) [A-Za-z0-9+/]+={0,2}$'),
    add column console_shared boolean not null default false;
comment on column node_bmcs.console_host_key is
    'The host key of the SSH server with the serial console, as an operator has pinned it; null: tenants get no console.';
comment on column node_bmcs.console_shared is
    'Whether an operator allows a console whose SSH server is that of the BMC''s command line too.';
"""


def upgrade() -> None:
    """Add the columns. A process of the version before opens no session for a machine: it finds no agent that serves it."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
