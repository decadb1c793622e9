"""Key sets of nodes, and the CA of each node certificate: what an operator must know to rotate either."""

from alembic import op

revision = "0023"
down_revision = "0022"

STATEMENTS = (
    "alter table nodes add column key_set_serial bigint",
    "comment on column nodes.key_set_serial is 'Serial of the key set that its agent uses, as its last heartbeat said.'",
    "alter table nodes add column key_set_refusal text",
    "comment on column nodes.key_set_refusal is 'Why its agent refused the last offered key set; null: it did not.'",
    """alter table node_certificates add column authority_key_sha256 bytea
    constraint authority_key_is_sha256 check (octet_length(authority_key_sha256) = 32)""",
    """comment on column node_certificates.authority_key_sha256 is
    'SHA-256 of the public key of the CA that signed it; null: an earlier version recorded it.'""",
)


def upgrade() -> None:
    """Add the columns. Processes of the version before do not write them."""
    for statement in STATEMENTS:
        op.execute(statement)
