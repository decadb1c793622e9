"""A committed window is a claim: it blocks what overlaps it, keeps what an allocation holds planned, and ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from jsonschema import Draft202012Validator, FormatChecker  # type: ignore[import-untyped]
from starlette.testclient import TestClient

from orchestrator.database.census import take_census
from orchestrator.log.event_types import EVENT_KINDS
from orchestrator.log.events import EventType
from orchestrator.maintenance import rules
from orchestrator.verification.derived import check_fit
from orchestrator.verification.maintenance import check_maintenance
from orchestrator.verification.p1_one_holder import check_one_holder
from orchestrator.verification.p6_owned_claims import check_owned_claims
from orchestrator.verification.p9_complete_waits import check_complete_waits
from orchestrator.verification.verdict import Bounds
from tests.api.calling import Caller, Place, at_once, one_gpu, rent
from tests.at_length import at_length
from tests.maintenance.windows import at, body, commit, node_of, rows, slot_of, sweep
from tests.support.paused_commits import in_order
from tests.support.public_api import PublicApi

CLAIMS = """
select lower(part), upper(part), upper_inf(c.during) from claims c, unnest(c.units) part
where c.owner_id = %s and c.owner_kind = 'maintenance' and c.closed_at is null order by 1
"""


def claimed(api: PublicApi, window: Any) -> int:
    """How many units the window has claimed."""
    return sum(int(upper) - int(lower) for lower, upper, _ in rows(api, CLAIMS, window["window_id"]))


def free_mask(api: PublicApi, place: Place) -> object:
    ((mask,),) = rows(api, "select free_mask from nodes where id = %s", place.node["id"])
    return mask


def hold(tenant: Caller, name: str, starts: float, ends: float) -> Any:
    window = {"holder_id": "h", "resources": [name], "starts_at": at(starts), "ends_at": at(ends), "ttl_seconds": 60}
    return tenant.call("POST", "/reservations", window)


def test_a_window_claims_its_units_and_nothing_overlaps_it(api: PublicApi, tenant: Caller, place: Place) -> None:
    window = commit(api.admin, place)
    assert (window["state"], window["planned"], window["waits_for"]) == ("scheduled", [], "start")
    assert window["resources"] == [node_of(place)]
    assert (claimed(api, window), free_mask(api, place)) == (8, 0)
    busy = hold(tenant, slot_of(place, 0), 11, 13)
    assert (busy.status_code, busy.json()["code"], busy.json()["conflicts"]) == (409, "resource_busy", [])
    assert tenant.call("POST", "/allocations", one_gpu(tenant, place)).json()["code"] == "sku_unavailable"
    across = one_gpu(tenant, place, ends_at=at(11))
    assert tenant.call("POST", "/allocations", across).json()["code"] == "sku_unavailable"
    assert rent(tenant, place, ends_at=at(9))["allocation_id"]
    assert hold(tenant, slot_of(place, 7), 12.5, 13).status_code == 201
    api.admin.make(f"/admin/maintenance/{window['window_id']}/cancel")


def test_the_constraint_refuses_a_claim_within_a_window(api: PublicApi, tenant: Caller, place: Place) -> None:
    window = commit(api.admin, place, resources=[slot_of(place, 3)])
    copied = """
    insert into claims (node_id, tenant_id, owner_kind, owner_id, units, during, fence)
    select node_id, %s, 'reservation', uuidv7(), units, during, nextval('fences') from claims where owner_id = %s
    """
    with pytest.raises(psycopg.errors.ExclusionViolation):
        rows(api, copied, tenant.tenant_id, window["window_id"])
    with pytest.raises(psycopg.errors.CheckViolation, match="claim_has_tenant"):
        rows(api, "update claims set owner_kind = 'reservation' where owner_id = %s", window["window_id"])


def test_an_extension_against_a_window_is_refused(api: PublicApi, tenant: Caller, place: Place) -> None:
    allocation = rent(tenant, place, ends_at=at(5))["allocation_id"]
    commit(api.admin, place)
    for ends_at in (at(11), None):
        refused = tenant.call("PATCH", f"/allocations/{allocation}", {"ends_at": ends_at})
        assert (refused.status_code, refused.json()["code"]) == (409, "resource_busy"), refused.text
    assert tenant.call("PATCH", f"/allocations/{allocation}", {"ends_at": at(9)}).status_code == 200


def test_a_plan_lists_conflicts_and_changes_nothing(api: PublicApi, tenant: Caller, place: Place) -> None:
    open_ended = rent(tenant, place)["allocation_id"]
    rent(tenant, place, ends_at=at(5))
    assert hold(tenant, slot_of(place, 7), 11, 13).status_code == 201
    asked = {name: value for name, value in body(place).items() if name != "reason"}
    found = api.admin.get("/admin/maintenance/plan", **asked)["conflicts"]
    assert [(one["owner"].split("/")[0], one["state"], one["resolution"]) for one in found] == [
        ("allocations", "requested", "notify"), ("reservations", "hold", "refuse"),
    ]  # fmt: skip
    assert found[0]["owner"] == f"allocations/{open_ended}"
    assert (found[0]["ends_at"], found[0]["tenant_id"]) == (None, tenant.tenant_id)
    assert found[1]["resources"] == [slot_of(place, 7)]
    assert rows(api, "select from claims where node_id = %s and owner_kind = 'maintenance'", place.node["id"]) == []
    refused = api.admin.call("POST", "/admin/maintenance", body(place, allocations="notify"))
    assert (refused.status_code, refused.json()["code"]) == (409, "maintenance_conflict")
    assert [one["owner"] for one in refused.json()["conflicts"]] == [found[1]["owner"]]
    refused = api.admin.call("POST", "/admin/maintenance", body(place))
    assert [one["owner"] for one in refused.json()["conflicts"]] == [one["owner"] for one in found]


def test_an_allocation_keeps_its_units_planned_and_its_end_claims_them(
    api: PublicApi, tenant: Caller, place: Place
) -> None:
    allocation = rent(tenant, place)["allocation_id"]
    window = commit(api.admin, place, allocations="notify")
    assert (claimed(api, window), len(window["planned"])) == (7, 1)
    ((tenant_id, payload),) = rows(
        api, "select tenant_id, payload from outbox where event_type = 'allocation.maintenance' and subject = %s",
        f"allocations/{allocation}",
    )  # fmt: skip
    assert isinstance(payload, dict)
    assert (str(tenant_id), payload["deadline"]) == (tenant.tenant_id, payload["starts_at"])
    tenant.make(f"/allocations/{allocation}/release", {})
    after = api.admin.get(f"/admin/maintenance/{window['window_id']}")
    assert (claimed(api, window), after["planned"], free_mask(api, place)) == (8, [], 0)
    assert tenant.call("POST", "/allocations", one_gpu(tenant, place)).json()["code"] == "sku_unavailable"


def test_more_conflicts_than_a_commit_resolves_refuse_the_window(
    api: PublicApi, tenant: Caller, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "CONFLICTS_MAX", 2)
    rented = [rent(tenant, place)["allocation_id"] for _ in range(2)]
    window = commit(api.admin, place, allocations="notify")
    told = "select subject from outbox where event_type = 'allocation.maintenance' and payload ->> 'window_id' = %s order by id"
    assert rows(api, told, window["window_id"]) == [(f"allocations/{one}",) for one in rented], "each, in order"
    api.admin.make(f"/admin/maintenance/{window['window_id']}/cancel")
    rent(tenant, place)
    refused = api.admin.call("POST", "/admin/maintenance", body(place, allocations="notify"))
    assert (refused.status_code, refused.json()["code"]) == (409, "maintenance_conflict")
    assert "more than 2 claims" in refused.json()["detail"]
    assert len(refused.json()["conflicts"]) == 2
    asked = {name: value for name, value in body(place).items() if name != "reason"}
    assert len(api.admin.get("/admin/maintenance/plan", **asked)["conflicts"]) == 2


def test_the_tenant_is_notified_if_its_units_are_not_needed_any_more(
    api: PublicApi, tenant: Caller, place: Place
) -> None:
    kept, released = (rent(tenant, place)["allocation_id"] for _ in range(2))
    window = commit(api.admin, place, allocations="notify")
    tenant.make(f"/allocations/{released}/release", {})
    api.admin.make(f"/admin/maintenance/{window['window_id']}/cancel")
    told = "select subject, tenant_id::text from outbox where event_type = 'allocation.maintenance_cancelled'"
    assert rows(api, f"{told} and payload ->> 'window_id' = %s", window["window_id"]) == [
        (f"allocations/{kept}", tenant.tenant_id)
    ]


def test_the_census_counts_windows_and_planned_units(api: PublicApi, tenant: Caller, place: Place) -> None:
    assert api.services is not None
    assert isinstance(api.admin.http, TestClient)
    portal = api.admin.http.portal
    assert portal is not None
    before, planned = portal.call(take_census, api.services.context.database).maintenance.get("scheduled", (0, 0))
    rent(tenant, place, gpus=2)
    commit(api.admin, place, allocations="notify")
    after = portal.call(take_census, api.services.context.database).maintenance["scheduled"]
    assert after == (before + 1, planned + 2)


def test_a_shortened_allocation_leaves_the_window_its_time(api: PublicApi, tenant: Caller, place: Place) -> None:
    allocation = rent(tenant, place)["allocation_id"]
    window = commit(api.admin, place, allocations="notify")
    assert tenant.call("PATCH", f"/allocations/{allocation}", {"ends_at": at(11)}).status_code == 200
    pieces = (
        "select lower(during) - starts_at from claims c join maintenance_windows w on w.id = c.owner_id where w.id = %s"
    )
    delays = [value for (value,) in rows(api, pieces, window["window_id"])]
    assert len(delays) == 2, "the second piece begins when the allocation ends"
    assert len(api.admin.get(f"/admin/maintenance/{window['window_id']}")["planned"]) == 1
    assert tenant.call("PATCH", f"/allocations/{allocation}", {"ends_at": at(9)}).status_code == 200
    assert api.admin.get(f"/admin/maintenance/{window['window_id']}")["planned"] == []
    assert tenant.call("PATCH", f"/allocations/{allocation}", {"ends_at": at(11)}).json()["code"] == "resource_busy"


@pytest.mark.parametrize("turn", at_length(range(6), [0, 1]))
def test_of_a_hold_and_a_window_that_race_one_succeeds(api: PublicApi, tenant: Caller, place: Place, turn: int) -> None:
    slot = slot_of(place, turn)
    wanted = body(place, resources=[slot])
    held, window = at_once(
        lambda: hold(tenant, slot, 9, 11).status_code,
        lambda: int(api.admin.call("POST", "/admin/maintenance", wanted).status_code),
    )
    assert sorted([held, window]) == [201, 409]


@pytest.mark.parametrize("window_first", [False, True], ids=["hold_first", "window_first"])
def test_a_commit_waits_for_the_hold_that_has_locked_the_node(
    api: PublicApi, tenant: Caller, place: Place, window_first: bool
) -> None:
    """The first transaction holds the node's lock and stops at its commit; the second one then sees what it made."""
    slot = slot_of(place, 0)
    wanted = body(place, resources=[slot])

    def holding() -> httpx.Response:
        answer: httpx.Response = hold(tenant, slot, 9, 11)
        return answer

    def committing() -> httpx.Response:
        return api.admin.call("POST", "/admin/maintenance", wanted)

    first, second = (committing, holding) if window_first else (holding, committing)
    answers = in_order(api.database, first, second)
    assert [answer.status_code for answer in answers] == [201, 409]
    assert answers[1].json()["code"] == ("resource_busy" if window_first else "maintenance_conflict")


def test_a_window_starts_and_ends_at_its_times(api: PublicApi, tenant: Caller, place: Place) -> None:
    window = commit(api.admin, place, starts=-1, ends=1)
    window_id = window["window_id"]
    slot = tenant.get(f"/resources/{slot_of(place, 0)}")
    assert (slot["state"], slot["reason"]) == ("out_of_service", "a maintenance window is active")
    assert sweep(api, window_id) == "active"
    assert sweep(api, window_id) is None
    active = api.admin.get(f"/admin/maintenance/{window_id}")
    assert (active["state"], active["waits_for"], active["waits_until"]) == ("active", "end", active["ends_at"])
    refused = api.admin.call("POST", f"/admin/maintenance/{window_id}/cancel")
    assert (refused.status_code, refused.json()["code"]) == (409, "invalid_state")
    rows(
        api, "update maintenance_windows set ends_at = now(), waits_until = now() where id = %s returning 1", window_id
    )
    assert sweep(api, window_id) == "ended"
    assert (claimed(api, window), free_mask(api, place)) == (0, 255)
    later = tenant.get(f"/resources/{slot_of(place, 0)}")
    assert later["state"] == "available"
    assert later["row_version"] > slot["row_version"]
    assert rent(tenant, place)["allocation_id"]
    happened = "select event_type from outbox where subject = %s order by id"
    assert [kind for (kind,) in rows(api, happened, f"maintenance/{window_id}")] == [
        "maintenance.scheduled", "maintenance.started", "maintenance.ended",
    ]  # fmt: skip


def test_an_operator_ends_or_cancels_a_window(api: PublicApi, tenant: Caller, place: Place) -> None:
    later = commit(api.admin, place)
    assert api.admin.make(f"/admin/maintenance/{later['window_id']}/cancel")["state"] == "cancelled"
    assert (claimed(api, later), free_mask(api, place)) == (0, 255)
    now = commit(api.admin, place, starts=-1, ends=1)
    sweep(api, now["window_id"])
    assert api.admin.make(f"/admin/maintenance/{now['window_id']}/end")["state"] == "ended"
    assert free_mask(api, place) == 255
    assert sweep(api, now["window_id"]) is None
    listed = api.admin.every("/admin/maintenance", 1, state="cancelled")
    assert later["window_id"] in [one["window_id"] for one in listed]


@pytest.mark.parametrize(
    ("starts", "ends"), [(3, 2), (-3, -2), (1, 24 * 400), (24 * 400, 24 * 401)], ids=["reversed", "over", "long", "far"]
)
def test_an_invalid_window_is_refused(api: PublicApi, tenant: Caller, place: Place, starts: float, ends: float) -> None:
    rent(tenant, place)
    asked = {name: value for name, value in body(place, starts, ends).items() if name != "reason"}
    planned = api.admin.call("GET", "/admin/maintenance/plan", **asked)
    assert (planned.status_code, planned.json()["code"]) == (422, "maintenance_window_invalid")
    refused = api.admin.call("POST", "/admin/maintenance", body(place, starts, ends))
    assert (refused.status_code, refused.json()["code"]) == (422, "maintenance_window_invalid")


def test_a_window_whose_time_is_over_is_ended_by_an_operator_too(api: PublicApi, tenant: Caller, place: Place) -> None:
    rent(tenant, place)
    window = commit(api.admin, place, starts=-1, ends=1, allocations="notify")["window_id"]
    assert sweep(api, window) == "active"
    rows(api, "update maintenance_windows set ends_at = now(), waits_until = now() where id = %s returning 1", window)
    assert api.admin.make(f"/admin/maintenance/{window}/end")["state"] == "ended"


def test_unknown_and_registered_resources_are_refused(api: PublicApi, place: Place) -> None:
    for name in ("slot:01900000-0000-7000-8000-000000000002:0", "registered"):
        refused = api.admin.call("POST", "/admin/maintenance", body(place, resources=[name]))
        assert (refused.status_code, refused.json()["code"]) == (404, "resource_not_found")


def test_a_node_with_a_window_is_not_retired(api: PublicApi, place: Place) -> None:
    commit(api.admin, place)
    assert api.admin.make(f"/admin/nodes/{place.node['id']}/drain")["drained"] is True
    refused = api.admin.call("POST", f"/admin/nodes/{place.node['id']}/retire", {"reason": "old"})
    assert refused.json()["code"] == "node_in_use"
    assert refused.json()["claims"][0]["next_step"].startswith("cancel the maintenance window")


def test_availability_and_the_earliest_time_account_for_a_window(api: PublicApi, tenant: Caller, place: Place) -> None:
    asked = {"sku": place.sku, "region": place.region, "gpus": 1, "starts_at": at(1), "ends_at": at(13)}
    (before,) = tenant.get("/availability", **asked)["items"]
    assert (before["available"], before["earliest_at"]) == (8, before["starts_at"])
    commit(api.admin, place)
    (during,) = tenant.get("/availability", **asked)["items"]
    assert during["available"] == 0
    assert datetime.fromisoformat(during["earliest_at"]) > datetime.now(UTC) + timedelta(hours=11.9)
    (short,) = tenant.get("/availability", **{**asked, "ends_at": at(3)})["items"]
    assert (short["available"], short["earliest_at"]) == (8, short["starts_at"])


def test_what_the_windows_of_this_module_leave_keeps_every_promise(api: PublicApi) -> None:
    checks = (check_maintenance, check_owned_claims, check_one_holder, check_fit, check_complete_waits)
    for verdict in (check(api.database, Bounds()) for check in checks):
        assert verdict.kept, verdict.violations
    written = rows(api, "select event_type, payload from outbox where event_type like '%%maintenance%%'")
    assert {str(kind) for kind, _ in written} <= {
        "allocation.maintenance", "allocation.maintenance_cancelled", "maintenance.scheduled",
        "maintenance.started", "maintenance.ended", "maintenance.cancelled",
    }  # fmt: skip
    for kind, payload in written:
        schema = {**EVENT_KINDS[EventType(str(kind))].schema(), "additionalProperties": False}
        Draft202012Validator(schema, format_checker=FormatChecker()).validate(payload)
    audited = rows(api, "select distinct action from audit where action like 'maintenance.%%'")
    assert {action for (action,) in audited} <= {
        "maintenance.commit", "maintenance.start", "maintenance.end", "maintenance.cancel", "maintenance.read",
    }  # fmt: skip
