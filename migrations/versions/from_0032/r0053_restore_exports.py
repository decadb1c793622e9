"""What a restore lost is exported before it is closed; ends and revocations of the lost interval are replayed."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0053"
down_revision = "0052"
LOCKS = ("restores", "log_stream", "node_certificates")

_STATEMENTS = b"""
alter table restores
    add column exported_at timestamptz,
    add column export_events bigint,
    add column export_sha256 bytea,
    add column without_export text,
    add constraint restore_export check (
        (exported_at is null) = (export_events is null) and (exported_at is null) = (export_sha256 is null)
        and (export_events is null or export_events >= 0) and (export_sha256 is null or length(export_sha256) = 32)),
    add constraint restore_without_export check (without_export <> '' and (without_export is null or exported_at is null));
comment on column restores.exported_at is 'When the events of the lost interval were exported last; null: not yet.';
comment on column restores.export_events is 'How many events of the lost interval the export contains.';
comment on column restores.export_sha256 is 'The SHA-256 of the exported events.';
comment on column restores.without_export is 'Why the restore goes on without an export, by its operator.';
alter table log_stream add column skipped_to bigint not null default 0;
comment on column log_stream.skipped_to is 'The newest version that replaces skipped ones; streams begin there. 0: none.';
create table restore_replays (
    epoch      uuid not null references restores (epoch),
    kind       text not null constraint restore_replay_kind check (
        kind in ('release', 'cancel', 'api_key', 'certificates', 'adopt')),
    detail     jsonb,
    subject_id uuid not null,
    version    bigint not null constraint restore_replay_version check (version > 0),
    ended_at   timestamptz not null,
    since      timestamptz not null default clock_timestamp(),
    done_at    timestamptz,
    outcome    text,
    primary key (epoch, kind, subject_id),
    constraint restore_replay_done check ((done_at is null) = (outcome is null))
);
comment on table restore_replays is 'Ends and revocations of a lost interval, each done again once.';
comment on column restore_replays.subject_id is 'The allocation, reservation, API key, node, or event of an issuance.';
comment on column restore_replays.detail is 'Of a certificate that is to be adopted: the data of its event.';
comment on column restore_replays.version is 'The version of the first event that names it, as it was published.';
comment on column restore_replays.ended_at is 'When it was ended or revoked in the lost interval.';
comment on column restore_replays.outcome is 'What the replay did: `done`, or `noop` where it had ended already.';
create index restore_replays_left on restore_replays (kind, subject_id) where done_at is null;
comment on index restore_replays_left is 'What is still to be done; nothing is provisioned that is in it.';
create trigger certificate_noted after insert on node_certificates for each row execute function note_certificate();
"""


def upgrade() -> None:
    """Add the columns and the table. An open restore must be exported, or go on without by its operator's word."""
    connection = driver_connection(op.get_bind())
    create_functions(connection, ["note_certificate"])
    connection.execute(_STATEMENTS)
