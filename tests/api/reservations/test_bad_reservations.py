"""Bad input to reservations, line by line: each is answered with its code, and the tables are as they were.

A definite refusal leaves its operation and one `operation.refused`; what is not even a request leaves nothing at all.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.api.calling import Caller, Place, one_gpu, problem, refusal, ssh_key
from tests.api.reservations.reserving import DAY, HOLDER, act, hold, moment, seat, try_hold
from tests.support.public_api import PublicApi
from tests.support.public_api import module_place as place
from tests.support.public_api import module_tenant as tenant

__all__ = ["place", "tenant"]

HOLD_SECONDS_MAX = 3_600
WINDOW_DAYS_MAX = 5 * 365
KEPT = ("reservations", "claims", "allocations", "resources", "outbox", "log", "operations")


@pytest.fixture(scope="module")
def resource(api: PublicApi) -> str:
    """A seat that stays free."""
    return seat(api)


def rows(api: PublicApi) -> dict[str, int]:
    """How many rows each table has, and how much of the quotas is used."""
    columns = ", ".join(f"(select count(*) from {table})" for table in KEPT)
    row = api.database.execute(f"select {columns}, (select sum(gpus_used) from tenant_quotas)".encode()).fetchone()
    assert row is not None
    return dict(zip((*KEPT, "gpus_used"), (int(str(number)) for number in row), strict=True))


@contextmanager
def unchanged(api: PublicApi, *, refused: int = 0) -> Iterator[None]:
    """Only so many refusals are stored and emitted; no other row changes."""
    before = rows(api)
    told = api.database.execute("select coalesce(max(id), 0) from outbox").fetchone()
    yield
    after = rows(api)
    assert after == before | {"outbox": before["outbox"] + refused, "operations": before["operations"] + refused}
    new = api.database.execute("select event_type from outbox where id > %s", told).fetchall()
    assert set(new) <= {("operation.refused",)}


def refuse_each_way(
    api: PublicApi, tenant: Caller, place: Place, resource: str, members: dict[str, Any]
) -> set[tuple[int, str]]:
    """The refusals of named resources and of GPUs; repeating one is answered the same and is one refusal."""
    refusals = set()
    for what in ({"resources": [resource]}, {"sku": place.sku, "gpus": 1, "region": place.region}):
        body, key = {"holder_id": HOLDER, **what, **members}, uuid.uuid4().hex
        with unchanged(api, refused=1):
            first = tenant.call("POST", "/reservations", body, key=key)
            refusals.add(refusal(first))
            assert tenant.call("POST", "/reservations", body, key=key).content == first.content
    return refusals


REVERSED = [(2 * DAY, DAY), (DAY, DAY - timedelta(microseconds=1)), (2 * DAY, -DAY), (timedelta(0), -DAY)]
EMPTY = [(DAY, DAY), (1_000 * DAY, 1_000 * DAY)]
PAST = [(None, -DAY), (-2 * DAY, -DAY), (-DAY, timedelta(microseconds=-1)), (None, timedelta(days=-700_000))]
ABSURD = [
    ((WINDOW_DAYS_MAX + 1) * DAY, None), ((WINDOW_DAYS_MAX + 1) * DAY, (WINDOW_DAYS_MAX + 2) * DAY),
    (None, (WINDOW_DAYS_MAX + 1) * DAY), (DAY, (WINDOW_DAYS_MAX + 3) * DAY), (2_000_000 * DAY, None),
]  # fmt: skip


@pytest.mark.parametrize("windows", [REVERSED, EMPTY, PAST, ABSURD], ids=["reversed", "empty", "past", "absurd"])
def test_windows(
    api: PublicApi,
    tenant: Caller,
    place: Place,
    resource: str,
    windows: list[tuple[timedelta | None, timedelta | None]],
) -> None:
    now = datetime.now(UTC)
    for starts, ends in windows:
        members = {
            name: (now + after).isoformat() for name, after in (("starts_at", starts), ("ends_at", ends)) if after
        }
        if starts == timedelta(0):
            members["starts_at"] = now.isoformat()
        assert refuse_each_way(api, tenant, place, resource, members) == {(422, "window_invalid")}


@pytest.mark.parametrize(
    "members",
    [
        {"starts_at": "9999-12-31T23:59:59.999999Z"},
        {"ends_at": "9999-12-31T00:00:00Z"},
        {"starts_at": "9999-12-31T23:59:59-23:59", "ends_at": None},
    ],
)
def test_windows_beyond_all_times(
    api: PublicApi, tenant: Caller, place: Place, resource: str, members: dict[str, Any]
) -> None:
    assert refuse_each_way(api, tenant, place, resource, members) == {(422, "slot_overflow")}


NO_TIMES = [
    "", "now", "2030-01-01", "2030-01-01T00:00:00", "2030-13-01T00:00:00Z", "2030-01-01T24:00:01Z", "2030-01-01T00:00:60Z",
    "20300101T000000Z", "10000-01-01T00:00:00Z", "-001-01-01T00:00:00Z", "infinity", "2030-01-01T00:00:00+25:00",
    "२०३०-01-01T00:00:00Z", 0, -1, 1e300, True, [], {},
]  # fmt: skip


def test_what_is_no_time(api: PublicApi, tenant: Caller, resource: str) -> None:
    with unchanged(api):
        for value in NO_TIMES:
            for name in ("starts_at", "ends_at"):
                members: dict[str, Any] = {name: value}
                refused = problem(try_hold(tenant, resource, **members), 422, "invalid")
                assert [error["field"] for error in refused["errors"]] == [name], value


@pytest.mark.parametrize(
    ("ttl_seconds", "code"),
    [
        (0, "ttl_out_of_range"), (-1, "ttl_out_of_range"), (-(2**31), "ttl_out_of_range"),
        (-(2**63) - 1, "ttl_out_of_range"), (-(10**400), "ttl_out_of_range"), (HOLD_SECONDS_MAX + 1, "ttl_out_of_range"),
        (2**31, "ttl_out_of_range"), (10**12, "slot_overflow"), (2**63 - 1, "slot_overflow"), (2**64, "slot_overflow"),
        (10**400, "slot_overflow"),
    ],
)  # fmt: skip
def test_deadlines(api: PublicApi, tenant: Caller, place: Place, resource: str, ttl_seconds: int, code: str) -> None:
    assert refuse_each_way(api, tenant, place, resource, {"ttl_seconds": ttl_seconds}) == {(422, code)}


def test_deadlines_at_their_bounds(api: PublicApi, tenant: Caller) -> None:
    """What is refused beside them is accepted at them."""
    for ttl_seconds in (1, HOLD_SECONDS_MAX):
        made = hold(tenant, seat(api), ttl_seconds=ttl_seconds)
        lasts = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["held_at"])
        assert lasts == timedelta(seconds=ttl_seconds)


def test_what_is_no_ttl(api: PublicApi, tenant: Caller, resource: str) -> None:
    with unchanged(api):
        values: list[Any] = ["900", 0.5, True, None, [], {}, "", "PT15M"]
        for value in values:
            refused = problem(try_hold(tenant, resource, ttl_seconds=value), 422, "invalid")
            assert [error["field"] for error in refused["errors"]] == ["ttl_seconds"], value
        headers = {"authorization": f"Bearer {tenant.key}", "content-type": "application/json"}
        for number in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"0x10", b"09"):
            body = b'{"holder_id": "h", "resources": ["%b"], "ttl_seconds": %b}' % (resource.encode(), number)
            answer = tenant.http.post("/api/v1/reservations", content=body, headers=headers)
            assert answer.status_code in (400, 422), (number, answer.text)
            assert answer.json()["code"] in ("malformed", "invalid")


def test_ten_thousand_resources(api: PublicApi, tenant: Caller, resource: str) -> None:
    many = {
        "distinct": [f"seat-{n}" for n in range(9_000)],
        "one of them, over and over": [resource] * 9_000,
        "one too many": [f"seat-{n}" for n in range(1_025)],
    }
    for names in many.values():
        with unchanged(api):
            refused = problem(try_hold(tenant, *names), 422, "invalid")
            assert [error["field"] for error in refused["errors"]] == ["resources"]
    with unchanged(api):
        too_long = try_hold(tenant, *[f"a-long-name-of-a-seat-that-does-not-exist-{n:0100}" for n in range(9_000)])
        problem(too_long, 413, "too_large")
    with unchanged(api, refused=1):
        unknown = problem(
            try_hold(tenant, resource, *[f"absent-seat-{n}" for n in range(1_023)]), 404, "resource_not_found"
        )
        assert len(unknown["resources"]) == 1_023
    with unchanged(api):
        problem(
            tenant.call("POST", "/reservations", {"holder_id": HOLDER, "resources": [resource], "count": 10_000}),
            422,
            "invalid",
        )


SOUND_KEYS = [
    "a key with spaces", "a:b:c", "a/b?c#d&e=f", "a,b;c|d", "%2F%00", "'; drop table operations; --", '"quoted" inside', "..",
    "\\", "~" * 255,
]  # fmt: skip


@pytest.mark.parametrize("key", SOUND_KEYS)
def test_keys_with_separators_and_spaces_are_keys(api: PublicApi, tenant: Caller, key: str) -> None:
    name = seat(api)
    made = try_hold(tenant, name, key=key)
    assert made.status_code == 201, made.text
    with unchanged(api):
        again = try_hold(tenant, name, key=key)
        assert (again.status_code, again.headers["idempotent-replayed"], again.content) == (201, "true", made.content)
        problem(try_hold(tenant, name, key=key, ttl_seconds=5), 422, "operation_conflict")


NO_KEYS = {
    "emoji": "🚀".encode(), "utf-8": "schlüssel".encode(), "latin-1": "schlüssel".encode("latin-1"), "256": b"k" * 256,
    "300": b"k" * 300, "empty": b"", "quotes": b'""', "tab": b"a\tb", "delete": b"a\x7fb",
}  # fmt: skip


@pytest.mark.parametrize("key", NO_KEYS.values(), ids=NO_KEYS)
def test_keys_that_are_none(api: PublicApi, tenant: Caller, resource: str, key: bytes) -> None:
    reservation = hold(tenant, seat(api))["reservation_id"]
    writes = [
        ("/api/v1/reservations", {"holder_id": HOLDER, "resources": [resource]}),
        (f"/api/v1/reservations/{reservation}/confirm", {"holder_id": HOLDER}),
        (f"/api/v1/reservations/{reservation}/cancel", {"holder_id": HOLDER}),
    ]
    headers = [
        (b"authorization", f"Bearer {tenant.key}".encode()), (b"content-type", b"application/json"), (b"idempotency-key", key),
    ]  # fmt: skip
    with unchanged(api):
        for path, body in writes:
            answer = tenant.http.request("POST", path, content=json.dumps(body).encode(), headers=headers)
            assert problem(answer, 400, "malformed")["outcome"] == "not_done"
    assert tenant.get(f"/reservations/{reservation}")["status"] == "hold"


def test_the_same_key_for_another_endpoint(api: PublicApi, tenant: Caller, place: Place, resource: str) -> None:
    """A key is one write's, done or refused; on every other path it is refused, and the first answer stays."""
    own, other = (hold(tenant, seat(api))["reservation_id"] for _ in range(2))
    body = {"holder_id": HOLDER, "resources": [seat(api)]}
    used: dict[str, httpx.Response] = {
        key: tenant.call("POST", path, content, key=key)
        for key, path, content in (
            ("of-a-hold", "/reservations", body),
            ("of-a-confirm", f"/reservations/{own}/confirm", {"holder_id": HOLDER}),
            ("of-a-refusal", "/reservations", {"holder_id": HOLDER, "resources": ["nothing"]}),
        )
    }
    assert [answer.status_code for answer in used.values()] == [201, 200, 404]
    create = one_gpu(tenant, place)
    elsewhere: list[tuple[str, str, Any]] = [
        ("POST", "/reservations", {"holder_id": HOLDER, "resources": [resource]}),
        ("POST", f"/reservations/{other}/confirm", {"holder_id": HOLDER}),
        ("POST", f"/reservations/{own}/cancel", {"holder_id": HOLDER}),
        ("POST", "/allocations", create),
        ("POST", "/allocations", {"reservation_id": own, "holder_id": HOLDER, "ssh_key_ids": create["ssh_key_ids"]}),
        ("POST", "/ssh-keys", {"name": "x", "public_key": ssh_key()}),
        ("DELETE", f"/ssh-keys/{create['ssh_key_ids'][0]}", None),
    ]  # fmt: skip
    with unchanged(api):
        for key in used:
            for method, path, content in elsewhere:
                problem(tenant.call(method, path, content, key=key), 422, "operation_conflict")
        assert tenant.call("POST", "/reservations", body, key="of-a-hold").content == used["of-a-hold"].content
    assert tenant.get(f"/reservations/{other}")["status"] == "hold"
    assert tenant.get(f"/reservations/{own}")["status"] == "confirmed"


def test_a_client_whose_clock_is_late(api: PublicApi, tenant: Caller, resource: str) -> None:
    """What the client calls the future is past here: refused with the server's time. What has begun is held from now on."""
    with unchanged(api, refused=1):
        over = try_hold(tenant, resource, starts_at=moment(-2 * DAY), ends_at=moment(-DAY))
        told = datetime.fromisoformat(problem(over, 422, "window_invalid")["server_time"])
        assert abs(told - datetime.now(UTC)) < timedelta(minutes=5)
    before = datetime.now(UTC)
    made = hold(tenant, seat(api), starts_at=moment(-400 * DAY), ends_at=moment(DAY), ttl_seconds=60)
    starts, expires = (datetime.fromisoformat(made[name]) for name in ("starts_at", "expires_at"))
    assert before - timedelta(seconds=5) <= starts <= datetime.now(UTC) + timedelta(seconds=5)
    assert expires - starts == timedelta(seconds=60), "both by the database's clock"


def test_a_client_whose_clock_jumps_between_its_tries(api: PublicApi, tenant: Caller) -> None:
    """A window counted anew from a clock that jumped is another content: refused, whichever way it jumped."""
    name, key = seat(api), uuid.uuid4().hex
    first = try_hold(tenant, name, key=key, starts_at=moment(DAY), ends_at=moment(2 * DAY))
    assert first.status_code == 201
    with unchanged(api):
        for jump in (timedelta(seconds=1), timedelta(hours=1), -timedelta(hours=1), -3 * DAY):
            again = try_hold(tenant, name, key=key, starts_at=moment(DAY + jump), ends_at=moment(2 * DAY + jump))
            problem(again, 422, "operation_conflict")


def test_what_a_client_says_of_its_clock_is_not_asked(api: PublicApi, tenant: Caller) -> None:
    for date in ("Thu, 01 Jan 1970 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "not a date"):
        body = {"holder_id": HOLDER, "resources": [seat(api)], "ends_at": moment(-DAY)}
        with unchanged(api, refused=1):
            headers = {"authorization": f"Bearer {tenant.key}", "date": date}
            assert refusal(tenant.http.post("/api/v1/reservations", json=body, headers=headers)) == (
                422,
                "window_invalid",
            )


def test_asking_with_a_clock_that_is_wrong(api: PublicApi, tenant: Caller) -> None:
    """A time of the first try that has not come yet, here, is refused, and leaves no tombstone to fence the try off."""
    key = uuid.uuid4().hex
    with unchanged(api):
        for since in (moment(timedelta(hours=1)), moment(4_000 * DAY), "9999-12-31T23:59:59Z", "yesterday", ""):
            problem(tenant.call("GET", f"/operations/{key}", since=since), 422, "invalid")
    with unchanged(api):
        for since in (moment(-30 * DAY), "0001-01-01T00:00:00Z"):
            told = tenant.get(f"/operations/{key}", since=since)
            assert (told["state"], told["definite"]) == ("retired", False), "too long ago for a definite answer"
    name = seat(api)
    assert try_hold(tenant, name, key=key).status_code == 201, "nothing fenced it off"


def test_verbs_on_what_is_no_reservation(api: PublicApi, tenant: Caller) -> None:
    with unchanged(api):
        for id_ in ("nothing", "0", "%F0%9F%9A%80", "..%2F..", "a" * 5_000, str(uuid.UUID(int=2**128 - 1)) + "0"):
            for verb in ("confirm", "cancel"):
                answer = tenant.call("POST", f"/reservations/{id_}/{verb}", {"holder_id": HOLDER})
                assert answer.status_code in (404, 422), (id_, answer.text)
    for number in (0, 2**128 - 1, 2**63, 2**64):
        for verb in ("confirm", "cancel"):
            with unchanged(api, refused=1):
                problem(act(tenant, verb, str(uuid.UUID(int=number))), 404, "reservation_not_found")
