"""A statement that has lost its filter shows a tenant nothing of another, through the API as it runs in production."""

from __future__ import annotations

from uuid import UUID

import pytest

from orchestrator.allocations.store import rows as allocation_rows
from orchestrator.database.transactions import Transaction
from orchestrator.tenants.store import ssh_keys
from orchestrator.webhooks.store import webhooks
from tests.api.calling import Caller, Place, new_tenant, one_gpu, ssh_key
from tests.support.public_api import PublicApi, admin, api, place, tenant

__all__ = ["admin", "api", "place", "tenant"]

OF_THE_TENANT = "and w.tenant_id is not distinct from cast(:tenant_id as uuid) "


def ids(caller: Caller, path: str, name: str = "id") -> set[str]:
    """The ids of a list."""
    return {one[name] for one in caller.get(path)["items"]}


def test_a_list_of_webhooks_without_its_filter(admin: Caller, tenant: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    other = new_tenant(admin)
    own, others = (one.make("/webhooks", {"url": "https://hooks.example/"})["id"] for one in (tenant, other))
    assert OF_THE_TENANT in webhooks._LIST, "this test removes the filter of the statement that runs"
    monkeypatch.setattr(webhooks, "_LIST", webhooks._LIST.replace(OF_THE_TENANT, ""))
    assert ids(tenant, "/webhooks") == {own}
    assert ids(other, "/webhooks") == {others}
    assert {own, others} <= ids(admin, "/webhooks"), "the filter is gone: operators act for all"


def test_a_list_of_allocations_that_is_that_of_operators(
    admin: Caller, tenant: Caller, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_tenant(admin)
    own, others = (one.make("/allocations", one_gpu(one, place))["allocation_id"] for one in (tenant, other))
    monkeypatch.setattr(allocation_rows, "_LIST_OF_TENANT", allocation_rows._LIST_OF_ALL)
    assert ids(tenant, "/allocations", "allocation_id") == {own}
    assert ids(other, "/allocations", "allocation_id") == {others}
    found = admin.get("/allocations", tenant_id=tenant.tenant_id)["items"]
    assert {own, others} <= {one["allocation_id"] for one in found}, "the filter is gone: operators act for all"


def test_a_delete_without_its_filter(
    api: PublicApi, admin: Caller, tenant: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_tenant(admin)
    others = other.make("/ssh-keys", {"name": "laptop", "public_key": ssh_key()})["id"]

    async def delete_any(tx: Transaction, tenant_id: UUID, key_id: UUID) -> None:
        del tenant_id
        await tx.execute("delete from ssh_keys where id = :id", {"id": key_id})

    monkeypatch.setattr(ssh_keys, "delete_ssh_key", delete_any)
    assert tenant.call("DELETE", f"/ssh-keys/{others}").status_code == 204, "nothing was found, nothing was refused"
    assert api.database.execute("select count(*) from ssh_keys where id = %s", (others,)).fetchone() == (1,)
