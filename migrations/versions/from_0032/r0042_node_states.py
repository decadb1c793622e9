"""States of nodes: the legal transitions, what reads of the shown state need, drains with a deadline, and nodes without slots."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0042"
down_revision = "0041"

_STATEMENTS = b"""
create index enrolment_tokens_open on enrolment_tokens (node_id) where used_at is null;
comment on index enrolment_tokens_open is 'Whether a registered node is being enrolled.';
create trigger node_transitions before update of state on nodes
    for each row when (old.state is distinct from new.state) execute function refuse_illegal_node_state();
comment on trigger node_transitions on nodes is 'The stored states; what is shown beside them is derived.';
alter domain node_slots drop constraint node_slots_check;
alter domain node_slots add constraint node_slots_check check (value between 0 and 62);
alter table nodes add constraint half_of_slots check ((half_slots = 0) = (slot_count = 0)) not valid;
alter table nodes validate constraint half_of_slots;
comment on column nodes.slot_count is '0: its slots follow from its topology, which is not approved yet.';
create index nodes_without_slots on nodes (id) where slot_count = 0;
comment on index nodes_without_slots is 'The list of discovered nodes.';
create table node_drains (
    node_id     uuid primary key references nodes (id),
    begun_at    timestamptz not null default clock_timestamp(),
    begun_by    text not null,
    reason      text constraint drain_reason_is_bounded check (char_length(reason) between 1 and 500),
    deadline    timestamptz constraint drain_deadline_is_finite check (isfinite(deadline)),
    at_deadline text not null default 'stay' constraint drain_at_deadline check (at_deadline in ('stay', 'release')),
    overdue_at  timestamptz,
    drained_at  timestamptz,
    waits_for   text,
    waits_since timestamptz,
    waits_until timestamptz,
    constraint drain_without_deadline_is_plain check (
        deadline is not null or overdue_at is null and at_deadline = 'stay'),
    constraint drain_waits_for_claims check (
        case when drained_at is null then waits_for is not distinct from 'claims' and waits_since is not null
                                          and waits_until is not distinct from case when overdue_at is null then deadline end
             else num_nonnulls(waits_for, waits_since, waits_until) = 0 end)
);
comment on table node_drains is 'Drains of the nodes that are draining; none of those that an earlier version of Berth drained.';
comment on column node_drains.at_deadline is 'What happens to the allocations on the node at the deadline.';
comment on column node_drains.overdue_at is 'When it was announced that the deadline is over.';
comment on column node_drains.drained_at is 'When the last claim on the node had ended.';
comment on column node_drains.waits_until is 'The deadline, until it is announced.';
create trigger drain_forgotten after update of state on nodes
    for each row when (old.state = 'draining' and new.state <> 'draining') execute function forget_drain();
comment on trigger drain_forgotten on nodes is 'Also for processes of the version before, which know no drains.';
create index drains_open on node_drains (waits_until, node_id) where drained_at is null;
comment on index drains_open is 'The sweeper announces those that are over.';
"""


def upgrade() -> None:
    """Add the triggers, the indexes and the table. Processes of the version before make the same transitions."""
    connection = driver_connection(op.get_bind())
    create_functions(connection, ["refuse_illegal_node_state", "forget_drain"])
    connection.execute(_STATEMENTS)
