"""A restore knows which certificates agents of sites got in the lost interval, and which agents were revoked in it."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0059"
down_revision = "0058"
LOCKS = ("restore_replays", "site_agent_certificates")

_STATEMENTS = b"""
alter table restore_replays drop constraint restore_replay_kind, add constraint restore_replay_kind check (
    kind in ('release', 'cancel', 'api_key', 'certificates', 'adopt', 'site_agent', 'adopt_agent'));
comment on column restore_replays.subject_id is 'The allocation, reservation, API key, node, agent, or event of an issuance.';
create trigger site_certificate_noted after insert on site_agent_certificates
    for each row execute function note_site_certificate();
"""


def upgrade() -> None:
    """Add the kinds and the trigger. What was issued or revoked before has no event, as after a restore without one."""
    connection = driver_connection(op.get_bind())
    create_functions(connection, ["note_site_certificate"])
    connection.execute(_STATEMENTS)
