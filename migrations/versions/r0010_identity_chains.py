"""Chains of node certificates: each has at most one successor, and a fork of a chain suspends its node."""

from alembic import op

revision = "0010"
down_revision = "0009"

STATEMENTS = (
    "alter table nodes add column identity_conflict_at timestamptz",
    "comment on column nodes.identity_conflict_at is 'When two keys were used as its identity, since it enrolled.'",
    "alter table node_certificates add column predecessor text, add column pem text",
    "comment on column node_certificates.predecessor is 'Serial number of the one before; null for the first of an epoch.'",
    "comment on column node_certificates.pem is 'For a repeated request; null if issued before revision 0010.'",
    # Refuse a second successor of a certificate. The issuer asks whether a certificate has one.
    "create unique index one_successor on node_certificates (predecessor) where predecessor is not null",
)


def upgrade() -> None:
    """Allow chains. Processes of the version before issue certificates without a predecessor, which begin a chain."""
    for statement in STATEMENTS:
        op.execute(statement)
