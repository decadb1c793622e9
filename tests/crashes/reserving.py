"""What goes on with reservations while a process dies. As in `plays`: with keys, again until answered."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from berth.client import ReservationRetired
from berth.client.reservation_models import Reservation
from tests.crashes.plays import new_key
from tests.crashes.stage import FIRST_AGENT, Stage
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant

HOLDER = "crash test"


def a_reservation(stage: Stage) -> Iterator[None]:
    """Hold, confirm, cancel; each twice under one key, and each happened once."""
    tenant = stage.tenant()
    yield
    made = hold(stage, tenant)
    for verb in (tenant.client.confirm_reservation, tenant.client.cancel_reservation):
        key = new_key()
        answers = [verb(made.reservation_id, holder_id=HOLDER, idempotency_key=key) for _ in range(2)]
        assert answers[0] == answers[1]
        assert answers[0].result == "ok"
    require_story(stage, made.reservation_id, "held", "confirmed", "cancelled")


def ends_by_themselves(stage: Stage) -> Iterator[None]:
    """A hold without a confirm, and a confirmed window that is not used; both are retired when it is time."""
    tenant = stage.tenant()
    yield
    held = hold(stage, tenant, ttl_seconds=1)
    require_state(stage, held, "expired")
    confirmed = hold(stage, tenant)
    tenant.client.confirm_reservation(confirmed.reservation_id, holder_id=HOLDER, idempotency_key=new_key())
    # As time would bring it about; the constraint wants a window that is not empty.
    stage.execute(
        """update reservations set starts_at = starts_at - interval '1 day', ends_at = clock_timestamp(),
           waits_until = clock_timestamp() where id = %s""",
        confirmed.reservation_id,
    )
    require_state(stage, confirmed, "released")
    require_story(stage, held.reservation_id, "held", "expired")
    require_story(stage, confirmed.reservation_id, "held", "confirmed", "released")
    ids = [held.reservation_id, confirmed.reservation_id]
    stage.execute("update reservations set retire_after = clock_timestamp() where id = any(%s)", ids)
    wait_for(lambda: stage.execute("select id from reservations where id = any(%s)", ids) == [], "they are forgotten")
    for reservation_id in ids:
        with pytest.raises(ReservationRetired):
            tenant.client.get_reservation(reservation_id)


def hold(stage: Stage, tenant: Tenant, ttl_seconds: int = 300) -> Reservation:
    """Hold a whole node, then once more with the same key: one reservation was made, and both answers name it."""
    key = new_key()
    node = stage.admin.get_node(stage.node(FIRST_AGENT).name).id
    made = [
        tenant.client.create_reservation(
            holder_id=HOLDER, resources=[f"node:{node}"], ttl_seconds=ttl_seconds, idempotency_key=key
        )
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert stage.execute("select count(*) from reservations where operation_key = %s", key) == [(1,)]
    return made[0]


def require_state(stage: Stage, made: Reservation, state: str) -> None:
    """It reaches that state without a request."""
    found = "select state from reservations where id = %s"
    wait_for(lambda: stage.execute(found, made.reservation_id) == [(state,)], f"the reservation is {state}")


def require_story(stage: Stage, reservation_id: UUID, *steps: str) -> None:
    """Exactly these events are in the log, in this order."""
    told = "select event_type from log where subject = %s order by version"
    wanted = [(f"reservation.{step}",) for step in steps]
    wait_for(lambda: stage.execute(told, f"reservations/{reservation_id}") == wanted, "its events are in the log")
