"""Over HTTP: an admin's word that nothing is left, the end of a node, and fault switches that tenants must not throw."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
from starlette.testclient import TestClient

from orchestrator.app import build_services, public_listener
from tests.api.calling import (
    Caller,
    enrol,
    fresh,
    insert_admin_key,
    new_node,
    new_place,
    new_region,
    new_tenant,
    problem,
    rent,
    signing_request,
)
from tests.support.public_api import PublicApi, settings_over

WORD = {"runtime_verified_absent": True, "reason": "the node was scrapped"}


def row_versions(api: PublicApi, allocation_id: str) -> Any:
    """What a refused word must leave as it was."""
    statement = """select a.row_version, c.fence, c.closed_at, (select count(*) from audit where subject = %s and status < 400)
                   from allocations a join claims c on c.id = a.claim_id where a.id = %s"""
    return api.database.execute(statement, (f"allocations/{allocation_id}", allocation_id)).fetchone()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"reason": "x"}, "runtime_verified_absent"),
        ({"runtime_verified_absent": False, "reason": "x"}, "runtime_verified_absent"),
        ({"runtime_verified_absent": "true", "reason": "x"}, "runtime_verified_absent"),
        ({"runtime_verified_absent": 1, "reason": "x"}, "runtime_verified_absent"),
        ({"runtime_verified_absent": None, "reason": "x"}, "runtime_verified_absent"),
        ({"runtime_verified_absent": True}, "reason"),
        ({"runtime_verified_absent": True, "reason": ""}, "reason"),
        ({**WORD, "and": "more"}, "and"),
    ],
)
def test_only_the_whole_statement_counts(api: PublicApi, admin: Caller, body: Any, field: str) -> None:
    place = new_place(admin, api.database)
    made = rent(new_tenant(admin), place)["allocation_id"]
    admin.make(f"/admin/allocations/{made}/force-release", {"reason": "stuck"})
    before = row_versions(api, made)
    refused = problem(admin.call("POST", f"/admin/allocations/{made}/force-cleanup", body), 422, "invalid")
    assert [error["field"] for error in refused["errors"]] == [field]
    assert row_versions(api, made) == before


def test_the_word_is_an_admins_and_is_taken_once(api: PublicApi, admin: Caller) -> None:
    place = new_place(admin, api.database)
    tenant = new_tenant(admin)
    made = rent(tenant, place)["allocation_id"]
    path = f"/admin/allocations/{made}/force-cleanup"
    problem(tenant.call("POST", path, WORD), 403, "forbidden")
    problem(admin.call("POST", f"/admin/allocations/{uuid.uuid4()}/force-cleanup", WORD), 404, "not_found")
    refused = problem(admin.call("POST", path, WORD), 409, "invalid_state")
    assert (refused["state"], "force-release" in refused["detail"]) == ("requested", True)
    admin.make(f"/admin/allocations/{made}/force-release", {"reason": "stuck"})
    key = fresh("key")
    first = admin.call("POST", path, WORD, key=key)
    assert (first.status_code, first.json()["status"]) == (200, "released")
    again = admin.call("POST", path, WORD, key=key)
    assert (again.json(), again.headers["idempotent-replayed"]) == (first.json(), "true")
    problem(admin.call("POST", path, {**WORD, "reason": "another"}, key=key), 422, "operation_conflict")
    problem(admin.call("POST", path, WORD), 409, "invalid_state")
    (entry,) = admin.every(
        "/admin/audit", 500, subject=f"allocations/{made}", action="allocation.force_cleanup", outcome="ok"
    )
    assert entry["action"] == "allocation.force_cleanup"
    assert entry["detail"]["runtime_verified_absent"] is True
    node = admin.get(f"/admin/nodes/{place.node['id']}")
    assert {slot["state"] for slot in node["slots"]} == {"free"}


def test_a_retired_node_is_out_for_good_and_stays_readable(api: PublicApi, admin: Caller) -> None:
    place = new_place(admin, api.database)
    tenant = new_tenant(admin)
    made = rent(tenant, place)["allocation_id"]
    path = f"/admin/nodes/{place.node['id']}"
    problem(admin.call("POST", f"{path}/retire", {}), 422, "invalid")
    problem(tenant.call("POST", f"{path}/retire", {"reason": "burnt"}), 403, "forbidden")
    problem(admin.call("POST", f"/admin/nodes/{uuid.uuid4()}/retire", {"reason": "burnt"}), 404, "not_found")
    refused = problem(admin.call("POST", f"{path}/retire", {"reason": "burnt"}), 409, "node_in_use")
    (claim,) = refused["claims"]
    assert (claim["owner_kind"], claim["owner_id"], claim["state"]) == ("allocation", made, "requested")
    assert "force-release" in claim["next_step"]
    admin.make(f"/admin/allocations/{made}/force-release", {"reason": "burnt"})
    admin.make(f"/admin/allocations/{made}/force-cleanup", WORD)
    token = admin.make(f"{path}/enrolment-token", {"hardware_id": "machine-1"})["token"]
    retired = admin.make(f"{path}/retire", {"reason": "burnt"})
    assert (retired["state"], retired["online"]) == ("retired", False)
    assert admin.make(f"{path}/retire", {"reason": "burnt"}) == retired, "repeating it changes nothing"
    assert {(slot["state"], slot["reason"]) for slot in retired["slots"]} == {("out_of_service", "the node is retired")}
    live = "select count(*) from node_certificates where node_id = %s and revoked_at is null"
    assert api.database.execute(live, (place.node["id"],)).fetchone() == (0,)
    body = {"token": token, "hardware_id": "machine-1", "csr_pem": signing_request()}
    problem(Caller(admin.http, None).call("POST", "/nodes/enroll", body), 401, "unauthenticated")
    problem(admin.call("POST", f"{path}/enrolment-token", {}), 409, "invalid_state")
    for verb in ("cordon", "uncordon", "drain"):
        problem(admin.call("POST", f"{path}/{verb}"), 409, "invalid_state")
    assert admin.get("/admin/nodes", state="retired", region=place.region)["items"][0]["id"] == place.node["id"]
    assert tenant.get(f"/allocations/{made}")["node"] == place.node["name"]
    told = api.database.execute(
        "select payload ->> 'reason' from outbox where event_type = 'node.retired' and subject = %s",
        (f"nodes/{place.node['id']}",),
    ).fetchall()
    assert told == [("burnt",)]


def test_an_empty_node_is_retired_from_any_state(admin: Caller) -> None:
    registered = new_node(admin, new_region(admin))
    assert admin.make(f"/admin/nodes/{registered['id']}/retire", {"reason": "never came"})["state"] == "retired"
    cordoned = new_node(admin, new_region(admin))
    enrol(admin, cordoned["id"])
    admin.make(f"/admin/nodes/{cordoned['id']}/cordon")
    assert admin.make(f"/admin/nodes/{cordoned['id']}/retire", {"reason": "sold"})["state"] == "retired"


def test_a_tenant_cannot_throw_fault_switches(api: PublicApi, admin: Caller) -> None:
    place = new_place(admin, api.database)
    tenant = new_tenant(admin)
    before = api.database.execute("select count(*) from allocations").fetchone()
    with pytest.raises(AssertionError, match="fault labels are disabled"):
        rent(tenant, place, labels={"berth.fault/vfio": "1", "team": "x"})
    assert api.database.execute("select count(*) from allocations").fetchone() == before
    assert rent(tenant, place, labels={"team": "berth.fault/vfio"})["labels"] == {"team": "berth.fault/vfio"}


def test_where_it_is_allowed_a_label_is_taken(database_url: str, tmp_path: Path) -> None:
    settings = settings_over(database_url, tmp_path).model_copy(update={"fault_labels_allowed": True})
    services = build_services(settings)
    with TestClient(public_listener(services), raise_server_exceptions=False) as http:
        admin = Caller(http, insert_admin_key(database_url))
        with psycopg.connect(database_url, autocommit=True) as database:
            place = new_place(admin, database)
        made = rent(new_tenant(admin), place, labels={"berth.fault/vfio": "1"})
        assert made["labels"] == {"berth.fault/vfio": "1"}
        assert http.portal is not None
        http.portal.call(services.context.database.close)
