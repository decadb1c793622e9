"""TPMs of nodes: the policy, the pinned keys, the challenge in progress, and the quote of each attested request."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0025"
down_revision = "0024"

_STATEMENTS = b"""
create table node_tpms (
    node_id     uuid primary key references nodes (id),
    policy      text not null default 'offered' constraint node_tpm_policy check (policy in ('off', 'offered', 'required')),
    ek_sha256   bytea constraint node_tpm_ek_is_sha256 check (octet_length(ek_sha256) = 32),
    ek_public   bytea,
    ak_public   bytea,
    attested_at timestamptz,
    constraint node_tpm_keys_are_complete check ((ek_public is null) = (ak_public is null)
        and (ak_public is null or ek_sha256 is not null))
);
comment on table node_tpms is 'Which TPM a node must prove to have; a node without a row has the policy offered and no TPM.';
comment on column node_tpms.ek_sha256 is 'SHA-256 of its endorsement key (SubjectPublicKeyInfo); null: none is known.';
comment on column node_tpms.ek_public is 'The endorsement key as TPMT_PUBLIC; null: the TPM has not attested yet.';
comment on column node_tpms.ak_public is 'The attestation key as TPMT_PUBLIC, which signs the quote of each renewal.';
comment on column node_tpms.attested_at is 'When the issuer last signed a request with a quote of this TPM.';
create table attestation_challenges (
    node_id    uuid primary key references nodes (id),
    secret     bytea not null constraint attestation_secret_has_32_bytes check (octet_length(secret) = 32),
    ek_public  bytea not null,
    ak_public  bytea not null,
    expires_at timestamptz not null
);
comment on table attestation_challenges is 'The one challenge of a node that its TPM has not answered yet; each is used once.';
comment on column attestation_challenges.secret is 'What only the TPM with both keys can decrypt.';
alter table certificate_requests add column attestation_secret bytea, add column quote bytea, add column quote_signature bytea,
    add constraint quote_is_complete check ((quote is null) = (attestation_secret is null)
        and (quote is null) = (quote_signature is null));
comment on column certificate_requests.attestation_secret is 'The challenge that the quote answers; null: not attested.';
comment on column certificate_requests.quote is 'TPMS_ATTEST over the challenge and the key of the request.';
comment on column certificate_requests.quote_signature is 'ECDSA signature of the quote by the attestation key (DER).';
"""


def upgrade() -> None:
    """Add tables and columns. Processes of the version before do not use them, and their nodes have no TPM."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
