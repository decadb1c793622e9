"""`berth reserve`, `resources`, `operations` and `availability` against a real API: what they print and how they end."""

from __future__ import annotations

import json
import shlex
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from berth.client import OperationKey
from tests.api.calling import fresh, new_place
from tests.client.deployment import Deployment, Tenant, client_tenant
from tests.support.shell import ID, Shell, bare, deployment

__all__ = ["bare", "deployment"]


@pytest.fixture(scope="module")
def tenant(deployment: Deployment) -> Iterator[Tenant]:
    """A tenant of the module's."""
    with client_tenant(deployment, asynchronous=False) as made:
        yield made


@pytest.fixture
def me(deployment: Deployment, tenant: Tenant) -> Shell:
    """The tenant at a terminal."""
    return Shell(deployment.address, tenant.caller.key)


@pytest.fixture
def operator(deployment: Deployment) -> Shell:
    """An operator at a terminal."""
    return Shell(deployment.address, deployment.admin.key)


def test_a_reservation_from_hold_to_cancel(me: Shell, operator: Shell) -> None:
    seats = [operator.json(f"resources create {fresh('seat')}")["id"] for _ in range(2)]
    wanted = " ".join(f"--resource {seat}" for seat in seats)
    made = me.json(f"reserve create {wanted} --holder team-7 --ttl 600 --name lab")
    id_ = made["reservation_id"]
    assert (made["status"], made["resources"], made["holder_id"]) == ("hold", seats, "team-7")
    assert me.json(f"resources show {seats[0]}")["state"] == "reserved"
    busy = me.refused(f"reserve create --resource {seats[1]} --holder you", "resource_busy")
    assert "Traceback" not in busy
    me.refused(f"reserve confirm {id_} --holder you", "holder_mismatch")
    confirmed = me.json(f"reserve confirm {id_} --holder team-7")
    assert (confirmed["status"], confirmed["result"], confirmed["expires_at"]) == ("confirmed", "ok", None)
    assert me.json(f"reserve confirm {id_} --holder team-7")["result"] == "noop"
    assert [one["reservation_id"] for one in me.json("reserve list --state confirmed")["items"]] == [id_]
    assert "lab" in me.run("reserve list").stdout
    assert me.json(f"reserve cancel {id_} --holder team-7")["status"] == "cancelled"
    me.refused(f"reserve confirm {id_} --holder team-7", "invalid_state")
    assert "cancelled" in me.run(f"reserve show {id_}").stdout
    assert me.json(f"resources show {seats[0]}")["state"] == "available"


def test_an_operator_confirms_and_cancels_for_a_tenant(me: Shell, operator: Shell, tenant: Tenant) -> None:
    seat = operator.json(f"resources create {fresh('seat')}")["id"]
    id_ = me.json(f"reserve create --resource {seat} --holder team-7")["reservation_id"]
    operator.refused(f"reserve confirm {id_} --holder team-7", "forbidden")
    named = f"{id_} --holder team-7 --tenant {tenant.caller.tenant_id}"
    assert operator.json(f"reserve confirm {named}")["status"] == "confirmed"
    assert operator.json(f"reserve cancel {named}")["status"] == "cancelled"


def test_gpus_are_held_for_a_window(me: Shell, tenant: Tenant) -> None:
    starts = datetime.now(UTC) + timedelta(days=1)
    window = f"--starts-at {starts.isoformat()} --ends-at {(starts + timedelta(hours=2)).isoformat()}"
    what = f"--sku {tenant.place.sku} --gpus 2 --region {tenant.place.region} --count 2"
    made = me.json(f"reserve create {what} {window} --holder me")
    assert (made["gpus"], made["count"]) == (2, 2)
    assert datetime.fromisoformat(made["starts_at"]) == starts
    assert f"2 x 2 {tenant.place.sku}" in me.run(f"reserve show {made['reservation_id']}").stdout
    template = me.json(f"reserve create {what} --holder me --starts-by-itself --label team=seven --restart never")[
        "allocation"
    ]
    assert (template["ssh_key_ids"], template["labels"]) == ([str(tenant.ssh_key_id)], {"team": "seven"})
    assert template["restart_policy"] == "never"


def test_a_key_repeats_a_hold_and_shows_its_outcome(me: Shell, operator: Shell, deployment: Deployment) -> None:
    seat = operator.json(f"resources create {fresh('seat')}")["id"]
    key = str(OperationKey("a shell: mine", 1, "0" * 16, int(datetime.now(UTC).timestamp())))
    line = f"reserve create --resource {seat} --holder me --idempotency-key {shlex.quote(key)}"
    made = me.json(line)
    assert me.json(line) == made
    told = me.json(f"operations show {shlex.quote(key)}")
    assert (told["state"], told["status"]) == ("committed", 201)
    assert told["result"].items() <= made.items()
    assert "it was done, exactly once" in me.run(f"operations show {shlex.quote(key)}").stdout
    # Of another's keys nothing is known.
    assert operator.json(f"operations show {shlex.quote(key)}")["state"] == "unknown"
    assert deployment.count("select count(*) from reservations where operation_key = %s", key) == 1


@pytest.mark.parametrize(
    "key", ["mine", "a/b", "..", ".", "with space", " at the ends ", '"', "%2F", "a%3Ab", "?x=1&y#z"]
)
def test_a_status_query_fences_an_unknown_key(me: Shell, operator: Shell, deployment: Deployment, key: str) -> None:
    seat = operator.json(f"resources create {fresh('seat')}")["id"]
    quoted = shlex.quote(key)
    told = me.json(f"operations show {quoted}")
    assert (told["key"], told["state"]) == (key, "unknown")
    assert "nothing is done under this key" in me.run(f"operations show {quoted}").stdout
    me.refused(f"reserve create --resource {seat} --holder me --idempotency-key {quoted}", "operation_fenced")
    assert deployment.count("select count(*) from reservations where operation_key = %s", key) == 0


def test_a_key_older_than_the_retention_is_retired(me: Shell) -> None:
    old = str(OperationKey("c", 1, "0" * 16, int(datetime.now(UTC).timestamp()) - 3 * 86_400))
    done = me.run(f"operations show {old}")
    assert (done.exit_code, "outcome is unknown" in done.stderr) == (4, True)
    as_json = me.run(f"operations show {old} --output json")
    assert (as_json.exit_code, json.loads(as_json.stdout)["state"]) == (4, "retired")
    assert me.run("operations show theirs --since 2020-01-01T00:00:00Z").exit_code == 4


def test_resources_and_availability_now(me: Shell, operator: Shell, tenant: Tenant) -> None:
    seat = operator.json(f"resources create {fresh('seat')}")["id"]
    operator.refused(f"resources create {seat}", "already_exists")
    me.refused("resources create mine", "forbidden")
    assert operator.json(f"resources out-of-service {seat} --reason 'lent to Ada'")["state"] == "out_of_service"
    assert "lent to Ada" in me.refused(f"reserve create --resource {seat} --holder me", "resource_out_of_service")
    assert operator.json(f"resources in-service {seat}")["state"] == "available"
    me.refused(f"resources in-service {seat}", "forbidden")
    assert seat in [one["id"] for one in me.json("resources list --kind registered")["items"]]
    slot = f"slot:{tenant.place.node['id']}:3"
    assert me.json(f"resources show {slot}")["id"] == slot
    assert {one["kind"] for one in me.json("resources list --kind slot")["items"]} == {"slot"}
    (offer,) = me.json(f"availability --sku {tenant.place.sku} --region {tenant.place.region}")["items"]
    assert offer["total_gpus"] == 8
    assert tenant.place.sku in me.run(f"availability --sku {tenant.place.sku}").stdout


def test_availability_in_a_window(me: Shell, deployment: Deployment) -> None:
    place = new_place(deployment.admin, deployment.database)
    starts = datetime.now(UTC) + timedelta(days=1)
    window = f"--starts-at {starts.isoformat()} --ends-at {(starts + timedelta(hours=2)).isoformat()}"
    what = f"--sku {place.sku} --gpus 8 --region {place.region}"
    me.json(f"reserve create {what} --holder me {window}")
    (offer,) = me.json(f"availability {what} {window}")["items"]
    assert (offer["available"], offer["gpus"], offer["count"]) == (0, 8, 1)
    assert datetime.fromisoformat(offer["earliest_at"]) == starts + timedelta(hours=2)
    (never,) = me.json(f"availability {what} --count 2")["items"]
    assert (never["earliest_at"], never["reason"]) == (None, "too_few_nodes")
    assert "too_few_nodes" in me.run(f"availability {what} --count 2").stdout


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (f"reserve show {ID}", "reservation_not_found"),
        (f"reserve cancel {ID} --holder me", "reservation_not_found"),
        ("reserve create --resource no-such-seat --holder me", "resource_not_found"),
        ("resources show no-such-seat", "resource_not_found"),
        ("reserve create --resource a --holder me --ttl 0", "ttl_out_of_range"),
        ("reserve create --resource a --holder me --ends-at 2001-01-01T00:00:00Z", "window_invalid"),
    ],
)
def test_a_refusal_is_one_sentence(me: Shell, line: str, code: str) -> None:
    assert me.refused(line, code).startswith("berth: ")


@pytest.mark.parametrize(
    "line",
    [
        "reserve create --holder me", "reserve create --holder me --resource a --sku s --gpus 1 --region r",
        "reserve create --holder me --sku s --gpus 1", "reserve create --holder me --resource a --count 2",
        "reserve create --resource a", "reserve create --holder me --resource a --starts-at soon",
        "reserve create --holder me --resource a --image i",
        "reserve create --holder me --resource a --starts-by-itself", f"reserve confirm {ID}", f"reserve cancel {ID}",
        "reserve show mine", "availability --starts-at tomorrow", "availability --gpus 0", "operations show",
        "operations show k --since now", "resources list --kind cupboard", "alloc create --sku s --gpus 1",
        f"alloc create --reservation {ID}", f"alloc create --sku s --gpus 1 --region r --reservation {ID} --holder me",
    ],
)  # fmt: skip
def test_wrong_usage(line: str) -> None:
    done = Shell("http://127.0.0.1:1", "berth_aaaaaaaa_key").run(line)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert "Traceback" not in done.stderr


def test_a_conflict_names_the_callers_own_reservations(me: Shell, operator: Shell) -> None:
    seat = operator.json(f"resources create {fresh('seat')}")["id"]
    id_ = me.json(f"reserve create --resource {seat} --holder me")["reservation_id"]
    told = me.refused(f"reserve create --resource {seat} --holder me", "resource_busy")
    assert told.endswith(f"; yours: reservation {id_}")
    me.json(f"reserve cancel {id_} --holder me")


def test_a_holder_is_compared_exactly(me: Shell, operator: Shell) -> None:
    seat = operator.json(f"resources create {fresh('seat')}")["id"]
    id_ = uuid.UUID(me.json(f"reserve create --resource {seat} --holder 'A 🚢: b'")["reservation_id"])
    me.refused(f"reserve cancel {id_} --holder 'a 🚢: b'", "holder_mismatch")
    assert me.json(f"reserve cancel {id_} --holder 'A 🚢: b'")["result"] == "ok"
