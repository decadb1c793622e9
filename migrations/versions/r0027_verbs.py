"""Verbs of active allocations: the state of the guest, the verb in progress, and the failure of the last one."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0027"
down_revision = "0026"

# A process of the earlier code releases an allocation without clearing these columns, so that no constraint binds them to
# the state; readers evaluate them for active allocations alone.
_STATEMENTS = b"""
alter table allocations
    add column guest_state text constraint guest_state_is_known check (guest_state in ('running', 'stopped', 'unknown')),
    add column guest_verb text constraint guest_verb_is_known check (guest_verb in ('reboot', 'stop', 'start', 'rebuild')),
    add column guest_failure_code text,
    add column guest_failure_detail text;
comment on column allocations.guest_state is 'State of an active guest by its last task; null: running, of an earlier version.';
comment on column allocations.guest_verb is 'The verb in progress.';
comment on column allocations.guest_failure_code is 'Why the last verb failed.';
-- The event that the workflow of a verb was to start from (rescuer).
create index log_verbs on log (subject, version) where event_type = 'allocation.verb_requested';
"""


def upgrade() -> None:
    """Add the columns and the index. Processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
