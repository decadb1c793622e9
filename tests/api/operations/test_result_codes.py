"""The sixteen result codes of the AllocDB source, each reached over HTTP: two mark successes, fourteen are problems."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from starlette.testclient import TestClient

from orchestrator.app import build_services, public_listener
from orchestrator.reservations.commands.expire import retire_reservations
from tests.api.calling import Caller, fresh, insert_admin_key, new_place, new_tenant, problem, rent
from tests.support.public_api import settings_over

HOLDER = "h"


class BoundedApi:
    """An API with small bounds, an operator and a tenant."""

    def __init__(self, http: TestClient, url: str, retire: Callable[[], int]) -> None:
        self.url = url
        self.admin = Caller(http, insert_admin_key(url))
        self.retire = retire

    @cached_property
    def tenant(self) -> Caller:
        return new_tenant(self.admin)

    def register(self, id_: str) -> httpx.Response:
        return self.admin.call("POST", "/admin/resources", {"id": id_})

    def seat(self) -> str:
        """A new resource."""
        id_ = fresh("seat")
        assert self.register(id_).status_code == 201
        return id_

    def hold(self, resource: str, key: str | None = None, **members: Any) -> httpx.Response:
        return self.tenant.call(
            "POST", "/reservations", {"resources": [resource], "holder_id": HOLDER, **members}, key=key
        )

    def held(self) -> str:
        """The id of a new hold."""
        return str(self.hold(self.seat()).json()["reservation_id"])

    def act(self, verb: str, id_: str, holder: str = HOLDER) -> httpx.Response:
        return self.tenant.call("POST", f"/reservations/{id_}/{verb}", {"holder_id": holder})


@contextmanager
def bounded_api(url: str, directory: Path, **bounds: Any) -> Iterator[BoundedApi]:
    services = build_services(settings_over(url, directory).model_copy(update=bounds))
    with TestClient(public_listener(services), raise_server_exceptions=False) as http:
        assert http.portal is not None
        portal = http.portal
        yield BoundedApi(http, url, lambda: portal.call(retire_reservations, services.context.for_platform(), 10))
        portal.call(services.context.database.close)


@pytest.fixture
def wide(database_url: str, tmp_path: Path) -> Iterator[BoundedApi]:
    """Bounds that nothing here meets; ended reservations are not kept."""
    with bounded_api(database_url, tmp_path, reservation_retention_seconds=0.0) as found:
        yield found


def cancelled(at: BoundedApi) -> str:
    id_ = at.held()
    assert at.act("cancel", id_).status_code == 200
    return id_


def retired(at: BoundedApi) -> str:
    id_ = cancelled(at)
    assert at.retire() == 1
    return id_


def twice(write: Callable[[], httpx.Response]) -> httpx.Response:
    assert write().status_code < 300
    return write()


REFUSED: dict[str, tuple[int, Callable[[BoundedApi], httpx.Response]]] = {
    "already_exists": (409, lambda at: at.register(at.seat())),
    "resource_not_found": (404, lambda at: at.hold(fresh("nothing"))),
    "resource_busy": (409, lambda at: twice(lambda seat=at.seat(): at.hold(seat))),  # type: ignore[misc]
    "ttl_out_of_range": (422, lambda at: at.hold(at.seat(), ttl_seconds=3_601)),
    "reservation_not_found": (404, lambda at: at.act("confirm", str(uuid.UUID(int=2**62)))),
    "reservation_retired": (410, lambda at: at.act("confirm", retired(at))),
    "operation_conflict": (422, lambda at: [at.hold(at.seat(), key="k") for _ in range(2)][1]),
    "invalid_state": (409, lambda at: at.act("confirm", cancelled(at))),
    "holder_mismatch": (409, lambda at: at.act("confirm", at.held(), holder="another holder")),
    "slot_overflow": (422, lambda at: at.hold(at.seat(), ttl_seconds=10**18)),
}
FULL = {"resource_table_full", "reservation_table_full", "expiration_index_full", "operation_table_full"}


@pytest.mark.parametrize("code", REFUSED)
def test_a_refusal_has_its_code(wide: BoundedApi, code: str) -> None:
    status, cause = REFUSED[code]
    assert problem(cause(wide), status, code)["outcome"] == "not_done"


def test_a_deployment_may_offer_less_than_an_hour(database_url: str, tmp_path: Path) -> None:
    """A hold without a TTL gets 15 minutes, or the deployment's maximum if that is shorter."""
    with bounded_api(database_url, tmp_path, hold_seconds_max=60.0) as at:
        assert seconds_held(at.hold(at.seat())) == 60
        for offered in (59, 60):
            assert seconds_held(at.hold(at.seat(), ttl_seconds=offered)) == offered
        for too_long in (61, 900, 3_600):
            refused = problem(at.hold(at.seat(), ttl_seconds=too_long), 422, "ttl_out_of_range")
            assert refused["ttl_seconds_max"] == 60.0
    with bounded_api(database_url, tmp_path) as at:
        assert seconds_held(at.hold(at.seat())) == 900


def seconds_held(answer: httpx.Response) -> float:
    assert answer.status_code == 201, answer.text
    made = answer.json()
    return (datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["held_at"])).total_seconds()


def test_successes_are_marked(wide: BoundedApi) -> None:
    id_ = wide.held()
    for verb, result in (("confirm", "ok"), ("confirm", "noop"), ("cancel", "ok"), ("cancel", "noop")):
        answer = wide.act(verb, id_)
        assert (answer.status_code, answer.json()["result"]) == (200, result)


def test_the_sixteen_are_all_here() -> None:
    assert len({"ok", "noop", *REFUSED, *FULL}) == 16


def require_full(answer: httpx.Response, code: str) -> None:
    """Nothing was done, and the client knows when to come again."""
    assert problem(answer, 503, code)["outcome"] == "not_done"
    assert int(answer.headers["retry-after"]) > 0


def test_a_full_table_of_resources(database_url: str, tmp_path: Path) -> None:
    with bounded_api(database_url, tmp_path, resources_max=2) as at:
        there = at.seat()
        at.seat()
        require_full(at.register(fresh("seat")), "resource_table_full")
        known = problem(at.register(there), 409, "already_exists")
        assert known["existing_id"] == there, "a retry receives the existing id, full or not"
        assert len(at.tenant.get("/resources")["items"]) == 2


def test_full_tables_of_reservations_and_of_holds(database_url: str, tmp_path: Path) -> None:
    """Confirming makes room among the holds, cancelling among the reservations; neither is ever refused for want of it."""
    with bounded_api(database_url, tmp_path, reservations_max=3, holds_max=2) as at:
        seat = at.seat()
        first, second = at.held(), at.held()
        require_full(at.hold(seat), "expiration_index_full")
        assert at.act("confirm", first).status_code == 200
        third = at.hold(seat, key="a key that was not used up by a refusal")
        assert third.status_code == 201
        other = at.seat()
        assert at.act("confirm", second).status_code == 200
        refused = at.hold(other, key="the same key may come again")
        require_full(refused, "reservation_table_full")
        assert at.act("cancel", first).status_code == 200
        assert at.hold(other, key="the same key may come again").status_code == 201


def test_a_full_table_of_operations_refuses_all_but_what_ends_something(database_url: str, tmp_path: Path) -> None:
    with bounded_api(database_url, tmp_path) as at, psycopg.connect(database_url, autocommit=True) as database:
        place = new_place(at.admin, database)
        allocation = rent(at.tenant, place)["allocation_id"]
        stuck = rent(at.tenant, place)["allocation_id"]
        confirmed, held = at.held(), at.held()
        seat, body = at.seat(), {"name": fresh("tenant")}
        secrets = at.admin.key, at.tenant.key
        (used,) = database.execute("select count(*) from operations").fetchone() or (0,)
    bound = next(bound for bound in range(10, 1_000) if bound - bound // 10 >= used)
    with bounded_api(database_url, tmp_path, operations_max=bound) as full:
        admin, tenant = Caller(full.admin.http, secrets[0]), Caller(full.admin.http, secrets[1])
        writes: list[Callable[[], httpx.Response]] = [
            lambda: admin.call("POST", "/admin/tenants", body),
            lambda: tenant.call("POST", "/reservations", {"resources": [seat], "holder_id": HOLDER}),
            lambda: tenant.call("POST", "/allocations", {"sku": place.sku, "gpus": 1, "region": place.region,
                                                         "ssh_key_ids": [str(uuid.uuid4())]}),
            lambda: tenant.call("GET", "/operations/never-used"),
        ]  # fmt: skip
        for write in writes:
            require_full(write(), "operation_table_full")
        ended = [
            tenant.call("POST", f"/reservations/{confirmed}/confirm", {"holder_id": HOLDER}),
            tenant.call("POST", f"/reservations/{held}/cancel", {"holder_id": HOLDER}),
            tenant.call("POST", f"/allocations/{allocation}/release"),
            admin.call("POST", f"/admin/allocations/{stuck}/force-release", {"reason": "stuck"}),
            admin.call(
                "POST", f"/admin/allocations/{stuck}/force-cleanup", {"runtime_verified_absent": True, "reason": "x"}
            ),
        ]
        assert [answer.status_code for answer in ended] == [200, 200, 202, 202, 200], [one.text for one in ended]
        problem(tenant.call("POST", f"/reservations/{held}/confirm", {"holder_id": HOLDER}), 409, "invalid_state")
