"""A restore knows which passwords were stored for BMCs in the lost interval."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0063"
down_revision = "0062"
LOCKS = ("restore_replays",)

_STATEMENTS = b"""
alter table restore_replays drop constraint restore_replay_kind, add constraint restore_replay_kind check (
    kind in ('release', 'cancel', 'api_key', 'certificates', 'adopt', 'site_agent', 'adopt_agent', 'bmc_password'));
comment on column restore_replays.subject_id is
    'The allocation, reservation, API key, node, agent, or event of an issuance or of a password.';
comment on column restore_replays.detail is 'Of a certificate or password that is to be adopted: the data of its event.';
"""


def upgrade() -> None:
    """Add the kind. What was stored before has no event, as after a restore without an export."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
