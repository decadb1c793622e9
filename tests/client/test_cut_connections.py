"""The connection is cut at every kind of place of an exchange with a real API, and the client finds out by itself.

Once cut, a write succeeds with the retry, once done. Cut every time, it is settled by asking for its key: the answer that
was lost, or the certainty that nothing was done and nothing will be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from berth import client as berth
from berth.client.requests import retries
from berth.local.servers import LocalPostgres
from tests.api.calling import fresh
from tests.client.deployment import Deployment, Tenant, client_tenant, running_deployment
from tests.cutting import CUTS, Cut, Place

NEVER_ARRIVES = {Place.BEFORE, Place.IN_HEAD, Place.IN_BODY}
ALWAYS = 1_000_000
SHORT_SECONDS = 0.12
FIRST_PAUSE_SECONDS = 0.01
"""Before a retry; the client's own is longer, and what a cut leads to does not depend on it."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry soon: a module of hundreds of cuts would otherwise spend most of its time waiting."""
    monkeypatch.setattr(retries, "FIRST_PAUSE_SECONDS", FIRST_PAUSE_SECONDS)


@pytest.fixture(scope="module")
def deployment(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """One API process for the module."""
    directory = tmp_path_factory.mktemp("cut")
    with running_deployment(postgres_server, migrated_template, directory) as running:
        yield running


@dataclass(frozen=True)
class Write:
    """One kind of write: `prepare` makes what it needs and answers how to do it; `effects` counts what it did."""

    prepare: Callable[[Tenant], Callable[..., Any]]
    effects: Callable[[Deployment, str], int]
    is_result: Callable[[Any], bool]


def _create(tenant: Tenant) -> Callable[..., Any]:
    tenant.move_if_full()
    return tenant.create


def _release(tenant: Tenant) -> Callable[..., Any]:
    tenant.move_if_full()
    made = tenant.create()
    return lambda **named: tenant.call("release_allocation", made.allocation_id, **named)


def _created(deployment: Deployment, key: str) -> int:
    rows = deployment.count("select count(*) from allocations where operation_key = %s", key)
    claims = deployment.count(
        "select count(*) from claims c join allocations a on a.id = c.owner_id where a.operation_key = %s", key
    )
    assert rows == claims == deployment.events("provisioning.requested", key)
    return rows


def _resource(tenant: Tenant) -> str:
    return str(tenant.deployment.admin.make("/admin/resources", {"id": fresh("seat")})["id"])


def _hold(tenant: Tenant) -> Callable[..., Any]:
    resource = _resource(tenant)
    return lambda **named: tenant.call("create_reservation", resources=[resource], holder_id="me", **named)


def _held(deployment: Deployment, key: str) -> int:
    rows = deployment.count("select count(*) from reservations where operation_key = %s", key)
    claims = deployment.count(
        "select count(*) from claims c join reservations r on r.id = c.owner_id where r.operation_key = %s", key
    )
    assert rows == claims == deployment.events("reservation.held", key)
    return rows


def _ended_by(method: str) -> Callable[[Tenant], Callable[..., Any]]:
    def prepare(tenant: Tenant) -> Callable[..., Any]:
        held = _hold(tenant)()
        return lambda **named: tenant.call(method, held.reservation_id, holder_id="me", **named)

    return prepare


def _use(tenant: Tenant) -> Callable[..., Any]:
    tenant.move_if_full()
    place = tenant.place
    held = tenant.call("create_reservation", sku=place.sku, gpus=1, region=place.region, holder_id="me")
    return lambda **named: tenant.call(
        "create_allocation",
        reservation_id=held.reservation_id,
        holder_id="me",
        ssh_key_ids=[tenant.ssh_key_id],
        **named,
    )


def _used(deployment: Deployment, key: str) -> int:
    assert _created(deployment, key) == deployment.events("reservation.consumed", key)
    return _created(deployment, key)


WRITES = {
    "create": Write(_create, _created, lambda made: made.status == "requested"),
    "release": Write(
        _release,
        lambda deployment, key: deployment.events("provisioning.releasing.requested", key),
        lambda found: found.status == "releasing",
    ),
    "hold": Write(_hold, _held, lambda held: held.status == "hold"),
    "confirm": Write(
        _ended_by("confirm_reservation"),
        lambda deployment, key: deployment.events("reservation.confirmed", key),
        lambda found: (found.status, found.result) == ("confirmed", "ok"),
    ),
    "use": Write(_use, _used, lambda made: made.status == "requested"),
    "cancel": Write(
        _ended_by("cancel_reservation"),
        lambda deployment, key: deployment.events("reservation.cancelled", key),
        lambda found: (found.status, found.result) == ("cancelled", "ok"),
    ),
}


@pytest.fixture(scope="module", params=[False, True], ids=["blocking", "awaiting"])
def tenant(request: pytest.FixtureRequest, deployment: Deployment) -> Iterator[Tenant]:
    """A tenant of the module's, with each kind of client."""
    with client_tenant(deployment, asynchronous=request.param) as made:
        yield made


@pytest.mark.quick("blocking-create", "awaiting-release")
@pytest.mark.parametrize("verb", WRITES)
def test_a_write_cut_once_is_done_once(deployment: Deployment, tenant: Tenant, verb: str) -> None:
    write = WRITES[verb]
    for cut in CUTS:
        do = write.prepare(tenant)
        with deployment.proxy.cutting(cut) as plan:
            result = do()
        assert write.is_result(result), cut
        assert plan.made == [cut]
        key = _only(plan.keys)
        assert len(plan.keys) == (1 if cut.place is Place.AFTER else 2), cut
        assert write.effects(deployment, key) == 1, cut


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("place", [place for place in Place if place is not Place.AFTER], ids=lambda p: p.name.lower())
def test_a_write_cut_every_time_is_settled_by_its_key(
    deployment: Deployment, tenant: Tenant, verb: str, place: Place
) -> None:
    write = WRITES[verb]
    do = write.prepare(tenant)
    failed: berth.Unavailable | None = None
    with deployment.proxy.cutting(Cut(place), times=ALWAYS) as plan:
        try:
            assert write.is_result(do(retry_seconds=SHORT_SECONDS))
        except berth.Unavailable as error:
            failed = error
    key = _only(plan.keys)
    assert plan.made
    if place is not Place.AFTER_REQUEST:
        assert (failed is None) == (place not in NEVER_ARRIVES)
    if failed is not None:
        assert (failed.outcome, "will not be under this key" in failed.detail) == ("not_done", True)
        with pytest.raises(berth.OperationFenced):
            do(idempotency_key=key)
    assert write.effects(deployment, key) == (failed is None)


def _only(keys: list[str | None]) -> str:
    """The one key of all attempts."""
    (key,) = set(keys)
    assert key is not None
    assert berth.parse_key(key) is not None
    return key
