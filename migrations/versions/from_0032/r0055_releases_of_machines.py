"""Releases of machines: the BMC's password is rotated, and what is wrong afterwards takes the node out of service."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0055"
down_revision = "0054"
LOCKS = ("node_bmcs", "deploy_runs", "slot_quarantines")

_STATEMENTS = b"""
alter table node_bmcs add column rotates_at_release boolean not null default true;
comment on column node_bmcs.rotates_at_release is 'Whether a release rotates the password; false for a BMC that cannot.';
alter table deploy_runs drop constraint deploy_run_step,
    add constraint deploy_run_step check (step in ('power_off', 'start', 'work', 'end', 'power_on', 'reach', 'rotate')),
    add column findings jsonb not null default '[]'
        constraint deploy_run_findings_are_bounded check (octet_length(findings::text) <= 65536);
comment on column deploy_runs.attempts is 'How often the end, or after it the rotation, was requested of the site.';
comment on column deploy_runs.findings is 'What is wrong with the machine after a release: code and detail.';
alter table slot_quarantines drop constraint quarantine_source,
    add constraint quarantine_source check (source in ('operator', 'probe', 'fault_report', 'release'));
"""


def upgrade() -> None:
    """Add what processes of the version before neither read nor write; they leave a run at a step that they do not know alone."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
