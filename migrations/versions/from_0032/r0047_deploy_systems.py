"""Deploy systems: permissions, with the certificate of each; their tasks; what inspection found of a machine."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0047"
down_revision = "0046"

_STATEMENTS = b"""
create table deploy_systems (
    id                   uuid primary key default uuidv7(),
    node_id              uuid not null references nodes (id),
    deploy_epoch         bigint not null constraint deploy_epoch_is_positive check (deploy_epoch >= 1),
    token_hash           bytea not null constraint deploy_token_is_sha256 check (octet_length(token_hash) = 32),
    smbios_uuid          uuid not null,
    macs                 text[] not null constraint deploy_system_has_macs check (cardinality(macs) between 1 and 64),
    tpm_required         boolean not null,
    claim_id             bigint,
    certificate_seconds  integer not null
        constraint deploy_certificate_is_short check (certificate_seconds between 60 and 14400),
    permitted_at         timestamptz not null default clock_timestamp(),
    permitted_by         text not null,
    expires_at           timestamptz not null,
    ended_at             timestamptz,
    ended_by             text constraint deploy_system_end check (ended_by in ('superseded', 'revoked')),
    refusals             integer not null default 0,
    used_at              timestamptz,
    key_sha256           bytea constraint deploy_key_is_sha256 check (octet_length(key_sha256) = 32),
    csr_pem              text,
    request_id           text,
    attestation_secret   bytea,
    quote                bytea,
    quote_signature      bytea,
    refusal              text,
    serial               text,
    pem                  text,
    not_after            timestamptz,
    authority_key_sha256 bytea constraint deploy_authority_is_sha256 check (octet_length(authority_key_sha256) = 32),
    hello_at             timestamptz,
    hello                jsonb constraint deploy_hello_is_bounded check (octet_length(hello::text) <= 4096),
    constraint deploy_system_end_is_whole check (num_nulls(ended_at, ended_by) in (0, 2)),
    constraint deploy_system_use_is_whole check (num_nulls(used_at, key_sha256, csr_pem) in (0, 3)),
    constraint deploy_certificate_is_whole check (num_nulls(serial, pem, not_after, authority_key_sha256) in (0, 4)),
    constraint deploy_certificate_was_requested check (serial is null or used_at is not null and refusal is null),
    constraint deploy_quote_is_complete check (num_nulls(attestation_secret, quote, quote_signature) in (0, 3)),
    constraint deploy_hello_is_certified check (num_nulls(hello_at, hello) in (0, 2) and (hello is null or serial is not null)),
    constraint deploy_epoch_unique unique (node_id, deploy_epoch),
    constraint deploy_token_unique unique (token_hash)
);
comment on table deploy_systems is 'Permissions to start a deploy system on a machine, one for each deploy epoch of its node.';
comment on column deploy_systems.expires_at is 'The token is not accepted after it. The certificate ends at not_after.';
comment on column deploy_systems.refusals is 'How often enrolment with this token was refused; the first ones are audited.';
create unique index one_deploy_system on deploy_systems (node_id) where ended_at is null;
comment on index one_deploy_system is 'A new permission ends the one before it.';
create unique index deploy_certificate_unique on deploy_systems (serial);
comment on index deploy_certificate_unique is 'Each call of a deploy system finds its certificate.';
create index deploy_certificates_pending on deploy_systems (id)
    where used_at is not null and serial is null and refusal is null and ended_at is null;
comment on index deploy_certificates_pending is 'What the issuer has to sign.';
create table deploy_tasks (
    id           uuid primary key default uuidv7(),
    node_id      uuid not null references nodes (id),
    deploy_epoch bigint not null,
    type         text not null constraint deploy_task_type check (type in ('metal.inspect', 'metal.deploy', 'metal.wipe')),
    parameters   jsonb not null constraint deploy_parameters_are_bounded check (octet_length(parameters::text) <= 131072),
    claim_id     bigint,
    notify       text,
    seconds_max  integer not null constraint deploy_task_is_bounded check (seconds_max between 60 and 86400),
    requested_at timestamptz not null default clock_timestamp(),
    requested_by text not null,
    task_id      uuid,
    issued_at    timestamptz,
    waits_for    text,
    waits_since  timestamptz,
    waits_until  timestamptz,
    ended_at     timestamptz,
    outcome      text constraint deploy_task_outcome check (outcome in ('completed', 'failed', 'not_run')),
    failure      text constraint deploy_failure_is_bounded check (char_length(failure) <= 500),
    result       jsonb,
    constraint deploy_task_has_permission foreign key (node_id, deploy_epoch)
        references deploy_systems (node_id, deploy_epoch) on delete cascade,
    constraint deploy_task_is_whole check (num_nulls(task_id, issued_at) in (0, 2)),
    constraint deploy_task_end_is_whole check (num_nulls(ended_at, outcome) in (0, 2)),
    constraint deploy_task_failed_why check (
        (failure is not null) = (coalesce(outcome, 'completed') <> 'completed')),
    constraint deploy_task_waits check (num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(outcome)),
    constraint deploy_task_is_proven check (coalesce(outcome, '') <> 'completed' or num_nulls(task_id, result) = 0)
);
comment on table deploy_tasks is 'Tasks of deploy systems, each for one deploy epoch.';
create unique index one_deploy_task on deploy_tasks (node_id) where ended_at is null;
comment on index one_deploy_task is 'One open task for each node.';
create index deploy_tasks_by_node on deploy_tasks (node_id, id);
comment on index deploy_tasks_by_node is 'The history of a node, and the task before.';
create index deploy_tasks_by_epoch on deploy_tasks (node_id, deploy_epoch);
comment on index deploy_tasks_by_epoch is 'Tasks of a permission that is deleted.';
create table node_machines (
    node_id      uuid primary key references nodes (id),
    smbios_uuid  uuid not null,
    macs         text[] not null,
    report       jsonb not null,
    inspected_at timestamptz not null
);
comment on table node_machines is 'What the last metal.inspect found of the machine of a node.';
alter table node_tasks add column deploy_epoch bigint;
comment on column node_tasks.deploy_epoch is 'The deploy system that the task is for; null: the agent of the node.';
create unique index one_live_task_of_deploy_system on node_tasks (node_id, deploy_epoch)
    where deploy_epoch is not null and state in ('queued', 'dispatched');
comment on index one_live_task_of_deploy_system is 'One signed task for each deploy system, which it leases by this index.';
"""


def upgrade() -> None:
    """Add the tables, and a column that processes of the version before leave empty."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
