"""Where each piece of hardware is, by its serial number, what happened to it, and its repairs."""

from __future__ import annotations

from alembic import op

from migrations.functions.loader import create_functions
from migrations.upgrading import driver_connection

revision = "0034"
down_revision = "0033"

_STATEMENTS = b"""
create table hardware_places (
    serial          text not null,
    node_id         uuid not null references nodes (id),
    kind            text not null,
    model           text,
    slots           smallint[] not null,
    positions       text[] not null,
    since           timestamptz not null default clock_timestamp(),
    missing_since   timestamptz,
    contested_since timestamptz,
    primary key (serial, node_id),
    constraint hardware_kind_is_known check (kind in ('gpu', 'disk')),
    constraint hardware_place_is_bounded check (serial ~ '^[A-Za-z0-9][A-Za-z0-9._:-]{3,63}$' and char_length(model) <= 64
        and cardinality(slots) <= 64 and cardinality(positions) between 1 and 64),
    constraint missing_is_not_contested check (num_nonnulls(missing_since, contested_since) < 2)
);
comment on table hardware_places is 'The node and slots of each GPU and disk, by serial number, as the nodes report them.';
comment on column hardware_places.slots is 'Slots that this GPU is; a board of several GPUs has several, a disk none.';
comment on column hardware_places.positions is 'PCI addresses of a GPU, names of a disk.';
comment on column hardware_places.missing_since is 'The node no longer reports it, and no other node does; null: it is there.';
comment on column hardware_places.contested_since is 'Another node reports the same serial number; null: none does.';
create index hardware_places_by_node on hardware_places (node_id, serial);
comment on index hardware_places_by_node is 'The hardware of a node: compared with what it reports, and listed.';
create index hardware_places_by_kind on hardware_places (kind, serial, node_id);
comment on index hardware_places_by_kind is 'The list of the disks, or of the GPUs.';
create index hardware_contested on hardware_places (serial, node_id) where contested_since is not null;
comment on index hardware_contested is 'Serial numbers that several nodes report, listed and counted.';
create index hardware_missing on hardware_places (serial, node_id) where missing_since is not null;
comment on index hardware_missing is 'Hardware that no node reports any more, listed and counted.';
create table hardware_history (
    id          uuid primary key default uuidv7(),
    serial      text not null,
    kind        text not null,
    happened    text not null,
    node_id     uuid references nodes (id),
    slots       smallint[] not null,
    happened_at timestamptz not null default clock_timestamp(),
    actor       text not null,
    detail      text not null,
    evidence    text,
    reference   uuid,
    contested   boolean not null default false,
    constraint hardware_event_is_known check (happened in ('seen', 'moved', 'missing', 'contested', 'fault_found',
        'fault_reported', 'quarantined', 'returned', 'repair_opened', 'repair_closed')),
    constraint hardware_event_is_bounded check (char_length(detail) <= 1000 and char_length(evidence) <= 4000)
);
comment on table hardware_history is 'What happened to each GPU and disk, by serial number. Rows never change.';
comment on column hardware_history.node_id is 'Where it was then; null: not known.';
comment on column hardware_history.actor is 'Kind and id of the actor, with a colon between them.';
comment on column hardware_history.reference is 'The quarantine, fault report or repair.';
comment on column hardware_history.contested is 'Another node reported the same serial number at that time.';
create index hardware_history_by_serial on hardware_history (serial, id);
comment on index hardware_history_by_serial is 'The history of a serial number, the newest first.';
create index hardware_history_by_node on hardware_history (node_id, happened_at)
    where actor in ('worker:discovery', 'worker:probe');
comment on index hardware_history_by_node is 'How much a node has caused lately, which is bounded.';
create index hardware_history_by_time on hardware_history (happened_at);
comment on index hardware_history_by_time is 'The sweep of entries past their retention.';
create table hardware_repairs (
    id        uuid primary key default uuidv7(),
    serial    text not null,
    kind      text not null,
    reason    text not null,
    opened_at timestamptz not null default clock_timestamp(),
    opened_by text not null,
    closed_at timestamptz,
    closed_by text,
    result    text,
    constraint repair_end_is_whole check (num_nulls(closed_at, closed_by, result) in (0, 3))
);
comment on table hardware_repairs is 'Repairs of GPUs and disks, by serial number; open until closed_at.';
create unique index one_repair on hardware_repairs (serial) where closed_at is null;
comment on index one_repair is 'Refuse a second open repair of a serial number.';
create index repairs_by_serial on hardware_repairs (serial, id);
comment on index repairs_by_serial is 'The repairs of a serial number.';
create index repairs_open on hardware_repairs (id) where closed_at is null;
comment on index repairs_open is 'The list and the number of open repairs.';
create index repairs_closed on hardware_repairs (closed_at) where closed_at is not null;
comment on index repairs_closed is 'The sweep of repairs past their retention.';
"""

_TRIGGERS = b"""
create trigger hardware_history_never_changes before update on hardware_history for each row execute function refuse_change();
create trigger hardware_history_is_never_emptied before truncate on hardware_history
    for each statement execute function refuse_change();
create trigger quarantines_are_noted after insert or update of returned_at on slot_quarantines
    for each row execute function note_quarantine();
create trigger fault_reports_are_noted after insert on fault_reports for each row execute function note_fault_report();
"""


def upgrade() -> None:
    """Add the tables and the triggers, so that processes of the version before write history too."""
    connection = driver_connection(op.get_bind())
    connection.execute(_STATEMENTS)
    create_functions(connection, ["note_quarantine", "note_fault_report"])
    connection.execute(_TRIGGERS)
