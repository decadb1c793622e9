"""Reading and deleting an image: what tenants see, what keeps an image, and what a deletion races with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import psycopg

from tests.api.calling import GPU_MODEL, Caller, at_once, fresh, new_place, new_tenant, one_gpu, problem, rent
from tests.support.paused_commits import waiting_sessions
from tests.support.public_api import PublicApi
from tests.support.waiting import wait_for

BODY: dict[str, Any] = {"url": "https://internal.example/u.img", "sha256": "ab" * 32, "shapes": ["gpu_slice"]}
UNSTATED: dict[str, Any] = {
    "format": None, "firmware": "bios", "login_user": "tenant", "cloud_init": True, "readiness": "message",
    "readiness_port": None, "disk_bytes_min": None, "size_bytes": None, "gpu_driver_version": None,
    "fabric_manager_version": None,
}  # fmt: skip
UNUSED = {"allocations": 0, "tasks": 0, "reservations": 0, "skus": 0}


def new_image(admin: Caller, **members: Any) -> str:
    """An image that nothing needs; its name."""
    name = fresh("image")
    admin.put(f"/admin/images/{name}", {**BODY, **members})
    return name


def users_of(admin: Caller, name: str) -> dict[str, int]:
    """The counts with which the deletion is refused."""
    refused = problem(admin.call("DELETE", f"/admin/images/{name}"), 409, "image_in_use")
    assert admin.get(f"/admin/images/{name}")["name"] == name, "a refusal changes nothing"
    users: dict[str, int] = refused["users"]
    assert all(f"{count} {kind}" in refused["detail"] for kind, count in users.items() if count)
    return users


def test_tenants_list_what_a_create_may_name_without_its_url(admin: Caller) -> None:
    name, retired = new_image(admin, gpu_models=[GPU_MODEL]), new_image(admin, state="retired")
    listed = {image["name"]: image for image in new_tenant(admin).every("/images", 500)}
    assert listed[name] == {
        "name": name, "sha256": BODY["sha256"], "shapes": ["gpu_slice"], "gpu_models": [GPU_MODEL], "regions": None,
        "statement": UNSTATED,
    }  # fmt: skip
    assert retired not in listed
    every = {image["name"]: image for image in admin.every("/admin/images", 500)}
    assert (every[name]["url"], every[retired]["state"]) == (BODY["url"], "retired")


def test_an_image_is_read_and_deleted_once(api: PublicApi, admin: Caller) -> None:
    name = new_image(admin)
    path = f"/admin/images/{name}"
    empty = {"gpu_models": None, "regions": None, "state": "active", "statement": UNSTATED}
    assert admin.get(path) == {**BODY, "name": name, **empty}
    key = fresh("delete")
    assert admin.call("DELETE", path, key=key).status_code == 204
    again = admin.call("DELETE", path, key=key)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (204, "true")
    problem(admin.call("GET", path), 404, "not_found")
    problem(admin.call("DELETE", path), 404, "not_found")
    assert name not in [image["name"] for image in admin.every("/admin/images", 500)]
    audited = admin.get("/admin/audit", subject=f"images/{name}", outcome="ok")["items"]
    assert [entry["action"] for entry in audited] == ["image.put", "image.delete"]
    made = admin.call("PUT", path, BODY)
    assert (made.status_code, made.json()["state"]) == (201, "active"), "the name is free again"
    problem(admin.call("GET", "/admin/images/never"), 404, "not_found")
    problem(admin.call("GET", f"/admin/images/{'x' * 101}"), 422, "invalid")


def test_tenants_neither_read_nor_delete_images(admin: Caller) -> None:
    tenant, name = new_tenant(admin), new_image(admin)
    for method, path in (("GET", ""), ("GET", f"/{name}"), ("DELETE", f"/{name}")):
        problem(tenant.call(method, f"/admin/images{path}"), 403, "forbidden")
    assert admin.get(f"/admin/images/{name}")["name"] == name


def test_a_deleted_image_is_no_default_and_boots_nothing(api: PublicApi, admin: Caller) -> None:
    tenant, place, name = new_tenant(admin), new_place(admin, api.database), new_image(admin)
    assert admin.call("DELETE", f"/admin/images/{name}").status_code == 204
    problem(tenant.call("POST", "/allocations", one_gpu(tenant, place, image=name)), 422, "image_unavailable")
    sku = {"shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1], "default_image": name}
    problem(admin.call("PUT", f"/admin/skus/{fresh('sku')}", sku), 422, "image_unavailable")


def test_what_needs_an_image_keeps_it(api: PublicApi, admin: Caller) -> None:
    tenant, place, name = new_tenant(admin), new_place(admin, api.database), new_image(admin)
    sku = {"shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1], "default_image": name}
    sku_path = f"/admin/skus/{fresh('sku')}"
    admin.put(sku_path, sku)
    assert users_of(admin, name) == UNUSED | {"skus": 1}
    admin.put(sku_path, {**sku, "default_image": None})

    template = {"ssh_key_ids": one_gpu(tenant, place)["ssh_key_ids"], "image": name}
    hold = {
        "sku": place.sku, "gpus": 1, "region": place.region, "count": 2, "holder_id": "h", "allocation": template,
        "starts_at": "2030-01-01T00:00:00Z", "ends_at": "2030-01-02T00:00:00Z",
    }  # fmt: skip
    reserved = tenant.make("/reservations", hold)["reservation_id"]
    assert users_of(admin, name) == UNUSED | {"reservations": 1}
    tenant.make(f"/reservations/{reserved}/cancel", {"holder_id": "h"})

    allocation_id = rent(tenant, place, image=name)["allocation_id"]
    rent(tenant, place)
    assert users_of(admin, name) == UNUSED | {"allocations": 1}
    add_live_task(api.database, allocation_id)
    assert users_of(admin, name) == UNUSED | {"allocations": 1, "tasks": 1}
    tenant.make(f"/allocations/{allocation_id}/release")
    assert users_of(admin, name) == UNUSED | {"allocations": 1}, "its cleanup is not proven yet"
    admin.make(
        f"/admin/allocations/{allocation_id}/force-cleanup", {"runtime_verified_absent": True, "reason": "looked"}
    )
    assert admin.call("DELETE", f"/admin/images/{name}").status_code == 204


def add_live_task(database: psycopg.Connection[Any], allocation_id: str) -> None:
    """A queued task of the allocation."""
    database.execute(
        "insert into node_tasks (id, node_id, node_epoch, type, allocation_id, fence, envelope, not_before, expires_at)"
        " select uuidv7(), node_id, 1, 'slice.vm_provision', id, 1, '{}', clock_timestamp(),"
        " clock_timestamp() + interval '1 h' from allocations where id = %s",
        (allocation_id,),
    )


def test_of_simultaneous_deletions_one_succeeds(admin: Caller) -> None:
    name = new_image(admin)
    answers = at_once(*[lambda: admin.call("DELETE", f"/admin/images/{name}")] * 6)
    assert sorted(answer.status_code for answer in answers) == [204] + [404] * 5


def test_a_deletion_and_a_sku_that_takes_the_image_never_both_succeed(admin: Caller) -> None:
    sku = {"shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1]}
    for _ in range(8):
        name = new_image(admin)
        take = partial(admin.call, "PUT", f"/admin/skus/{fresh('sku')}", {**sku, "default_image": name})
        taken, deleted = at_once(take, partial(admin.call, "DELETE", f"/admin/images/{name}"))
        assert (taken.status_code, deleted.status_code) in {(201, 409), (422, 204)}


def test_a_sku_that_takes_the_image_waits_for_its_deletion(api: PublicApi, admin: Caller) -> None:
    """A deletion that has locked the image, and has not committed, holds the SKU back; then the SKU is refused."""
    name = new_image(admin)
    sku = {"shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1], "default_image": name}
    with (
        ThreadPoolExecutor(1) as pool,
        psycopg.connect(api.database.info.dsn, password=api.database.info.password) as rival,
    ):
        rival.execute("select from images where name = %s for update", (name,))
        taking = pool.submit(admin.call, "PUT", f"/admin/skus/{fresh('sku')}", sku)
        wait_for(lambda: waiting_sessions(api.database) > 0 or taking.done(), "the SKU to wait for the image")
        assert not taking.done(), taking.result().text
        rival.execute(
            "update images set state = 'retired', deleted_at = clock_timestamp(), row_version = row_version + 1"
            " where name = %s",
            (name,),
        )
        rival.commit()
        problem(taking.result(), 422, "image_unavailable")
    problem(admin.call("PUT", f"/admin/skus/{fresh('sku')}", sku), 422, "image_unavailable")
