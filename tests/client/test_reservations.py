"""Reservations through both clients: from a hold to an allocation, and waiting for a state with a deadline."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from berth import client as berth
from berth.client import Client, Reservation
from berth.local.servers import LocalPostgres
from tests.api.calling import fresh, new_place
from tests.client.deployment import Deployment, Tenant, client_tenant, running_deployment


@pytest.fixture(scope="module")
def deployment(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """One API process for the module."""
    directory = tmp_path_factory.mktemp("reservations")
    with running_deployment(postgres_server, migrated_template, directory) as running:
        yield running


@pytest.fixture(scope="module", params=[False, True], ids=["blocking", "awaiting"])
def tenant(request: pytest.FixtureRequest, deployment: Deployment) -> Iterator[Tenant]:
    """A tenant of the module's, with each kind of client."""
    with client_tenant(deployment, asynchronous=request.param) as made:
        yield made


def hold_seat(tenant: Tenant, **named: Any) -> Reservation:
    """A hold of a new seat."""
    seat = tenant.deployment.admin.make("/admin/resources", {"id": fresh("seat")})["id"]
    held = tenant.call("create_reservation", resources=[seat], holder_id="me", **named)
    assert isinstance(held, Reservation)
    return held


def test_a_reservation_becomes_allocations(tenant: Tenant) -> None:
    place = new_place(tenant.deployment.admin, tenant.deployment.database)
    wanted: dict[str, Any] = {"sku": place.sku, "gpus": 2, "region": place.region, "count": 2}
    held = tenant.call("create_reservation", holder_id="me", ttl_seconds=60, **wanted)
    assert (held.status, held.gpus_held, held.count) == ("hold", 4, 2)
    assert held.expires_at - held.held_at == timedelta(seconds=60)
    confirmed = tenant.call("confirm_reservation", held.reservation_id, holder_id="me")
    assert (confirmed.status, confirmed.expires_at, confirmed.result) == ("confirmed", None, "ok")
    ends_at = datetime.now(UTC) + timedelta(hours=1)
    for status in ("confirmed", "consumed"):
        made = tenant.call(
            "create_allocation",
            reservation_id=held.reservation_id,
            holder_id="me",
            ssh_key_ids=[tenant.ssh_key_id],
        )
        found = tenant.call("get_allocation", made.allocation_id)
        assert (found.reservation_id, found.gpus, found.status) == (held.reservation_id, 2, "requested")
        assert tenant.call("get_reservation", held.reservation_id).status == status
    with pytest.raises(berth.InvalidState):
        tenant.call("cancel_reservation", held.reservation_id, holder_id="me")
    bounded = tenant.create(sku=place.sku, region=place.region, ends_at=ends_at)
    assert tenant.call("get_allocation", bounded.allocation_id).ends_at == ends_at


def test_a_conflict_names_the_callers_own_claims(tenant: Tenant) -> None:
    held = hold_seat(tenant)
    with pytest.raises(berth.ResourceBusy) as busy:
        tenant.call("create_reservation", resources=held.resources, holder_id="you")
    assert busy.value.conflicts
    assert busy.value.outcome == "not_done"
    with pytest.raises(berth.HolderMismatch):
        tenant.call("confirm_reservation", held.reservation_id, holder_id="you")
    resource = tenant.call("get_resource", held.resources[0])
    assert (resource.kind, resource.state, resource.reservation_id) == ("registered", "reserved", held.reservation_id)


def test_a_wait_ends_with_the_state(tenant: Tenant) -> None:
    held, seen = hold_seat(tenant), threading.Event()

    def end() -> None:
        seen.wait(30)
        with Client(tenant.deployment.address, tenant.caller.key) as other:
            other.cancel_reservation(held.reservation_id, holder_id="me")

    ender = threading.Thread(target=end)
    ender.start()
    found = tenant.call("wait_for_reservation", held.reservation_id, {"cancelled"}, 60.0, progress=lambda _: seen.set())
    ender.join()
    assert found.status == "cancelled"


def test_a_wait_ends_at_its_timeout_or_at_another_final_state(tenant: Tenant) -> None:
    held = hold_seat(tenant)
    with pytest.raises(berth.WaitTimeout) as late:
        tenant.call("wait_for_reservation", held.reservation_id, {"confirmed"}, 0.05)
    assert late.value.extra["reservation"].status == "hold"
    tenant.call("cancel_reservation", held.reservation_id, holder_id="me")
    with pytest.raises(berth.StateUnreachable, match="is cancelled and will not become confirmed"):
        tenant.call("wait_for_reservation", held.reservation_id, {"confirmed"}, 60.0)


def test_a_time_without_a_zone_is_in_this_machines_zone(tenant: Tenant) -> None:
    local = datetime.now().replace(microsecond=0) + timedelta(days=2)
    held = hold_seat(tenant, ends_at=local)
    assert held.ends_at == local.astimezone(UTC)


def test_a_list_is_followed_to_its_last_page(tenant: Tenant) -> None:
    made = [hold_seat(tenant).reservation_id for _ in range(3)]
    with Client(tenant.deployment.address, tenant.caller.key) as client:
        assert [one.reservation_id for one in client.iterate_reservations(state="hold", limit=1)][-3:] == made
        assert [one.kind for one in client.iterate_resources(kind="node", limit=1)][:1] == ["node"]
