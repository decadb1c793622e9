"""Reservations become allocations, and allocations end by themselves, while a process dies. As in `plays`: with keys."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

from berth.client.models import CreatedAllocation
from berth.client.reservation_models import Reservation
from tests.crashes.plays import create, new_key, release
from tests.crashes.reserving import HOLDER, require_state, require_story
from tests.crashes.stage import FIRST_AGENT, Stage
from tests.support.waiting import wait_for
from tests.support.whole_stack import Tenant


def a_reservation_used(stage: Stage) -> Iterator[None]:
    """Its holder turns it into an allocation, twice under one key: it is one."""
    tenant = stage.tenant()
    yield
    held = hold(stage, tenant)
    made = use(stage, tenant, held)
    tenant.wait(made, "active")
    release(tenant, made)
    tenant.wait(made, "released")
    require_story(stage, held.reservation_id, "held", "consumed")


def begins_and_ends_by_itself(stage: Stage) -> Iterator[None]:
    """A confirmed one starts, its allocation is warned about and released at its end."""
    tenant = stage.tenant()
    yield
    held = hold(stage, tenant, starts=True)
    confirm(tenant, held)
    require_state(stage, held, "consumed")
    made = started(stage, tenant, held)
    tenant.wait(made, "active")
    # As time would bring it about.
    sooner = "update allocations set ends_at = clock_timestamp() + make_interval(secs => %s) where id = %s"
    stage.execute(sooner, 60, made.allocation_id)
    subject = f"allocations/{made.allocation_id}"
    warned = "select count(*) from log where event_type = 'reservation.ending' and subject = %s"
    wait_for(lambda: stage.execute(warned, subject) == [(1,)], "its tenant is warned")
    stage.execute(sooner, 0, made.allocation_id)
    tenant.wait(made, "released")
    assert stage.execute(warned, subject) == [(1,)]
    require_story(stage, held.reservation_id, "held", "confirmed", "consumed")


def another_end(stage: Stage) -> Iterator[None]:
    """It is extended while it may be provisioned, and shortened when it is active, twice under one key each."""
    tenant = stage.tenant()
    yield
    made = create(stage, tenant)
    for number, hours in enumerate((2, 1), start=1):
        key, ends_at = new_key(), datetime.now(UTC) + timedelta(hours=hours)
        shown = [
            tenant.client.update_allocation(made.allocation_id, ends_at=ends_at, idempotency_key=key) for _ in range(2)
        ]
        assert shown[0] == shown[1]
        assert shown[0].ends_at == ends_at
        claims = (
            "select count(*), array_agg(upper(during)) filter (where closed_at is null) from claims where owner_id = %s"
        )
        assert stage.execute(claims, made.allocation_id) == [(number + 1, [ends_at])]
        tenant.wait(made, "active")
    release(tenant, made)
    tenant.wait(made, "released")


def moved_at_the_start(stage: Stage) -> Iterator[None]:
    """A slot of it has been taken out of service: it starts on another one."""
    tenant = stage.tenant()
    yield
    held = hold(stage, tenant, starts=True)
    (slot,) = held.resources
    set_slot(stage, slot, "out_of_service")
    confirm(tenant, held)
    require_state(stage, held, "consumed")
    made = started(stage, tenant, held)
    set_slot(stage, slot, "in_service")
    tenant.wait(made, "active")
    release(tenant, made)
    tenant.wait(made, "released")
    require_story(stage, held.reservation_id, "held", "confirmed", "moved", "consumed")


def nowhere_to_start(stage: Stage) -> Iterator[None]:
    """Its node is cordoned and there is no equal one: it fails, and its units are free."""
    tenant = stage.tenant()
    yield
    held = hold(stage, tenant, starts=True)
    node = stage.admin.get_node(stage.node(FIRST_AGENT).name).id
    stage.admin.cordon_node(node, idempotency_key=new_key())
    confirm(tenant, held)
    require_state(stage, held, "cancelled")
    stage.admin.uncordon_node(node, idempotency_key=new_key())
    require_story(stage, held.reservation_id, "held", "confirmed", "failed")


def units_that_nobody_passed_on(stage: Stage) -> Iterator[None]:
    """The units were occupied when the window began, and the event of their cleanup is missing."""
    tenant = stage.tenant()
    yield
    held = hold(stage, tenant)
    (lost,) = stage.execute(
        """insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, booked, occupied, occupied_from, fence)
           select node_id, tenant_id, 'allocation', uuidv7(), units, during, false, true, clock_timestamp(), nextval('fences')
           from claims where owner_id = %s returning id""",
        held.reservation_id,
    )
    made = use(stage, tenant, held)
    waits = tenant.client.get_allocation(made.allocation_id).waits
    assert waits is not None
    assert waits.for_ == "units"
    stage.execute("delete from claims where id = %s", lost[0])
    tenant.wait(made, "active")
    release(tenant, made)
    tenant.wait(made, "released")


def hold(stage: Stage, tenant: Tenant, *, starts: bool = False) -> Reservation:
    """Hold a GPU, in one go."""
    return tenant.client.create_reservation(
        holder_id=HOLDER, sku="h100.slice", gpus=1, region="eu-1", idempotency_key=new_key(),
        allocation={"ssh_key_ids": [str(tenant.ssh_key_id)]} if starts else None,
    )  # fmt: skip


def confirm(tenant: Tenant, held: Reservation) -> None:
    """From now on it starts as soon as it may."""
    tenant.client.confirm_reservation(held.reservation_id, holder_id=HOLDER, idempotency_key=new_key())


def use(stage: Stage, tenant: Tenant, held: Reservation) -> CreatedAllocation:
    """Turn it into an allocation, twice with one key: one was made, and both answers name it."""
    key = new_key()
    answers = [
        tenant.client.create_allocation(
            reservation_id=held.reservation_id, holder_id=HOLDER, ssh_key_ids=[tenant.ssh_key_id], idempotency_key=key
        )
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    made = "select count(*) from allocations where reservation_id = %s"
    assert stage.execute(made, held.reservation_id) == [(1,)]
    return answers[0]


def started(stage: Stage, tenant: Tenant, held: Reservation) -> CreatedAllocation:
    """The one allocation that it became."""
    found = stage.execute("select id from allocations where reservation_id = %s", held.reservation_id)
    assert len(found) == 1, found
    shown = tenant.client.get_allocation(UUID(str(found[0][0])))
    return CreatedAllocation.model_validate(shown.model_dump())


def set_slot(stage: Stage, name: str, state: str) -> None:
    """As an operator would find and repair it."""
    _, node, index = name.split(":")
    stage.execute("update slots set state = %s where node_id = %s and slot_index = %s", state, node, int(index))
    stage.execute("select refresh_node_fit(%s)", UUID(node))
