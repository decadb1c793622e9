"""Hardware by serial number over HTTP: roles, refusals, and the rights of the API's role in the database."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.calling import Caller, fresh, new_place, new_tenant
from tests.support.public_api import PublicApi

PATHS = [
    ("GET", "/admin/hardware"), ("GET", "/admin/hardware/{serial}"), ("GET", "/admin/hardware/{serial}/history"),
    ("GET", "/admin/repairs"), ("POST", "/admin/repairs"), ("GET", "/admin/repairs/{repair}"),
    ("POST", "/admin/repairs/{repair}/close"),
]  # fmt: skip
BODIES: dict[str, dict[str, str]] = {
    "/admin/repairs": {"reason": "r"},
    "/admin/repairs/{repair}/close": {"result": "r"},
}


def placed(api: PublicApi, node_id: str) -> str:
    """The serial number of a GPU that the node reports in slot 3."""
    serial = fresh("GPU").upper()
    part = {"serial": serial, "kind": "gpu", "model": "H100", "slots": [3], "positions": ["0000:0f:00.0"]}
    api.database.execute(
        "select place_hardware(%s, %s, '{gpu}', '{}', 'worker:discovery')", (node_id, json.dumps([part]))
    )
    return serial


def happened(admin: Caller, serial: str) -> list[Any]:
    """What happened to it, newest first."""
    return [entry["happened"] for entry in admin.get(f"/admin/hardware/{serial}/history")["items"]]


def test_a_slot_out_of_service_and_a_repair_are_the_history_of_its_gpu(api: PublicApi) -> None:
    admin, node = api.admin, new_place(api.admin, api.database).node
    serial = placed(api, node["id"])
    admin.make(f"/admin/nodes/{node['id']}/slots/3/quarantine", {"reason": "XID 79", "evidence": "dmesg"})
    repair = admin.make("/admin/repairs", {"serial": serial, "reason": "XID 79"})
    shown = admin.get(f"/admin/hardware/{serial}")
    assert shown["open_repair"] == repair
    assert [(place["node_id"], place["slots"]) for place in shown["places"]] == [(node["id"], [3])]
    assert [one["id"] for one in admin.get("/admin/repairs", serial=serial)["items"]] == [repair["id"]]
    admin.make(f"/admin/repairs/{repair['id']}/close", {"result": "reseated"})
    admin.make(f"/admin/nodes/{node['id']}/slots/3/return", {"note": "reseated"})
    assert admin.get("/admin/repairs", serial=serial)["items"] == []
    assert admin.get(f"/admin/repairs/{repair['id']}")["result"] == "reseated"
    assert happened(admin, serial) == ["returned", "repair_closed", "repair_opened", "quarantined", "seen"]
    listed = admin.get("/admin/hardware", node_id=node["id"], kind="gpu")["items"]
    assert [place["serial"] for place in listed] == [serial]


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_tenants_get_nothing(api: PublicApi, method: str, path: str) -> None:
    admin, tenant = api.admin, new_tenant(api.admin)
    serial = placed(api, new_place(admin, api.database).node["id"])
    repair = admin.make("/admin/repairs", {"serial": serial, "reason": "r"})["id"]
    filled = path.format(serial=serial, repair=repair)
    if method == "GET":
        answer = tenant.http.get(f"/api/v1{filled}", headers={"authorization": f"Bearer {tenant.key}"})
    else:
        body = {**BODIES[path], **({"serial": serial} if path == "/admin/repairs" else {})}
        answer = tenant.call("POST", filled, body)
    assert answer.status_code == 403
    assert serial not in answer.text
    assert happened(admin, serial) == ["repair_opened", "seen"]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/admin/hardware/never-seen", 404, "not_found"),
        ("/admin/hardware/never-seen/history", 404, "not_found"),
        ("/admin/hardware/abc", 422, "invalid"),
        ("/admin/hardware/a%20b%20c%20d", 422, "invalid"),
        ("/admin/hardware?kind=nic", 422, "invalid"),
        ("/admin/hardware?node_id=00000000-0000-7000-8000-000000000000", 404, "not_found"),
        ("/admin/hardware?cursor=eyJsaXN0IjoiaGFyZHdhcmUiLCJhZnRlciI6IngifQ", 400, "invalid_cursor"),
        ("/admin/repairs/00000000-0000-7000-8000-000000000000", 404, "not_found"),
        ("/admin/repairs?serial=%00%00%00%00", 422, "invalid"),
    ],
)
def test_bad_input_is_refused(api: PublicApi, path: str, status: int, code: str) -> None:
    headers = {"authorization": f"Bearer {api.admin.key}"}
    answer = api.admin.http.get(f"/api/v1{path}", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


@pytest.mark.parametrize(
    "body",
    [{"serial": "a/b/c/d", "reason": "r"}, {"serial": "S-0001"}, {"serial": "S-0001", "reason": ""}, {"reason": "r"}],
)
def test_a_repair_needs_a_serial_number_and_a_reason(api: PublicApi, body: dict[str, str]) -> None:
    assert api.admin.call("POST", "/admin/repairs", body).status_code == 422
