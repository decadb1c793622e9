"""The verbs from the command line, against a real API."""

from __future__ import annotations

from tests.api.calling import fresh, new_place, new_tenant, rent
from tests.client.deployment import Deployment
from tests.support.shell import ID, Shell, bare, deployment

__all__ = ["bare", "deployment"]


def test_images_are_listed_shown_and_deleted(deployment: Deployment) -> None:
    operator = Shell(deployment.address, deployment.admin.key)
    tenant = Shell(deployment.address, new_tenant(deployment.admin).key)
    name = fresh("image")
    operator.json(f"image put {name} --url https://internal.example/u.img --sha256 {'ab' * 32} --shape gpu_slice")
    assert name in tenant.run("image list").output
    assert "internal.example" not in tenant.run("image list").output
    tenant.refused("image list --all", "forbidden")
    operator.json(
        f"image put {name} --url https://internal.example/u.img --sha256 {'ab' * 32} --shape gpu_slice --state retired"
    )
    assert name not in tenant.run("image list").output
    assert "internal.example" in operator.run("image list --all").output
    assert operator.json(f"image show {name}")["state"] == "retired"
    tenant.refused(f"image delete {name}", "forbidden")
    sku = new_place(deployment.admin, deployment.database).sku
    used = next(one for one in operator.json("sku list")["items"] if one["name"] == sku)["default_image"]
    assert "1 skus" in operator.refused(f"image delete {used}", "image_in_use")
    assert operator.json(f"image delete {name}") == {"name": name, "deleted": True}
    operator.refused(f"image show {name}", "not_found")


def test_a_tenant_is_deleted_by_name_or_id(deployment: Deployment) -> None:
    operator = Shell(deployment.address, deployment.admin.key)
    by_name, by_id = fresh("tenant"), new_tenant(deployment.admin)
    made = operator.json(f"tenant create {by_name}")["id"]
    rent(by_id, new_place(deployment.admin, deployment.database))
    assert "1 allocations" in operator.refused(f"tenant delete {by_id.tenant_id}", "tenant_in_use")
    assert operator.json(f"tenant delete {by_name}") == {"id": made, "deleted": True}
    assert f"{made} is deleted" in operator.run(f"tenant delete {made}").output, "a repetition changes nothing"
    listed = {one["id"]: one["state"] for one in operator.json("tenant list")["items"]}
    assert (listed[made], listed[by_id.tenant_id]) == ("deleted", "active")
    operator.refused("tenant delete unknown", "not_found")
    operator.refused(f"tenant delete {ID}", "not_found")


def test_an_allocation_is_updated(deployment: Deployment) -> None:
    caller = new_tenant(deployment.admin)
    tenant = Shell(deployment.address, caller.key)
    made = rent(caller, new_place(deployment.admin, deployment.database), labels={"a": "1"})["allocation_id"]
    assert tenant.json(f"alloc update {made} --name new")["name"] == "new"
    shown = tenant.json(f"alloc update {made} --label b=2 --label c=3")
    assert (shown["name"], shown["labels"]) == ("new", {"b": "2", "c": "3"})
    assert tenant.json(f"alloc update {made} --no-labels")["labels"] == {}
    assert tenant.json(f"alloc update {made} --ends-at 2030-01-02T03:04:05Z")["ends_at"] == "2030-01-02T03:04:05Z"
    assert tenant.json(f"alloc update {made} --name newer")["ends_at"] == "2030-01-02T03:04:05Z"
    assert tenant.json(f"alloc update {made} --no-end")["ends_at"] is None
    tenant.refused(f"alloc update {made} --ends-at 2020-01-02T03:04:05Z", "window_invalid")
    tenant.refused(f"alloc update {made} --ends-at soon", "usage", 2)
    tenant.refused(f"alloc update {made} --ends-at 2030-01-02T03:04:05Z --no-end", "usage", 2)
    tenant.refused(f"alloc update {made}", "usage", 2)
    tenant.refused(f"alloc update {made} --no-labels --label a=1", "usage", 2)
    tenant.refused(f"alloc update {ID} --name x", "not_found")
