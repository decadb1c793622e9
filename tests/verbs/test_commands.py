"""The verbs from the command line, against a real API."""

from __future__ import annotations

from tests.api.calling import fresh, new_place, new_tenant
from tests.client.deployment import Deployment
from tests.support.shell import Shell, bare, deployment

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
