"""Quarantines of slots: slots that an operator takes out of service, with their history."""

from __future__ import annotations

from alembic import op

from migrations.upgrading import driver_connection

revision = "0031"
down_revision = "0030"

_STATEMENTS = b"""
create table slot_quarantines (
    id              uuid primary key default uuidv7(),
    node_id         uuid not null references nodes(id),
    slot_index      smallint not null,
    unit            bigint not null,
    reason          text not null,
    evidence        text,
    quarantined_at  timestamptz not null default clock_timestamp(),
    quarantined_by  text not null,
    returned_at     timestamptz,
    returned_by     text,
    note            text,
    constraint return_is_whole check (num_nulls(returned_at, returned_by, note) in (0, 3))
);
comment on table slot_quarantines is 'Times during which an operator kept a slot out of service.';
comment on column slot_quarantines.unit is 'Number of the slot, which names it also after its node was retired.';
comment on column slot_quarantines.evidence is 'What shows the fault: text of a probe or a log.';
comment on column slot_quarantines.quarantined_by is 'Kind and id of the actor, with a colon between them.';
comment on column slot_quarantines.note is 'What was done before the return.';
create unique index one_quarantine on slot_quarantines (unit) where returned_at is null;
comment on index one_quarantine is 'Refuse a second quarantine of a slot; the reason of a slot out of service reads it.';
create index quarantines_by_node on slot_quarantines (node_id, id);
comment on index quarantines_by_node is 'The list of a node''s quarantines.';
"""


def upgrade() -> None:
    """Add the table. Processes of the version before do not use it."""
    driver_connection(op.get_bind()).execute(_STATEMENTS)
