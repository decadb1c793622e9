"""Availability in a window is what can really be held, and the earliest time is the earliest (docs/reference/http-api.md)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.api.calling import Caller, Place, fresh, new_node, new_region, one_gpu, problem, refusal
from tests.support.public_api import PublicApi

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
BEGAN = datetime.now(UTC).replace(microsecond=0)


def day(number: float) -> datetime:
    """A whole second, so many days from when the tests began."""
    return BEGAN + number * DAY


def text(moment: datetime | None) -> str | None:
    """RFC 3339, as a query carries it."""
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def try_hold(
    tenant: Caller, place: Place, starts: datetime | None, ends: datetime | None, gpus: int, count: int
) -> Any:
    """A hold of GPUs, whatever comes of it."""
    body = {
        "sku": place.sku, "gpus": gpus, "region": place.region, "count": count, "holder_id": "me",
        "starts_at": text(starts), "ends_at": text(ends),
    }  # fmt: skip
    return tenant.call("POST", "/reservations", {name: value for name, value in body.items() if value is not None})


def hold(
    tenant: Caller, place: Place, starts: datetime | None, ends: datetime | None, gpus: int, count: int = 1
) -> Any:
    """A hold that succeeds."""
    answer = try_hold(tenant, place, starts, ends, gpus, count)
    assert answer.status_code == 201, answer.text
    return answer.json()


def look(tenant: Caller, place: Place, starts: datetime | None, ends: datetime | None, **asked: Any) -> Any:
    """The one offer of the place, in that window."""
    query = {"sku": place.sku, "region": place.region, "starts_at": text(starts), "ends_at": text(ends), **asked}
    (item,) = tenant.get("/availability", **{name: value for name, value in query.items() if value is not None})[
        "items"
    ]
    return item


def test_what_is_said_to_be_available_can_be_held_and_not_one_more(tenant: Caller, place: Place) -> None:
    hold(tenant, place, day(2), day(3), gpus=2)
    hold(tenant, place, day(5), None, gpus=1, count=2)
    for starts, ends, expected in [(day(1), day(4), 6), (day(3), day(5), 8), (day(2.5), day(6), 4), (day(6), None, 6)]:
        item = look(tenant, place, starts, ends, gpus=1)
        assert item["available"] == expected
        held = hold(tenant, place, starts, ends, gpus=1, count=item["available"])
        refused = problem(try_hold(tenant, place, starts, ends, 1, 1), 409, "sku_unavailable")
        assert refused["reason"] == "busy_in_window"
        assert look(tenant, place, starts, ends, gpus=1)["available"] == 0
        tenant.make(f"/reservations/{held['reservation_id']}/cancel", {"holder_id": "me"})


def test_back_to_back_windows_share_a_slot(tenant: Caller, place: Place) -> None:
    for first in (1, 3, 2):
        hold(tenant, place, day(first), day(first + 1), gpus=8)
    assert refusal(try_hold(tenant, place, day(2), day(2) + SECOND, 1, 1)) == (409, "sku_unavailable")
    assert refusal(try_hold(tenant, place, day(4) - SECOND, day(5), 1, 1)) == (409, "sku_unavailable")
    hold(tenant, place, day(4), None, gpus=8)


def test_the_earliest_time_is_one_and_a_second_before_is_none(tenant: Caller, place: Place) -> None:
    hold(tenant, place, day(1), day(2), gpus=8)
    second = hold(tenant, place, day(2.5), day(4), gpus=1)
    item = look(tenant, place, day(1), day(2), gpus=8)
    assert (item["available"], item["earliest_at"]) == (0, second["ends_at"]), "half a day between them is too short"
    earliest = datetime.fromisoformat(item["earliest_at"])
    problem(try_hold(tenant, place, earliest - SECOND, earliest - SECOND + DAY, 8, 1), 409, "sku_unavailable")
    hold(tenant, place, earliest, earliest + DAY, gpus=8)
    assert look(tenant, place, day(1), day(1.5), gpus=8)["earliest_at"] == text(day(2)).replace("Z", ".000000Z")  # type: ignore[union-attr]


def test_a_request_that_never_fits_is_refused_with_the_reason(tenant: Caller, place: Place) -> None:
    item = look(tenant, place, day(1), day(2), gpus=8, count=2)
    assert (item["available"], item["earliest_at"], item["reason"]) == (1, None, "too_few_nodes")
    hold(tenant, place, day(1), None, gpus=1)
    item = look(tenant, place, day(1), day(2), gpus=8)
    assert (item["earliest_at"], item["reason"]) == (None, "busy_until_horizon")
    assert (item["free_gpus"], item["largest_now"], item["total_gpus"]) == (7, 2, 8)


def test_a_create_that_ends_takes_what_is_free_until_then(api: PublicApi, tenant: Caller, place: Place) -> None:
    hold(tenant, place, day(1), None, gpus=8)
    assert tenant.call("POST", "/allocations", one_gpu(tenant, place)).json()["reason"] == "busy_now"
    body = one_gpu(tenant, place, ends_at=text(day(1)))
    made = tenant.make("/allocations", body)
    assert made["ends_at"] == text(day(1)).replace("Z", ".000000Z")  # type: ignore[union-attr]
    late = tenant.call("POST", "/allocations", {**body, "ends_at": text(day(1) + SECOND)})
    assert problem(late, 409, "sku_unavailable")["reason"] == "busy_in_window"
    assert look(tenant, place, None, day(1), gpus=1)["available"] == 7
    (claim,) = api.database.execute(
        "select lower(during) < clock_timestamp() and upper(during) = %s and booked and occupied from claims"
        " where owner_id = %s",
        (day(1), made["allocation_id"]),
    ).fetchall()
    assert claim == (True,)


def test_a_hold_past_its_deadline_blocks_no_other(api: PublicApi, tenant: Caller, place: Place) -> None:
    held = hold(tenant, place, None, None, gpus=8)
    assert look(tenant, place, None, None, gpus=8)["available"] == 0
    api.database.execute(
        "update reservations set expires_at = clock_timestamp() - interval '1 ms',"
        " hold_until = clock_timestamp() - interval '1 ms' where id = %s",
        (held["reservation_id"],),
    )
    assert look(tenant, place, None, None, gpus=8)["available"] == 1
    tenant.make("/allocations", one_gpu(tenant, place, gpus=8))
    assert tenant.get(f"/reservations/{held['reservation_id']}")["status"] == "expired"
    used = api.database.execute("select gpus_used from tenant_quotas where tenant_id = %s", (tenant.tenant_id,))
    assert used.fetchone() == (8,)


def test_without_gpus_the_smallest_count_of_each_sku_is_looked_for(api: PublicApi, tenant: Caller) -> None:
    region, model = new_region(api.admin), fresh("GPU")
    for counts in ([2, 4], [8]):
        sku = {"shape": "gpu_slice", "gpu_model": model, "allowed_counts": counts}
        api.admin.put(f"/admin/skus/{fresh('sku')}", sku)
    new_node(api.admin, region, gpu_model=model)
    items = tenant.get("/availability", region=region, starts_at=text(day(1)))["items"]
    assert [(item["gpus"], item["available"], item["reason"]) for item in items] == [
        (2, 0, "too_few_nodes"),
        (8, 0, "too_few_nodes"),
    ]
    assert [item["gpus"] for item in tenant.get("/availability", region=region, gpus=8)["items"]] == [8]


def test_windows_that_make_no_sense_are_refused_by_name(api: PublicApi, tenant: Caller, place: Place) -> None:
    def refused(status: int, code: str, **query: Any) -> dict[str, Any]:
        return problem(tenant.call("GET", "/availability", **query), status, code)

    refused(422, "window_invalid", starts_at=text(day(2)), ends_at=text(day(1)))
    refused(422, "window_invalid", starts_at=text(day(2)), ends_at=text(day(2)))
    refused(422, "window_invalid", ends_at=text(day(-1)))
    refused(422, "window_invalid", starts_at="9999-12-31T23:59:59Z")
    refused(422, "window_invalid", ends_at="9000-01-01T00:00:00Z")
    for wrong in ("tomorrow", "2027-01-01", "2027-01-01T00:00:00", "1", ""):
        refused(422, "invalid", starts_at=wrong)
    for wrong_number in ({"gpus": 0}, {"gpus": -1}, {"count": 0}, {"count": 1_025}, {"gpus": 1.5}, {"gpus": 10**30}):
        refused(422, "invalid", **wrong_number)
    unknown = refused(409, "sku_unavailable", sku="no-such", gpus=1)
    assert unknown["reason"] == "unknown_sku"
    refused(404, "not_found", region="nowhere", gpus=1)
    assert refused(409, "sku_unavailable", sku=place.sku, gpus=3)["reason"] == "count_not_allowed"
    other = new_region(api.admin)
    assert refused(409, "sku_unavailable", sku=place.sku, region=other, gpus=1)["reason"] == "none_in_region"


@pytest.mark.parametrize("ends_at", ["2000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+23:59"])
def test_a_create_with_an_absurd_end_is_refused(tenant: Caller, place: Place, ends_at: str) -> None:
    body = one_gpu(tenant, place, ends_at=ends_at)
    assert refusal(tenant.call("POST", "/allocations", body)) == (422, "window_invalid")
    assert refusal(tenant.call("POST", "/allocations", {**body, "ends_at": 7})) == (422, "invalid")
