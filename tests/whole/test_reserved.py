"""A reservation's way through every component: it starts by itself, ends at its end, and the next one follows the proof."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from berth.client import Allocation
from berth.client.reservation_models import Reservation
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant, Whole

HOLDER = "whole"
WINDOW_SECONDS = 10


def reserve(tenant: Tenant, starts_at: datetime | None, ends_at: datetime) -> Reservation:
    """All of a region's slices, confirmed; they start by themselves."""
    held = tenant.client.create_reservation(
        holder_id=HOLDER, sku="h100.slice", gpus=8, region="us-1", starts_at=starts_at, ends_at=ends_at,
        allocation={"ssh_key_ids": [str(tenant.ssh_key_id)], "name": "by itself"},
    )  # fmt: skip
    return tenant.client.confirm_reservation(held.reservation_id, holder_id=HOLDER)


def started(whole: Whole, tenant: Tenant, reservation_id: UUID) -> Allocation:
    """The allocation that the reservation becomes."""
    wait_for(lambda: tenant.client.get_reservation(reservation_id).status == "consumed", "it starts by itself")
    (found,) = [one for one in tenant.client.iterate_allocations() if one.reservation_id == reservation_id]
    return found


@pytest.mark.full
@pytest.mark.timeout(300)
def test_back_to_back_reservations_start_and_end_by_themselves(whole: Whole, tenant: Tenant) -> None:
    change = datetime.now(UTC) + timedelta(seconds=WINDOW_SECONDS)
    first = reserve(tenant, None, change)
    second = reserve(tenant, change, change + timedelta(seconds=WINDOW_SECONDS))
    ran = started(whole, tenant, first.reservation_id)
    assert (ran.name, ran.ends_at) == ("by itself", change)
    assert tenant.wait(ran, "active").slots == list(range(8))
    next_ = started(whole, tenant, second.reservation_id)
    over = tenant.wait(ran, "released")
    active = tenant.wait(next_, "active")
    assert over.releasing_at is not None
    assert over.released_at is not None
    assert change <= over.releasing_at <= over.released_at
    notes = {entry.code: entry.at for entry in tenant.client.iterate_timeline(next_.allocation_id) if entry.code}
    assert active.requested_at < over.released_at, "it asked while the first one was still there"
    assert active.active_at is not None
    assert notes["units_busy"] < notes["units_free"]
    assert over.released_at < active.active_at
    assert [entry.code for entry in tenant.client.iterate_timeline(ran.allocation_id)].count("ending") == 1
    tenant.client.release_allocation(next_.allocation_id)
    tenant.wait(next_, "released")
    wait_for(lambda: whole.waiting_events() == 0, "every event has its place in the log")
    assert whole.violations() == []
    with psycopg.connect(whole.stack.endpoints.database_url) as connection:
        told = connection.execute(
            "select event_type from log where subject = %s order by version", (f"reservations/{second.reservation_id}",)
        ).fetchall()
    assert [row[0] for row in told] == ["reservation.held", "reservation.confirmed", "reservation.consumed"]
