"""Wipe certificates: what nodes signed about the wipe of allocations, countersigned and chained."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0028"
down_revision = "0027"

_STATEMENTS = b"""
create table wipe_key_sets (
    sha256        bytea primary key constraint wipe_key_set_digest check (octet_length(sha256) = 32),
    envelope      jsonb not null,
    first_used_at timestamptz not null default clock_timestamp()
);
comment on table wipe_key_sets is 'Key sets, signed by the root, that were in use when wipe certificates were countersigned.';
comment on column wipe_key_sets.sha256 is 'Of the envelope''s JSON text with sorted members.';
comment on column wipe_key_sets.envelope is 'KeySetEnvelope (node_agent/key_set.py).';

create table wipe_chains (
    node_id uuid primary key,
    number  bigint not null,
    sha256  bytea not null,
    constraint wipe_chain_head check (number > 0 and octet_length(sha256) = 32)
);
comment on table wipe_chains is 'The newest wipe certificate of each node, kept when certificates are archived.';
comment on column wipe_chains.number is 'How many certificates the node has.';
comment on column wipe_chains.sha256 is 'Digest of the newest, which the next one names.';

create table wipe_certificates (
    allocation_id    uuid primary key,
    tenant_id        uuid not null,
    node_id          uuid not null,
    number           bigint not null,
    sha256           bytea not null,
    previous_sha256  bytea,
    statement        jsonb not null,
    countersignature jsonb not null,
    key_set_sha256   bytea references wipe_key_sets (sha256),
    issued_at        timestamptz not null default clock_timestamp(),
    constraint wipe_certificate_number unique (node_id, number),
    constraint wipe_certificate_link
        check (number > 0 and octet_length(sha256) = 32 and (number = 1) = (previous_sha256 is null))
);
comment on table wipe_certificates is 'What a node signed about the wipe of an allocation, countersigned; never changed.';
comment on column wipe_certificates.number is 'Position in the chain of the node, from 1.';
comment on column wipe_certificates.sha256 is 'Of the payload of the countersignature.';
comment on column wipe_certificates.previous_sha256 is 'Digest of the node''s certificate before this one.';
comment on column wipe_certificates.statement is 'StatementEnvelope (node_agent/wiping/statement.py).';
comment on column wipe_certificates.countersignature is 'CountersignatureEnvelope (orchestrator/wipes/certificate.py).';
comment on column wipe_certificates.key_set_sha256 is 'The key set that verifies it; null: the worker had none.';
comment on constraint wipe_certificate_number on wipe_certificates is 'A chain has no fork; berth verify follows it.';
"""


def upgrade() -> None:
    """Add the tables. Processes of the version before issue no certificates."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
