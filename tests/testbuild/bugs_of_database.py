"""Bugs planted into the database."""

from __future__ import annotations

from tests.testbuild.bugs_of_accounts import ACCOUNT_SQL
from tests.testbuild.bugs_of_fleet import SQL_OF_FLEET
from tests.testbuild.planting import rewritten_function

_NO_NODE_LOCK = rewritten_function(
    "lock_best_node",
    ("limit 1 for no key update skip locked", "limit 1"),
    ("limit 1)\n        for no key update", "limit 1)"),
)
_NO_RIGHT = "alter table claims drop constraint one_right;"
_NO_OCCUPANT = "alter table claims drop constraint one_occupant;"

# What ends the right ends the occupation with it, and the node shows the units free at once.
_CLEANUP_NOT_AWAITED = """
create function planted_close() returns trigger language plpgsql as $$
begin
    new.occupied := false;
    new.occupied_until := clock_timestamp();
    new.closed_at := clock_timestamp();
    return new;
end $$;
create trigger planted_close before update on claims
    for each row when (old.booked and not new.booked and new.occupied) execute function planted_close();
create function planted_fit() returns trigger language plpgsql as $$
begin
    perform refresh_node_fit(new.node_id);
    return null;
end $$;
create trigger planted_fit after update on claims
    for each row when (old.booked and not new.booked) execute function planted_fit();
"""

DATABASE_SQL: dict[str, str] = {
    **SQL_OF_FLEET,
    "no_claim_constraints": _NO_RIGHT + _NO_OCCUPANT + _NO_NODE_LOCK,
    "no_right_constraint": _NO_RIGHT,
    "no_occupant_constraint": _NO_OCCUPANT,
    "no_node_lock": _NO_NODE_LOCK,
    "deadline_before_lock": rewritten_function("confirm_reservations", ("stamp := clock_timestamp()", "stamp := now()"))
    + rewritten_function(
        "lock_reservation",
        ("r.correlation_id, clock_timestamp(), exists", "r.correlation_id, now(), exists"),
    ),
    "cleanup_not_awaited": _CLEANUP_NOT_AWAITED,
    "versions_by_transaction_id": rewritten_function(
        "log_advance",
        ("select * from outbox order", "select *, xmin::text::bigint as xid from outbox order"),
        ("row_number() over (order by id)", "row_number() over (order by xid, id)"),
    ),
    "versions_from_outbox_ids": rewritten_function(
        "log_advance",
        ("head.version + row_number() over (order by id) as version", "id as version"),
        ("version = head.version + moved", "version = (select max(version) from log)"),
    ),
    **ACCOUNT_SQL,
}
