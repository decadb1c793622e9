"""The size of a SKU over HTTP, and from the command line."""

from __future__ import annotations

from typing import Any

from tests.api.calling import GPU_MODEL, Caller, fresh, new_node, new_region, new_tenant, problem, refusal
from tests.client.deployment import Deployment
from tests.support.public_api import PublicApi
from tests.support.shell import Shell, bare, deployment

__all__ = ["bare", "deployment"]

GIB = 2**30
BODY = {"shape": "gpu_slice", "gpu_model": GPU_MODEL, "allowed_counts": [1, 2]}
SIZE = {"vcpus_per_gpu": 16, "memory_bytes_per_gpu": 128 * GIB}


def listed(caller: Caller, name: str) -> dict[str, Any]:
    """One SKU of the list."""
    return next(sku for sku in caller.every("/skus", 500) if sku["name"] == name)


def test_tenants_list_the_size_that_an_operator_stated(admin: Caller) -> None:
    plain, sized = fresh("sku"), fresh("sku")
    admin.put(f"/admin/skus/{plain}", BODY)
    key = fresh("put")
    made = admin.call("PUT", f"/admin/skus/{sized}", {**BODY, **SIZE}, key=key)
    assert made.status_code == 201
    assert made.json() | SIZE == made.json()
    again = admin.call("PUT", f"/admin/skus/{sized}", {**BODY, **SIZE}, key=key)
    assert (again.status_code, again.headers["idempotent-replayed"]) == (201, "true")
    tenant = new_tenant(admin)
    assert listed(tenant, sized) | SIZE == listed(tenant, sized)
    assert (listed(tenant, plain)["vcpus_per_gpu"], listed(tenant, plain)["memory_bytes_per_gpu"]) == (None, None)


def test_a_size_must_make_sense(admin: Caller) -> None:
    path = f"/admin/skus/{fresh('sku')}"
    mistakes: list[dict[str, Any]] = [
        {"vcpus_per_gpu": 0},
        {"vcpus_per_gpu": 257},
        {"vcpus_per_gpu": 1.5},
        {"vcpus_per_gpu": "1"},
        {"memory_bytes_per_gpu": 63 * 2**20},
        {"memory_bytes_per_gpu": 64 * 2**20 + 1},
        {"memory_bytes_per_gpu": 2**46 + 2**20},
        {"shape": "baremetal", "vcpus_per_gpu": 1},
        {"shape": "baremetal", "memory_bytes_per_gpu": 64 * 2**20},
        {"vcpus": 1},
    ]
    for wrong in mistakes:
        assert refusal(admin.call("PUT", path, {**BODY, **wrong})) == (422, "invalid"), wrong
    for edge in ({"vcpus_per_gpu": 256}, {"memory_bytes_per_gpu": 2**46}, {"memory_bytes_per_gpu": 64 * 2**20}):
        admin.put(f"/admin/skus/{fresh('sku')}", {**BODY, **edge})


def test_another_size_and_a_node_with_too_little_are_refused(api: PublicApi, admin: Caller) -> None:
    model = fresh("GPU")
    body, path = {**BODY, "gpu_model": model}, f"/admin/skus/{fresh('sku')}"
    admin.put(path, {**body, **SIZE})
    key = fresh("put")
    for _ in range(2):
        refused = problem(admin.call("PUT", path, {**body, "vcpus_per_gpu": 8}, key=key), 409, "guest_size_fixed")
        assert (refused["vcpus_per_gpu"], refused["outcome"]) == (16, "not_done")
    assert refusal(admin.call("PUT", path, {**body, "shape": "baremetal"})) == (409, "guest_size_fixed")
    node = new_node(admin, new_region(admin), gpu_model=model)
    api.database.execute("update nodes set agent_version = '0.1' where id = %s", (node["id"],))
    other = f"/admin/skus/{fresh('sku')}"
    refused = problem(admin.call("PUT", other, {**body, **SIZE}), 409, "guest_size_unsupported")
    assert (refused["node"], refused["agent_version"]) == (node["name"], "0.1")
    assert listed(admin, path.rsplit("/", 1)[1])["vcpus_per_gpu"] == 16
    assert other.rsplit("/", 1)[1] not in [sku["name"] for sku in admin.every("/skus", 500)]


def test_a_size_is_put_and_shown_from_the_command_line(deployment: Deployment) -> None:
    operator = Shell(deployment.address, deployment.admin.key)
    name, line = fresh("sku"), f"--shape gpu_slice --gpu-model {GPU_MODEL} --count 1"
    made = operator.json(f"sku put {name} {line} --vcpus 16 --memory-mib 131072")
    assert made | SIZE == made
    assert "131072" in operator.run("sku list").output
    assert "retire this one" in operator.refused(f"sku put {name} {line} --vcpus 8", "guest_size_fixed")
    assert operator.json(f"sku put {name} {line} --price 7")["vcpus_per_gpu"] == 16
