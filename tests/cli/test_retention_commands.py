"""`berth retention` and the client's calls of policies against a real API: what they print and how they end."""

from __future__ import annotations

import asyncio

import pytest

from berth.client import AsyncClient, Client, NotFound, RetentionOutOfBounds, VersionInFuture
from tests.api.calling import new_tenant
from tests.client.deployment import Deployment
from tests.support.shell import Shell, bare, deployment

__all__ = ["bare", "deployment"]


def test_policies_from_the_command_line(deployment: Deployment) -> None:
    shell = Shell(deployment.address, new_tenant(deployment.admin).key)
    made = shell.json("retention set backup 0 --idempotency-key retention-1")
    assert (made["policy_id"], made["prevent_truncate"], made["kept_from"]) == ("backup", 0, 1)
    assert shell.json("retention get backup") == made
    assert shell.json("retention list") == {"items": [made]}
    assert "backup" in shell.run("retention list").output
    shell.refused("retention set backup 9000000000", "version_in_future")
    shell.refused("retention get absent", "not_found")
    assert shell.run("retention delete backup").exit_code == 0
    shell.refused("retention delete backup", "not_found")
    assert shell.json("retention list") == {"items": []}


def test_operators_list_tenants_policies_and_forget_consumers(deployment: Deployment) -> None:
    tenant, shell = new_tenant(deployment.admin), Shell(deployment.address, deployment.admin.key)
    made = Shell(deployment.address, tenant.key).json("retention set theirs 0")
    assert shell.json(f"retention list --tenant {tenant.tenant_id}") == {"items": [made]}
    shell.refused("retention list --tenant absent", "not_found")
    listed = shell.json("retention consumers")["items"]
    assert {"berth-relay", "metering"} <= {one["consumer"] for one in listed}
    shell.refused("retention forget-consumer metering --reason over", "invalid_state")
    shell.refused("retention forget-consumer absent --reason over", "not_found")


def test_policies_from_a_program(deployment: Deployment) -> None:
    key = new_tenant(deployment.admin).key
    with Client(deployment.address, key) as client:
        made = client.put_retention_policy("p.1", prevent_truncate=1)
        assert client.get_retention_policy("p.1") == made
        assert client.list_retention_policies() == [made]
        with pytest.raises(VersionInFuture):
            client.put_retention_policy("p.1", prevent_truncate=2**62)
        client.delete_retention_policy("p.1")
        with pytest.raises(NotFound):
            client.get_retention_policy("p.1")
    assert RetentionOutOfBounds.codes == ("retention_out_of_bounds",)

    async def listed() -> object:
        async with AsyncClient(deployment.address, key) as client:
            await client.put_retention_policy("q", prevent_truncate=0)
            return [policy.policy_id for policy in await client.list_retention_policies()]

    assert asyncio.run(listed()) == ["q"]
