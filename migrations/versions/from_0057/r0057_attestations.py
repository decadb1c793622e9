"""Attestations on demand, which an agent or a deploy system answers, and the PCRs that are accepted."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0057"
down_revision = "0056"
LOCKS = ("nodes", "deploy_runs", "deploy_tasks", "slot_quarantines")

_STATEMENTS = b"""
create table node_attestations (
    id            uuid primary key default uuidv7(),
    node_id       uuid not null references nodes (id),
    nonce         bytea not null constraint attestation_nonce_has_32_bytes check (octet_length(nonce) = 32),
    requested_at  timestamptz not null default clock_timestamp(),
    requested_by  text not null,
    task_id       uuid,
    issued_at     timestamptz,
    deploy_run_id uuid,
    waits_for     text,
    waits_since   timestamptz,
    waits_until   timestamptz,
    ended_at      timestamptz,
    verdict       text constraint attestation_verdict check (verdict in ('passed', 'failed')),
    code          text constraint attestation_code_is_bounded check (char_length(code) between 1 and 64),
    detail        text not null default ''
        constraint attestation_detail_is_bounded check (char_length(detail) <= 500),
    pcrs          text[] constraint attestation_pcrs_are_eight check (cardinality(pcrs) = 8),
    compared      text[] not null default '{}'
        constraint attestation_compared check (compared <@ array['pcrs', 'inspection', 'firmware_list']),
    evidence      jsonb constraint attestation_evidence_is_bounded check (octet_length(evidence::text) <= 131072),
    constraint attestation_task_is_whole check (num_nulls(task_id, issued_at) in (0, 2)),
    constraint attestation_has_one_answerer check (num_nulls(task_id, deploy_run_id) > 0),
    constraint attestation_end_is_whole check (num_nulls(ended_at, verdict) in (0, 2)),
    constraint attestation_waits check (num_nulls(waits_for, waits_since, waits_until) = 3 * num_nonnulls(verdict)),
    constraint attestation_failure_has_code check (coalesce(verdict = 'failed', false) = (code is not null)),
    constraint attestation_is_proven check (verdict <> 'passed' or num_nulls(pcrs, evidence) = 0)
);
comment on table node_attestations is 'Attestations on demand; the last ones of each node.';
comment on column node_attestations.nonce is 'What the quote must name; used once.';
comment on column node_attestations.deploy_run_id is 'The run whose deploy system answers; null: the agent of the node does.';
comment on column node_attestations.pcrs is 'PCRs 0 to 7 of SHA-256 in hex, that the bound key has signed for the nonce.';
comment on column node_attestations.compared is 'What the answer was compared with.';
create unique index one_attestation on node_attestations (node_id) where ended_at is null;
comment on index one_attestation is 'One open attestation for each node, and those that wait for the sweeper.';
create index attestations_by_node on node_attestations (node_id, id);
comment on index attestations_by_node is 'The history of a node.';
create table node_accepted_pcrs (
    node_id        uuid primary key references nodes (id),
    pcrs           text[] not null constraint accepted_pcrs_are_eight check (cardinality(pcrs) = 8),
    attestation_id uuid not null,
    accepted_at    timestamptz not null default clock_timestamp(),
    accepted_by    text not null
);
comment on table node_accepted_pcrs is 'The PCRs that attestations of a node are compared with, as an operator accepted them.';
comment on column node_accepted_pcrs.attestation_id is 'The attestation that has read them.';
alter table deploy_runs drop constraint deploy_run_kind,
    add constraint deploy_run_kind
        check (kind in ('inspect', 'wipe', 'deploy', 'stop', 'start', 'reboot', 'rescue', 'attest'));
alter table deploy_tasks drop constraint deploy_task_type,
    add constraint deploy_task_type
        check (type in ('metal.inspect', 'metal.deploy', 'metal.wipe', 'metal.rescue', 'metal.attest'));
alter table slot_quarantines drop constraint quarantine_source,
    add constraint quarantine_source check (source in ('operator', 'probe', 'fault_report', 'release', 'attestation'));
"""


def upgrade() -> None:
    """Add what processes of the version before do not use; they leave a run of a kind that they do not know alone."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
