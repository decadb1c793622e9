"""What an image states of itself: written, kept, replaced, refused, shown to tenants, and sent to its node."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.api.calling import Caller, fresh, new_place, new_tenant, one_gpu, problem
from tests.support.public_api import PublicApi

BODY: dict[str, Any] = {"url": "https://internal.example/u.img", "sha256": "ab" * 32, "shapes": ["gpu_slice"]}
FULL: dict[str, Any] = {
    "format": "raw", "firmware": "uefi", "login_user": "debian", "cloud_init": False, "readiness": "tcp_port",
    "readiness_port": 8443, "disk_bytes_min": 1 << 35, "size_bytes": 1 << 30, "gpu_driver_version": "570.124.06",
    "fabric_manager_version": "570.124.06",
}  # fmt: skip
UNSTATED: dict[str, Any] = {
    **dict.fromkeys(FULL), "firmware": "bios", "login_user": "tenant", "cloud_init": True, "readiness": "message",
}  # fmt: skip


def put(admin: Caller, name: str, statement: dict[str, Any] | None = None, **members: Any) -> Any:
    """The image after a PUT with this statement, or without one."""
    stated = {} if statement is None else {"statement": statement}
    return admin.put(f"/admin/images/{name}", {**BODY, **members, **stated})


def test_a_statement_is_kept_until_it_is_replaced_as_a_whole(admin: Caller) -> None:
    name = fresh("image")
    assert put(admin, name)["statement"] == UNSTATED, "an image without one means what it meant before"
    assert put(admin, name, FULL)["statement"] == FULL
    assert put(admin, name, state="retired")["statement"] == FULL, "left out: it stays"
    assert admin.get(f"/admin/images/{name}")["statement"] == FULL
    other = put(admin, name, sha256="cd" * 32)
    assert other["statement"] == {**FULL, "size_bytes": None}, "the size was that of another file"
    assert put(admin, name, {"login_user": "ubuntu"})["statement"] == {**UNSTATED, "login_user": "ubuntu"}
    admin.call("DELETE", f"/admin/images/{name}")
    assert put(admin, name)["statement"] == UNSTATED, "nothing is kept of a deleted image"
    (entry,) = admin.get("/admin/audit", subject=f"images/{name}", outcome="ok")["items"][1:2]
    assert entry["detail"]["statement"] == FULL


def test_tenants_read_what_an_image_states(admin: Caller) -> None:
    name = fresh("image")
    put(admin, name, FULL)
    (offered,) = [image for image in new_tenant(admin).every("/images", 500) if image["name"] == name]
    assert offered["statement"] == FULL


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"cloud_init": False}, "the ready message needs cloud-init"),
        ({"readiness": "tcp_port"}, "readiness_port belongs to readiness tcp_port"),
        ({"readiness_port": 80}, "readiness_port belongs to readiness tcp_port"),
        ({"fabric_manager_version": "570.124.06"}, "must equal gpu_driver_version"),
        ({"gpu_driver_version": "570.1", "fabric_manager_version": "570.2"}, "must equal gpu_driver_version"),
        ({"gpu_driver_version": "570.124.06-1"}, ""),
        ({"login_user": "Root"}, ""),
        ({"login_user": "a\nb"}, ""),
        ({"format": "vmdk"}, ""),
        ({"firmware": "efi"}, ""),
        ({"readiness": "tcp_port", "readiness_port": 65_536}, ""),
        ({"disk_bytes_min": 0}, ""),
        ({"size_bytes": 2**53}, ""),
        ({"cloud_init": "yes"}, ""),
        ({"unknown": 1}, ""),
    ],
)
def test_a_statement_that_contradicts_itself_changes_nothing(admin: Caller, wrong: dict[str, Any], why: str) -> None:
    name = fresh("image")
    before = put(admin, name, FULL)
    refused = admin.call("PUT", f"/admin/images/{name}", {**BODY, "statement": wrong})
    assert why in json.dumps(problem(refused, 422, "invalid"))
    assert admin.get(f"/admin/images/{name}") == before


def test_user_data_need_an_image_with_cloud_init(api: PublicApi, admin: Caller) -> None:
    tenant, place, name = new_tenant(admin), new_place(admin, api.database), fresh("image")
    put(admin, name, {"cloud_init": False, "readiness": "ssh"})
    body = one_gpu(tenant, place, image=name)
    script = {"user_data": "#!/bin/sh\n"}
    refused = problem(tenant.call("POST", "/allocations", {**body, **script}), 422, "image_unavailable")
    assert "has no cloud-init" in refused["detail"]
    window = {"starts_at": "2030-01-01T00:00:00Z", "ends_at": "2030-01-02T00:00:00Z"}
    template = {"ssh_key_ids": body["ssh_key_ids"], "image": name}
    hold = {"sku": place.sku, "gpus": 1, "region": place.region, "holder_id": "h", **window}
    started = {**hold, "allocation": {**template, **script}}
    problem(tenant.call("POST", "/reservations", started), 422, "image_unavailable")
    tenant.make("/reservations", {**hold, "allocation": template})
    now = tenant.make("/reservations", {name: hold[name] for name in hold if name not in window} | {"ttl_seconds": 60})
    consume = {"reservation_id": now["reservation_id"], "holder_id": "h", **template}
    problem(tenant.call("POST", "/allocations", {**consume, **script}), 422, "image_unavailable")
    assert tenant.call("POST", "/allocations", consume).status_code == 201
    assert tenant.call("POST", "/allocations", body).status_code == 201
