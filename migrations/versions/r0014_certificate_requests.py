"""Requests for node certificates: a listener records each, and the issuer alone signs them."""

from alembic import op

revision = "0014"
down_revision = "0013"

STATEMENTS = (
    """create table certificate_requests (
    id           uuid primary key default uuidv7(),
    node_id      uuid not null references nodes (id),
    node_epoch   bigint not null,
    predecessor  text,
    key_sha256   bytea not null check (octet_length(key_sha256) = 32),
    csr_pem      text not null,
    request_id   text,
    requested_at timestamptz not null default clock_timestamp(),
    serial       text,
    refusal      text,
    constraint one_request_for_a_link unique nulls not distinct (node_id, node_epoch, predecessor),
    constraint issued_or_refused check (serial is null or refusal is null)
)""",
    "comment on table certificate_requests is 'Authenticated requests for node certificates; the issuer signs or refuses each.'",
    "comment on column certificate_requests.predecessor is 'Serial number of the renewed certificate; null: enrolment.'",
    "comment on column certificate_requests.key_sha256 is 'SHA-256 of the public key (SubjectPublicKeyInfo) to certify.'",
    "comment on column certificate_requests.csr_pem is 'The PKCS#10 request, which the issuer verifies again.'",
    "comment on column certificate_requests.request_id is 'X-Request-Id of the call that recorded it.'",
    "comment on column certificate_requests.serial is 'Serial number of the issued certificate; null: none yet.'",
    "comment on column certificate_requests.refusal is 'Why the issuer signs nothing; null: it has not refused.'",
    """create index certificate_requests_pending on certificate_requests (id)
    where serial is null and refusal is null""",
    "comment on index certificate_requests_pending is 'The issuer reads the requests to sign, oldest first.'",
)


def upgrade() -> None:
    """Add the table. Processes of the version before go on signing by themselves."""
    for statement in STATEMENTS:
        op.execute(statement)
