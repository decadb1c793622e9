"""Maintenance windows of operators: claims without a tenant, in the same table under the same constraints."""

from __future__ import annotations

from alembic import op

from migrations.functions import create_functions
from migrations.upgrading import driver_connection

revision = "0026"
down_revision = "0025"

_STATEMENTS = b"""
alter domain claim_owner_kind drop constraint claim_owner_kind_check;
alter domain claim_owner_kind add constraint claim_owner_kind_check
    check (value in ('allocation', 'reservation', 'maintenance'));
alter table claims alter column tenant_id drop not null,
    add constraint claim_has_tenant check ((tenant_id is null) = (owner_kind = 'maintenance'));
comment on column claims.tenant_id is 'Null: a maintenance window holds the claim.';
comment on column claims.owner_id is 'Id of the allocation, reservation or maintenance window.';
create table maintenance_windows (
    id          uuid primary key default uuidv7(),
    starts_at   timestamptz not null,
    ends_at     timestamptz not null,
    reason      text not null constraint maintenance_reason_is_bounded check (char_length(reason) between 1 and 500),
    state       text not null default 'scheduled' constraint maintenance_window_state
        check (state in ('scheduled', 'active', 'ended', 'cancelled')),
    created_at  timestamptz not null default clock_timestamp(),
    started_at  timestamptz,
    ended_at    timestamptz,
    waits_for   text,
    waits_since timestamptz,
    waits_until timestamptz,
    constraint maintenance_window_is_finite check (starts_at < ends_at and isfinite(starts_at) and isfinite(ends_at)),
    constraint maintenance_started check (case when state = 'cancelled' then started_at is null
        else (started_at is null) = (state = 'scheduled') end),
    constraint maintenance_waits_while_open check (
        case when state = 'scheduled' then waits_for = 'start' and waits_since is not null and waits_until = starts_at
                                           and ended_at is null
             when state = 'active' then waits_for = 'end' and waits_since is not null and waits_until = ends_at
                                        and ended_at is null
             else waits_for is null and waits_since is null and waits_until is null and ended_at is not null end)
);
comment on table maintenance_windows is 'Times in which operators work on nodes or slots; each holds claims on its units.';
comment on column maintenance_windows.waits_until is 'When the sweeper maintenance starts or ends it.';
create index maintenance_windows_due on maintenance_windows (waits_until, id) where waits_until is not null;
comment on index maintenance_windows_due is 'The sweeper reads those whose time has come, the earliest first.';
create index maintenance_windows_over on maintenance_windows (ended_at, id) where ended_at is not null;
comment on index maintenance_windows_over is 'The sweeper deletes those past their retention, the earliest first.';
create table maintenance_units (
    window_id uuid not null references maintenance_windows (id),
    node_id   uuid not null,
    units     int8multirange not null constraint maintenance_units_not_empty check (not isempty(units)),
    planned   int8multirange not null default '{}' constraint maintenance_planned_is_part check (units @> planned),
    primary key (window_id, node_id)
);
comment on table maintenance_units is 'The units of a maintenance window on each of its nodes.';
comment on column maintenance_units.planned is 'Units that an allocation holds in the window, claimed when its claim ends.';
create index maintenance_planned on maintenance_units (node_id) where not isempty(planned);
comment on index maintenance_planned is 'Windows that wait for units of a node (claim_freed_units).';
"""

_TRIGGER = b"""
create constraint trigger claim_freed after update of booked on claims deferrable initially deferred for each row
    when (old.booked and not new.booked and new.node_id is not null and new.owner_kind = 'allocation')
    execute function claim_freed_units();
comment on trigger claim_freed on claims is 'Deferred: a successor of the claim comes first, and keeps its part of the time.';
"""


def upgrade() -> None:
    """Add tables, and claims without a tenant. Processes of the version before leave their units alone."""
    connection = driver_connection(op.get_bind())
    connection.execute(_STATEMENTS)
    create_functions(connection, ["claim_freed_units"])
    connection.execute(_TRIGGER)
