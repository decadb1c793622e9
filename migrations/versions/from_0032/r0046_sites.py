"""Sites, their agents, and the BMCs of machines with sealed credentials."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0046"
down_revision = "0045"

_STATEMENTS = b"""
create table sites (
    id           uuid primary key default uuidv7(),
    name         text not null constraint site_name check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    recovery_key bytea not null constraint recovery_key_is_x25519 check (octet_length(recovery_key) = 32),
    created_at   timestamptz not null default clock_timestamp(),
    lease_fence  bigint not null default 0,
    lease_agent  uuid,
    lease_run    uuid,
    lease_until  timestamptz,
    constraint site_name_unique unique (name),
    constraint site_lease_is_whole check (num_nulls(lease_agent, lease_run, lease_until) in (0, 3))
);
comment on table sites is 'Places whose machines are reached by agents on management hosts; one agent at a time holds the lease.';
comment on column sites.recovery_key is 'X25519 public key whose private half is offline: each password is sealed to it.';
comment on column sites.lease_fence is 'Raised each time the lease changes hands; results with an older one are refused.';
comment on column sites.lease_run is 'The process of the agent that holds the lease: a copy of the agent is another process.';

create table site_agents (
    id                   uuid primary key default uuidv7(),
    site_id              uuid not null references sites (id),
    name                 text not null constraint site_agent_name check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    state                text not null default 'registered'
        constraint site_agent_state check (state in ('registered', 'active', 'retired')),
    epoch                bigint not null default 0,
    hardware_id          text,
    enrolled_at          timestamptz,
    identity_conflict_at timestamptz,
    sealing_key          bytea constraint sealing_key_is_x25519 check (octet_length(sealing_key) = 32),
    sealing_key_epoch    bigint,
    agent_version        text constraint site_agent_version_is_bounded check (char_length(agent_version) <= 64),
    last_seen_at         timestamptz,
    created_at           timestamptz not null default clock_timestamp(),
    row_version          bigint not null default 1,
    constraint site_agent_name_unique unique (site_id, name),
    constraint sealing_key_has_epoch check ((sealing_key is null) = (sealing_key_epoch is null))
);
comment on table site_agents is 'Agents of sites, each with an identity like that of a node; `retired` means revoked.';
comment on column site_agents.sealing_key is 'X25519 public key to which passwords are sealed; another needs another enrolment.';

create table site_agent_tokens (
    id          uuid primary key default uuidv7(),
    agent_id    uuid not null references site_agents (id),
    token_hash  bytea not null constraint site_agent_token_is_sha256 check (octet_length(token_hash) = 32),
    hardware_id text,
    created_by  uuid not null,
    created_at  timestamptz not null default clock_timestamp(),
    expires_at  timestamptz not null,
    used_at     timestamptz,
    constraint site_agent_token_unique unique (token_hash)
);
comment on table site_agent_tokens is 'One-time tokens with which agents of sites enrol.';
create index site_agent_tokens_by_agent on site_agent_tokens (agent_id);
comment on index site_agent_tokens_by_agent is 'Those that ended long ago are deleted.';

create table site_agent_certificates (
    serial               text primary key,
    agent_id             uuid not null references site_agents (id),
    agent_epoch          bigint not null,
    key_sha256           bytea not null constraint site_agent_key_is_sha256 check (octet_length(key_sha256) = 32),
    not_before           timestamptz not null,
    not_after            timestamptz not null,
    issued_at            timestamptz not null default clock_timestamp(),
    revoked_at           timestamptz,
    revoked_reason       text,
    predecessor          text,
    pem                  text,
    authority_key_sha256 bytea constraint site_agent_authority_is_sha256 check (octet_length(authority_key_sha256) = 32)
);
comment on table site_agent_certificates is 'Certificates of agents of sites, and their chains, as those of nodes.';
create index site_agent_certificates_by_agent on site_agent_certificates (agent_id);
comment on index site_agent_certificates_by_agent is 'Revocation.';
create unique index one_successor_of_agent on site_agent_certificates (predecessor) where predecessor is not null;
comment on index one_successor_of_agent is 'A chain of certificates never forks.';

create table site_agent_certificate_requests (
    id           uuid primary key default uuidv7(),
    agent_id     uuid not null references site_agents (id),
    agent_epoch  bigint not null,
    predecessor  text,
    key_sha256   bytea not null constraint site_agent_request_key_is_sha256 check (octet_length(key_sha256) = 32),
    csr_pem      text not null,
    request_id   text,
    requested_at timestamptz not null default clock_timestamp(),
    serial       text,
    refusal      text,
    constraint site_agent_issued_or_refused check (serial is null or refusal is null),
    constraint one_request_for_a_link_of_agent unique nulls not distinct (agent_id, agent_epoch, predecessor)
);
comment on table site_agent_certificate_requests is 'Signing requests of agents of sites, which the issuer decides once each.';
create index site_agent_requests_pending on site_agent_certificate_requests (id) where serial is null and refusal is null;
comment on index site_agent_requests_pending is 'Requests for the issuer; nearly empty.';

create table node_bmcs (
    node_id            uuid primary key references nodes (id),
    site_id            uuid not null references sites (id),
    url                text not null constraint bmc_url check (url ~ '^https://[^/?#@[:space:]]{1,255}$'),
    certificate_sha256 bytea not null constraint bmc_certificate_is_sha256 check (octet_length(certificate_sha256) = 32),
    username           text not null constraint bmc_username check (username ~ '^[!-~]{1,64}$'),
    system_id          text constraint bmc_system_id check (system_id ~ '^[!-~]{1,128}$'),
    generation         bigint not null constraint bmc_generation_is_positive check (generation > 0),
    pending_generation bigint,
    changed_at         timestamptz not null default clock_timestamp(),
    changed_by         text not null,
    power_state        text,
    inventory          jsonb,
    looked_at          timestamptz,
    row_version        bigint not null default 1,
    constraint bmc_pending_is_next check (pending_generation > generation),
    constraint bmc_look_is_whole check (num_nulls(power_state, inventory, looked_at) in (0, 3))
);
comment on table node_bmcs is 'How the agents of a site reach the BMC of a node, and what they read there last.';
comment on column node_bmcs.certificate_sha256 is 'The only TLS certificate that is trusted; an operator alone changes it.';
comment on column node_bmcs.generation is 'Generation of the password that the BMC accepts, as far as is known.';
comment on column node_bmcs.pending_generation is 'A newer password that the BMC may have received: both are tried.';
create index bmcs_by_site on node_bmcs (site_id, node_id);
comment on index bmcs_by_site is 'Machines of a site.';

create table bmc_credentials (
    node_id    uuid not null references node_bmcs (node_id),
    generation bigint not null,
    recipient  uuid not null,
    sealed     text not null constraint sealed_is_bounded check (char_length(sealed) between 1 and 1024),
    primary key (node_id, generation, recipient)
);
comment on table bmc_credentials is 'Sealed passwords of BMCs: no process of the control plane can open one.';
comment on column bmc_credentials.recipient is 'An agent of the site, or the site itself: its recovery key.';
create index bmc_credentials_by_recipient on bmc_credentials (recipient);
comment on index bmc_credentials_by_recipient is 'What was sealed to an agent that is revoked, or has another key.';

create table bmc_tasks (
    id             uuid primary key default gen_random_uuid(),
    node_id        uuid not null references node_bmcs (node_id),
    site_id        uuid not null,
    kind           text not null constraint bmc_task_kind check (kind in ('look', 'rotate', 'reseal')),
    requested_at   timestamptz not null default clock_timestamp(),
    requested_by   text not null,
    fence          bigint,
    envelope       jsonb,
    issued_at      timestamptz,
    dispatched_at  timestamptz,
    dispatch_count integer not null default 0,
    lease_fence    bigint,
    waits_for      text,
    waits_since    timestamptz,
    waits_until    timestamptz,
    ended_at       timestamptz,
    outcome        text constraint bmc_task_outcome check (outcome in ('completed', 'failed', 'unknown')),
    failure        text constraint bmc_task_failure_is_bounded check (char_length(failure) <= 500),
    constraint bmc_task_issued_is_whole check (num_nulls(fence, envelope, issued_at) in (0, 3)),
    constraint bmc_task_dispatched_is_whole check (num_nulls(dispatched_at, lease_fence) in (0, 2)),
    constraint bmc_task_dispatched_was_issued check (dispatched_at is null or issued_at is not null),
    constraint bmc_task_end_is_whole check (num_nulls(ended_at, outcome) in (0, 2)),
    constraint bmc_task_waits check (num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(outcome)),
    constraint bmc_task_failed_why check ((failure is null) = (outcome is null or outcome = 'completed'))
) with (fillfactor = 70);
comment on table bmc_tasks is 'Tasks of sites about the BMCs of machines: the newest of each, and the one before it.';
comment on column bmc_tasks.lease_fence is 'The lease of the site under which the task was handed out last.';
comment on column bmc_tasks.outcome is '`unknown`: handed out, and no agent reported an end in time.';
create unique index one_bmc_task on bmc_tasks (node_id) where ended_at is null;
comment on index one_bmc_task is 'One open task for each machine.';
create index bmc_tasks_by_node on bmc_tasks (node_id, requested_at);
comment on index bmc_tasks_by_node is 'The newest task of a machine.';
create index bmc_tasks_issued on bmc_tasks (site_id, issued_at, id) where ended_at is null and issued_at is not null;
comment on index bmc_tasks_issued is 'What an agent of a site leases.';
create index bmc_tasks_open on bmc_tasks (waits_until, id) where ended_at is null;
comment on index bmc_tasks_open is 'Tasks whose wait is over.';
create index bmc_tasks_requested on bmc_tasks (requested_at, id) where ended_at is null and issued_at is null;
comment on index bmc_tasks_requested is 'Tasks that the worker signs.';
"""


def upgrade() -> None:
    """Add the tables. Processes of the version before do not use them."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
