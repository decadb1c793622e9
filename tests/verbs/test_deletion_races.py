"""A deletion of a tenant against what the tenant writes at the same time, in both orders, with real commits."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import pytest

from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, Place, at_once, fresh, new_place, new_tenant, one_gpu, problem, ssh_key
from tests.api.reservations.reserving import DAY, HOLDER, moment
from tests.at_length import at_length
from tests.support.paused_commits import in_order
from tests.support.public_api import PublicApi
from tests.verifying import broken_promises

Write = Callable[[], httpx.Response]
ROUNDS = 6


@dataclass(frozen=True)
class Scene:
    """A tenant that is about to write, and the place where it may."""

    admin: Caller
    tenant: Caller
    place: Place

    def delete(self) -> httpx.Response:
        """Delete the tenant."""
        return self.admin.call("DELETE", f"/admin/tenants/{self.tenant.tenant_id}")

    def hold(self, **wanted: object) -> Write:
        """A hold of these."""
        body = {"holder_id": HOLDER, **wanted}
        return lambda: self.tenant.call("POST", "/reservations", body)

    @property
    def gpu(self) -> dict[str, object]:
        """One GPU of the place."""
        return {"sku": self.place.sku, "gpus": 1, "region": self.place.region}


def a_create(scene: Scene) -> Write:
    body = one_gpu(scene.tenant, scene.place)
    return lambda: scene.tenant.call("POST", "/allocations", body)


def a_create_in_a_window(scene: Scene) -> Write:
    body = one_gpu(scene.tenant, scene.place, ends_at=moment(DAY))
    return lambda: scene.tenant.call("POST", "/allocations", body)


def a_hold(scene: Scene) -> Write:
    return scene.hold(**scene.gpu)


def a_hold_of_a_window(scene: Scene) -> Write:
    return scene.hold(**scene.gpu, starts_at=moment(DAY), ends_at=moment(2 * DAY))


def a_hold_of_a_slot(scene: Scene) -> Write:
    return scene.hold(resources=[f"slot:{scene.place.node['id']}:3"])


def a_hold_of_a_seat(scene: Scene) -> Write:
    seat = scene.admin.make("/admin/resources", {"id": fresh("seat")})["id"]
    return scene.hold(resources=[seat])


def a_commit(scene: Scene) -> Write:
    headers = {"authorization": f"Bearer {scene.tenant.key}"}
    body = {"request_id": str(uuid.uuid4()), "operations": [{"type": "write", "key": "a2V5", "value": "dmFsdWU="}]}
    return lambda: scene.tenant.http.post("/v1/commit", json=body, headers=headers)


def a_later_commit(scene: Scene) -> Write:
    assert a_commit(scene)().status_code == 200
    return a_commit(scene)


def an_ssh_key(scene: Scene) -> Write:
    body = {"name": fresh("key"), "public_key": ssh_key()}
    return lambda: scene.tenant.call("POST", "/ssh-keys", body)


def a_webhook(scene: Scene) -> Write:
    body = {"url": "https://hooks.example/", "types": []}
    return lambda: scene.tenant.call("POST", "/webhooks", body)


def a_retention_policy(scene: Scene) -> Write:
    headers = {"authorization": f"Bearer {scene.tenant.key}"}
    return lambda: scene.tenant.http.put("/v1/retention/mine", json={"prevent_truncate": 1}, headers=headers)


def an_api_key(scene: Scene) -> Write:
    body = {"name": "late", "role": "tenant", "tenant_id": scene.tenant.tenant_id}
    return lambda: scene.admin.call("POST", "/admin/api-keys", body)


def a_higher_quota(scene: Scene) -> Write:
    return lambda: scene.admin.call("PUT", f"/admin/tenants/{scene.tenant.tenant_id}/quota", {"gpus_limit": None})


def a_suspension(scene: Scene) -> Write:
    return lambda: scene.admin.call("PATCH", f"/admin/tenants/{scene.tenant.tenant_id}", {"state": "suspended"})


HOLDING = [a_create, a_create_in_a_window, a_hold, a_hold_of_a_window, a_hold_of_a_slot, a_hold_of_a_seat]
CONFIGURING = [
    a_commit,
    a_later_commit,
    an_ssh_key,
    a_webhook,
    a_retention_policy,
    an_api_key,
    a_higher_quota,
    a_suspension,
]


def name_of(prepare: Callable[[Scene], Write]) -> str:
    """As pytest shows it."""
    return prepare.__name__


@pytest.fixture
def scene(api: PublicApi, admin: Caller) -> Scene:
    """A tenant of the test's own, with eight free GPUs."""
    return Scene(admin, new_tenant(admin), new_place(admin, api.database))


@pytest.fixture
def url(api: PublicApi, postgres_server: LocalPostgres) -> str:
    """The database's address."""
    return postgres_server.url(api.database.info.dbname)


def require_promises(url: str) -> None:
    """`berth verify` finds no violation."""
    assert broken_promises(url) == {}


@pytest.mark.parametrize("prepare", at_length(HOLDING, HOLDING[:2]), ids=name_of)
def test_a_deletion_waits_for_what_is_about_to_be_held(
    api: PublicApi, scene: Scene, url: str, prepare: Callable[[Scene], Write]
) -> None:
    held, deleted = in_order(api.database, prepare(scene), scene.delete)
    assert held.status_code == 201, held.text
    users = problem(deleted, 409, "tenant_in_use")["users"]
    assert sum(users.values()) == 1
    require_promises(url)


@pytest.mark.parametrize("prepare", at_length(HOLDING, HOLDING[:2]), ids=name_of)
def test_nothing_is_held_after_a_deletion(
    api: PublicApi, scene: Scene, url: str, prepare: Callable[[Scene], Write]
) -> None:
    deleted, refused = in_order(api.database, scene.delete, prepare(scene))
    assert deleted.status_code == 204, deleted.text
    problem(refused, 403, "forbidden")
    require_promises(url)


@pytest.mark.parametrize("prepare", at_length(CONFIGURING, CONFIGURING[:2]), ids=name_of)
def test_a_deletion_removes_what_is_about_to_be_added(
    api: PublicApi, scene: Scene, url: str, prepare: Callable[[Scene], Write]
) -> None:
    added, deleted = in_order(api.database, prepare(scene), scene.delete)
    assert added.status_code in (200, 201), added.text
    assert deleted.status_code == 204, deleted.text
    require_promises(url)


@pytest.mark.parametrize("prepare", at_length(CONFIGURING, CONFIGURING[:2]), ids=name_of)
def test_nothing_is_added_after_a_deletion(
    api: PublicApi, scene: Scene, url: str, prepare: Callable[[Scene], Write]
) -> None:
    deleted, refused = in_order(api.database, scene.delete, prepare(scene))
    assert deleted.status_code == 204, deleted.text
    if prepare in (a_commit, a_later_commit):
        problem(refused, 403, "forbidden")
    else:
        problem(refused, 409, "tenant_deleted")
    assert scene.admin.get(f"/admin/tenants/{scene.tenant.tenant_id}")["state"] == "deleted"
    require_promises(url)


@pytest.mark.parametrize("first", ["consume", "delete"])
def test_a_reservation_keeps_the_tenant_while_it_becomes_an_allocation(
    api: PublicApi, scene: Scene, url: str, first: str
) -> None:
    """What it holds is a reservation before the commit and an allocation after it, and never neither."""
    held = scene.hold(**scene.gpu)().json()["reservation_id"]
    keys = one_gpu(scene.tenant, scene.place)["ssh_key_ids"]
    body = {"reservation_id": held, "holder_id": HOLDER, "ssh_key_ids": keys}

    def consume() -> httpx.Response:
        return scene.tenant.call("POST", "/allocations", body)

    if first == "consume":
        consumed, refused = in_order(api.database, consume, scene.delete)
    else:
        refused, consumed = in_order(api.database, scene.delete, consume)
    assert consumed.status_code == 201, consumed.text
    assert sum(problem(refused, 409, "tenant_in_use")["users"].values()) == 1
    require_promises(url)


@pytest.mark.parametrize("prepare", at_length(HOLDING, HOLDING[:2]), ids=name_of)
def test_of_a_deletion_and_a_write_at_once_one_succeeds(
    api: PublicApi, admin: Caller, url: str, prepare: Callable[[Scene], Write]
) -> None:
    place, seen = new_place(admin, api.database), set()
    for _ in range(ROUNDS):
        scene = Scene(admin, new_tenant(admin), place)
        held, deleted = at_once(prepare(scene), scene.delete)
        seen.add((held.status_code, deleted.status_code))
        if held.status_code == 201:
            end = held.json()
            end_of(scene, end)
    assert seen <= {(201, 409), (403, 204), (401, 204)}, seen
    require_promises(url)


def end_of(scene: Scene, made: dict[str, str]) -> None:
    """Give back what was created or held."""
    if "reservation_id" in made and "allocation_id" not in made:
        scene.tenant.make(f"/reservations/{made['reservation_id']}/cancel", {"holder_id": HOLDER})
        return
    path = f"/allocations/{made['allocation_id']}"
    scene.tenant.make(f"{path}/release")
    scene.admin.make(f"/admin{path}/force-cleanup", {"runtime_verified_absent": True, "reason": "looked"})
