"""Reservations in every state on the busy database, written row by row: what each of the tables says when all is well.

By SQL and not by commands, so that a check and the command that it checks cannot agree on the same mistake. That commands
leave nothing else behind is what tests/model shows.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, LiteralString

import psycopg

HOLD_SECONDS = 900

_HOLD: LiteralString = """
with drawn as (select nextval('reservation_positions') as position)
insert into reservations (id, position, tenant_id, holder_id, resources, gpus_held, starts_at, ends_at, hold_until,
    expires_at, name, operation_key, operation_fingerprint, correlation_id, held_at, held_event, waits_for, waits_since,
    waits_until)
select reservation_id(0, position), position, t.id, 'h-1', array[%(resource)s], %(gpus)s,
       h.at + make_interval(hours => %(starts)s), h.at + make_interval(hours => %(ends)s), u.at, u.at, %(name)s,
       'hold ' || %(name)s, decode(repeat('00', 32), 'hex'), uuidv7(), h.at, uuidv7(), 'holder', h.at, u.at
from drawn, tenants t, (select clock_timestamp() - make_interval(hours => %(ago)s) as at) h,
     lateral (select h.at + make_interval(secs => %(seconds)s) as at) u
returning id::text, tenant_id::text, held_at::text, hold_until::text, starts_at::text, ends_at::text, held_event
"""
_CLAIM: LiteralString = """
insert into claims (node_id, resource_id, tenant_id, owner_kind, owner_id, units, during, fence)
select %(node)s, %(registered)s, tenant_id, 'reservation', id, %(units)s::int8multirange, tstzrange(starts_at, ends_at),
       nextval('fences')
from reservations where id = %(id)s::uuid returning fence
"""
_OPERATION: LiteralString = """
insert into operations (scope, key, fingerprint, status, code, body, subject_id, retire_after)
select tenant_id, operation_key, operation_fingerprint, 201, 'ok', '{}', id, clock_timestamp() + interval '1 day'
from reservations where id = %s::uuid
"""
_EVENT: LiteralString = """
insert into outbox (event_id, event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, payload)
select %(event)s, %(type)s, %(at)s::timestamptz, correlation_id, tenant_id, 'reservations/' || id, %(key)s,
       %(payload)s::jsonb
from reservations where id = %(id)s::uuid
"""
_CONFIRM: LiteralString = """
update reservations set state = 'confirmed', row_version = row_version + 1, expires_at = null,
       confirmed_at = held_at + interval '1 second', waits_for = 'window', waits_since = held_at + interval '1 second',
       waits_until = ends_at
where id = %s::uuid returning confirmed_at::text
"""
_END: LiteralString = """
with ended as (
    update reservations set state = %(state)s, row_version = row_version + 1, ended_at = %(at)s::timestamptz,
           expires_at = null, ended_event = %(event)s, retire_after = %(at)s::timestamptz + interval '7 days',
           waits_for = null, waits_since = null, waits_until = null
    where id = %(id)s::uuid returning id
)
update claims set booked = false, closed_at = %(at)s::timestamptz, fence = nextval('fences')
from ended where owner_id = ended.id
"""


class Written:
    """One reservation, written step by step as the commands would have."""

    def __init__(
        self, connection: psycopg.Connection[Any], name: str, resource: str, units: tuple[int, int],
        node: uuid.UUID | None, *, ago: int = 0, starts: int = 0, ends: int | None = None,
    ) -> None:  # fmt: skip
        self._connection = connection
        gpus = 0 if node is None else units[1] - units[0]
        values = {"name": name, "resource": resource, "gpus": gpus, "ago": ago, "starts": starts, "ends": ends}
        row = connection.execute(_HOLD, {**values, "seconds": HOLD_SECONDS}).fetchone()
        assert row is not None
        self.id, tenant, self._held_at, self._hold_until, starts_at, ends_at, event = row
        claim = {"id": self.id, "node": node, "registered": resource if node is None else None}
        fence = connection.execute(_CLAIM, {**claim, "units": f"{{[{units[0]},{units[1]})}}"}).fetchone()
        connection.execute(_OPERATION, (self.id,))
        connection.execute(
            "update tenant_quotas set gpus_used = gpus_used + %s where tenant_id = %s::uuid", (gpus, tenant)
        )
        told = {"node_id": node, "resource_id": claim["registered"], "units": [units], "fence": fence}
        self._tell(
            event, "held", self._held_at, key=f"hold {name}", claims=[told], starts_at=starts_at, ends_at=ends_at,
            hold_until=self._hold_until,
        )  # fmt: skip
        self._gpus = gpus

    def confirm(self) -> Written:
        """A second after it was held."""
        row = self._connection.execute(_CONFIRM, (self.id,)).fetchone()
        assert row is not None
        self._tell(uuid.uuid4(), "confirmed", row[0])
        return self

    def end(self, state: str, at: str) -> None:
        """At an instant, given as SQL in terms of its row."""
        row = self._connection.execute(
            f"select ({at})::text from reservations where id = '{self.id}'".encode()
        ).fetchone()
        assert row is not None
        event = uuid.uuid4()
        self._connection.execute(_END, {"id": self.id, "state": state, "at": row[0], "event": event})
        self._connection.execute("update tenant_quotas set gpus_used = gpus_used - %s", (self._gpus,))
        self._tell(event, state, row[0])

    def _tell(self, event: uuid.UUID, type_: str, at: str, key: str | None = None, **more: Any) -> None:
        payload = {"reservation_id": self.id, "holder_id": "h-1", "judged_at": at, **more}
        self._connection.execute(
            _EVENT,
            {
                "event": event, "type": f"reservation.{type_}", "at": at, "key": key, "id": self.id,
                "payload": json.dumps(payload, default=str),
            },
        )  # fmt: skip


def make_reserved(connection: psycopg.Connection[Any], node: uuid.UUID, base: int) -> None:
    """One of each: retired, expired, cancelled, released, and alive `held`, `window`, `seat`, each by its name.

    `base` is the node's first unit; slots 4 and 5 are used.
    """

    def slot(index: int) -> tuple[str, tuple[int, int], uuid.UUID]:
        return f"slot:{node}:{index}", (base + index, base + index + 1), node

    Written(connection, "gone", *slot(5), ago=9).end("expired", "hold_until + interval '1 second'")
    connection.execute("delete from reservations")
    connection.execute("update reservation_watermark set position = (select last_value from reservation_positions)")
    Written(connection, "late", *slot(5), ago=6).end("expired", "hold_until + interval '1 second'")
    Written(connection, "given_up", *slot(5), ago=4).confirm().end("cancelled", "held_at + interval '1 minute'")
    Written(connection, "unused", *slot(5), ago=3, ends=1).confirm().end("released", "ends_at + interval '1 second'")
    Written(connection, "held", *slot(4))
    Written(connection, "window", *slot(5), starts=24, ends=48).confirm()
    Written(connection, "after_window", *slot(5), starts=48)
    connection.execute("select setval('unit_numbers', (select max(unit) from slots))")
    row = connection.execute("insert into resources (id) values ('seat-21A') returning unit").fetchone()
    assert row is not None
    Written(connection, "seat", "seat-21A", (row[0], row[0] + 1), None)
    connection.execute("select refresh_node_fit(%s)", (node,))
