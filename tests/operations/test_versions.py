"""Every stored operation knows its position in the log: the version of its last event (DESIGN §6)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.api.calling import Caller, Place, fresh, new_place, new_tenant, one_gpu, ssh_key
from tests.api.reservations.reserving import HOLDER, act, seat
from tests.keyvalue.committing import Keys, put, services_of, unchanged
from tests.log.retention.partitions import append, cut_log, number_of, published, truncate
from tests.support.public_api import PublicApi

LAST_EVENT = """
select max(version) from log where operation_key = %s and (tenant_id::text = %s or cast(%s as text) is null)
"""


@pytest.fixture(scope="module")
def tenant(api: PublicApi) -> Caller:
    """A tenant without a limit."""
    return new_tenant(api.admin)


@pytest.fixture(scope="module")
def place(api: PublicApi) -> Place:
    """Eight GPUs."""
    return new_place(api.admin, api.database)


def forget(api: PublicApi) -> None:
    """Empty the gate, so that the next replay is answered by the table."""
    services_of(Keys(api.admin)).gate.forget()


def asked(caller: Caller, key: str) -> dict[str, Any]:
    """The operation with this key."""
    document: dict[str, Any] = caller.get(f"/operations/{key}")
    return document


def last_event(api: PublicApi, caller: Caller, key: str) -> int:
    """The version of the last event with this key, of the tenant if it is one."""
    row = api.database.execute(LAST_EVENT, (key, caller.tenant_id, caller.tenant_id)).fetchone()
    version = row and row[0]
    assert isinstance(version, int), f"no event carries {key}"
    return version


def writes(api: PublicApi, tenant: Caller, place: Place, name: str) -> dict[str, Any]:
    """Make one write of each kind; return each response by its key."""
    made: dict[str, Any] = {}

    def write(key: str, path: str, body: Any = None, status: int = 201) -> Any:
        made[f"{name}-{key}"] = tenant.call("POST", path, body, key=f"{name}-{key}")
        assert made[f"{name}-{key}"].status_code == status, made[f"{name}-{key}"].text
        return made[f"{name}-{key}"].json()

    held = write("hold", "/reservations", {"resources": [seat(api)], "holder_id": HOLDER})["reservation_id"]
    by = {"holder_id": HOLDER}
    write("confirm", f"/reservations/{held}/confirm", by, 200)
    write("confirmed before", f"/reservations/{held}/confirm", by, 200)
    write("refused", f"/reservations/{held}/confirm", {"holder_id": "another"}, 409)
    write("cancel", f"/reservations/{held}/cancel", by, 200)
    created = write("create", "/allocations", one_gpu(tenant, place))["allocation_id"]
    write("release", f"/allocations/{created}/release", None, 202)
    gpus = write("take", "/reservations", {"sku": place.sku, "gpus": 1, "region": place.region, "holder_id": HOLDER})
    use = {"reservation_id": gpus["reservation_id"], "holder_id": HOLDER}
    write("use", "/allocations", use | {"ssh_key_ids": one_gpu(tenant, place)["ssh_key_ids"]})
    write("other", "/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()})
    write("taken", "/reservations", {"resources": ["no-such-seat"], "holder_id": HOLDER}, 404)
    return made


def test_each_operation_returns_the_version_of_its_last_event(api: PublicApi, tenant: Caller, place: Place) -> None:
    name = uuid.uuid4().hex
    for key in writes(api, tenant, place, name):
        version = asked(tenant, key)["version"]
        assert version == last_event(api, tenant, key), key
    name = fresh("seat")
    assert api.admin.call("POST", "/admin/resources", {"id": name}, key=name).status_code == 201
    assert asked(api.admin, name)["version"] == last_event(api, api.admin, name)


def test_two_callers_with_one_key_have_their_own_versions(api: PublicApi, tenant: Caller, place: Place) -> None:
    """Also where the operator's event is the tenant's: both carry the key and the tenant."""
    key, other = uuid.uuid4().hex, new_tenant(api.admin)
    created = tenant.make("/allocations", one_gpu(tenant, place))["allocation_id"]
    assert act(tenant, "confirm", str(uuid.uuid4()), key=key).status_code == 404
    assert other.call("POST", "/ssh-keys", {"name": "k", "public_key": ssh_key()}, key=key).status_code == 201
    released = api.admin.call("POST", f"/admin/allocations/{created}/force-release", {"reason": "test"}, key=key)
    assert released.status_code == 202, released.text
    versions = [asked(caller, key)["version"] for caller in (tenant, other, api.admin)]
    rows = api.database.execute("select version from log where operation_key = %s order by version", (key,)).fetchall()
    assert [(version,) for version in versions] == rows


def test_a_key_that_was_never_used_has_the_version_of_its_fence(api: PublicApi, tenant: Caller) -> None:
    key = uuid.uuid4().hex
    first = asked(tenant, key)
    assert first["state"] == "unknown"
    assert first["version"] == last_event(api, tenant, key) == asked(tenant, key)["version"]


def test_a_replay_carries_the_version_in_a_header(api: PublicApi, tenant: Caller, place: Place) -> None:
    name = uuid.uuid4().hex
    body = one_gpu(tenant, place)
    seats = {"resources": [seat(api)], "holder_id": HOLDER}
    reservation = tenant.make("/reservations", {"resources": [seat(api)], "holder_id": HOLDER})["reservation_id"]
    for path, content in (
        ("/allocations", body),
        ("/reservations", seats),
        (f"/reservations/{reservation}/confirm", {"holder_id": HOLDER}),
        ("/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()}),
        ("/reservations", {"resources": ["no-such-seat"], "holder_id": HOLDER}),
    ):
        key = f"{name}-{path}-{len(str(content))}"
        first = tenant.call("POST", path, content, key=key)
        assert "berth-version" not in first.headers, "nothing has sequenced its event yet"
        version = tenant.call("GET", f"/operations/{key.replace('/', '%2F')}").json()["version"]
        forget(api)
        again = tenant.call("POST", path, content, key=key)
        assert again.headers["idempotent-replayed"] == "true"
        assert again.headers["berth-version"] == str(version)
        assert again.content == first.content


def test_a_commit_is_returned_as_it_was_with_version_and_leader(api: PublicApi, tenant: Caller) -> None:
    keys, name = Keys(tenant), uuid.uuid4().hex
    first = keys.commit([put(b"k", b"1")], request_id=f"{name}-first")
    keys.committed([put(b"k", b"2")])
    refused = keys.commit([put(b"k", b"3")], [unchanged(b"k", first["version"])], request_id=f"{name}-refused")
    assert (first["status"], refused["status"]) == ("committed", "not_committed")
    for answer in (first, refused):
        operation = asked(tenant, answer["request_id"])
        assert operation["result"] == answer
        assert operation["version"] == answer["version"]


def test_no_version_is_returned_while_the_leader_is_not_accepted(api: PublicApi, tenant: Caller) -> None:
    """After a failover the log's end may still move to other versions."""
    key = uuid.uuid4().hex
    assert tenant.call("POST", "/ssh-keys", {"name": fresh("key"), "public_key": ssh_key()}, key=key).status_code == 201
    version = asked(tenant, key)["version"]
    api.database.execute("update log_head set leader_id = '1-00000001'")
    try:
        operation = asked(tenant, key)
    finally:
        api.database.execute("update log_head set leader_id = postgres_leader_id()")
    assert (operation["state"], operation["version"]) == ("committed", None)
    assert asked(tenant, key)["version"] == version


def test_a_response_to_a_commit_carries_its_version(tenant: Caller) -> None:
    body = {"operations": [put(b"k", b"1")], "request_id": uuid.uuid4().hex}
    for _ in range(2):
        answer = tenant.http.post("/v1/commit", json=body, headers={"authorization": f"Bearer {tenant.key}"})
        assert answer.headers["berth-version"] == str(answer.json()["version"])


def test_the_version_is_kept_when_the_log_drops_the_event(api: PublicApi, tenant: Caller, place: Place) -> None:
    keys, name = Keys(tenant), uuid.uuid4().hex
    made = [*writes(api, tenant, place, name)]
    committed = keys.commit([put(b"k", b"1")], request_id=f"{name}-commit")
    versions = {key: asked(tenant, key)["version"] for key in [*made, f"{name}-commit"]}
    newest = max(versions.values())
    cut_log(api.database, 50)
    append(api.database, 200)
    published(api.database)
    while number_of(api.database, "select version from log_first") <= newest:
        assert truncate(api.database) == "dropped"
    assert number_of(api.database, "select count(*) from log where version <= %s", newest) == 0
    assert {key: asked(tenant, key)["version"] for key in versions} == versions
    assert asked(tenant, f"{name}-commit")["result"] == committed
    forget(api)
    body = {"operations": [put(b"k", b"1")], "request_id": f"{name}-commit"}
    again = tenant.http.post("/v1/commit", json=body, headers={"authorization": f"Bearer {tenant.key}"})
    assert (again.status_code, again.json()) == (200, committed)
    status = tenant.http.get(
        f"/v1/status?request_id={name}-commit&min_version=0", headers={"authorization": f"Bearer {tenant.key}"}
    ).json()
    assert status == {name: committed[name] for name in ("status", "version", "leader_id")}


@pytest.mark.full
def test_versions_are_stored_before_a_partition_goes_a_bounded_number_at_a_time(api: PublicApi) -> None:
    owner = new_tenant(api.admin)
    cut_log(api.database, 50)
    append(api.database, 60)
    api.database.execute(
        """with written as (
               insert into outbox (event_type, correlation_id, subject, operation_key, payload)
               select 'node.online', uuidv7(), 'things/' || n, 'many-' || n, '{}' from generate_series(1, 5001) n
               returning event_id, operation_key)
           insert into operations (scope, key, fingerprint, status, code, body, retire_after, event_id)
           select %s, operation_key, sha256('x'), 200, 'ok', '{}', now() + interval '1 day', event_id from written""",
        (owner.tenant_id,),
    )
    cut_log(api.database, 10_000)
    newest = append(api.database, 60)
    append(api.database, 20_000)
    published(api.database)
    missing = "select count(*) from operations where scope = %s and version is null"
    outcomes = []
    while number_of(api.database, "select version from log_first") <= newest:
        outcomes.append(truncate(api.database))
        assert outcomes[-1] in ("storing", "dropped")
    assert "storing" in outcomes
    assert number_of(api.database, missing, owner.tenant_id) == 0
