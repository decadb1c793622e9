"""Balances over HTTP, from the client and from the command line: permissions, responses, refusals."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.client import AsyncClient, BalanceDepleted, BalanceOutOfBounds, Client, Forbidden
from berth.local.servers import LocalPostgres
from tests.allocations.seeding import IMAGE, REGION, SLICE_SKU, seed
from tests.api.calling import Caller, insert_admin_key, new_tenant, problem
from tests.api.processes import public_process
from tests.databases import copied_database


@pytest.fixture(scope="module")
def admin(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Caller]:
    """An operator at an API over a small fleet."""
    with copied_database(postgres_server, migrated_template) as url:
        seed(url)
        with public_process(url, tmp_path_factory.mktemp("balance")) as http:
            yield Caller(http, insert_admin_key(url))


def create(tenant: Caller) -> dict[str, Any]:
    """The body of a create."""
    key = tenant.make("/ssh-keys", {"name": uuid.uuid4().hex, "public_key": SSH_KEY})["id"]
    return {"sku": SLICE_SKU, "gpus": 1, "region": REGION, "image": IMAGE, "ssh_key_ids": [key]}


SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


def test_a_balance_from_making_it_prepaid_to_lifting_it(admin: Caller, tenant: Caller) -> None:
    path = f"/admin/tenants/{tenant.tenant_id}"
    assert tenant.get("/balance")["prepaid"] is False
    set_ = admin.call("PUT", f"{path}/balance", {"prepaid": True, "low_threshold_micro_units": 10.0})
    assert set_.status_code == 200
    balance = tenant.get("/balance")
    assert {**balance, "at": None} == {**set_.json(), "at": None}
    assert (balance["available_micro_units"], balance["low_threshold_micro_units"]) == (0, 10)
    assert balance["depleted_at"] is not None
    assert balance["low_told_at"] is not None
    assert balance["runs_out_at"] is None

    body = create(tenant)
    problem(tenant.call("POST", "/allocations", body), 409, "balance_depleted")
    hold = {"sku": SLICE_SKU, "gpus": 1, "region": REGION, "holder_id": "h"}
    problem(tenant.call("POST", "/reservations", hold), 409, "balance_depleted")

    line = admin.make(f"{path}/top-ups", {"amount_micro_units": 11, "reference": "invoice 1"})
    assert (line["kind"], line["amount_micro_units"], line["reference"]) == ("top_up", 11, "invoice 1")
    lifted = admin.get(f"{path}/balance")
    assert (lifted["settled_micro_units"], lifted["depleted_at"], lifted["low_told_at"]) == (11, None, None)
    held = tenant.make("/reservations", hold)
    assert tenant.call("POST", "/allocations", body).status_code == 201

    taken = admin.make(f"{path}/withdrawals", {"amount_micro_units": 20, "reference": "a mistake"})
    assert taken["kind"] == "withdrawal"
    assert tenant.get("/balance")["available_micro_units"] == -9
    # What is held is the tenant's to cancel, and not to use.
    use = {"image": IMAGE, "ssh_key_ids": body["ssh_key_ids"], "reservation_id": held["reservation_id"]}
    problem(tenant.call("POST", "/allocations", {**use, "holder_id": "h"}), 409, "balance_depleted")
    assert tenant.call("POST", f"/reservations/{held['reservation_id']}/cancel", {"holder_id": "h"}).status_code == 200
    audited = admin.get("/admin/audit", subject=f"tenants/{tenant.tenant_id}")["items"]
    actions = [entry["action"] for entry in audited if entry["action"] != "tenant.read"]
    assert actions[-3:] == ["balance.set_policy", "balance.top_up", "balance.withdrawal"]


def test_the_owner_and_the_roles_that_may(admin: Caller, tenant: Caller) -> None:
    stranger = new_tenant(admin)
    problem(stranger.call("GET", "/balance", tenant_id=tenant.tenant_id), 404, "not_found")
    problem(admin.call("GET", "/balance"), 403, "forbidden")
    assert admin.get("/balance", tenant_id=tenant.tenant_id)["tenant_id"] == tenant.tenant_id
    path = f"/admin/tenants/{tenant.tenant_id}"
    for method, where, body in (
        ("GET", "balance", None), ("PUT", "balance", {"prepaid": False}),
        ("POST", "top-ups", {"amount_micro_units": 1}),
        ("POST", "withdrawals", {"amount_micro_units": 1, "reference": "x"}),
    ):  # fmt: skip
        problem(tenant.call(method, f"{path}/{where}", body), 403, "forbidden")
        problem(admin.call(method, f"/admin/tenants/{uuid.uuid4()}/{where}", body), 404, "not_found")


@pytest.mark.parametrize(
    ("where", "body"),
    [
        ("top-ups", {"amount_micro_units": amount}) for amount in (0, -1, 10**18 + 1, 2**63, 1.5, "1", True, None)
    ] + [
        ("top-ups", {}), ("top-ups", {"amount_micro_units": 1, "why": "x"}),
        ("top-ups", {"amount_micro_units": 1, "reference": "\u0000"}),
        ("top-ups", {"amount_micro_units": 1, "reference": "x" * 101}),
        ("withdrawals", {"amount_micro_units": 1}), ("withdrawals", {"amount_micro_units": 1, "reference": "  "}),
        ("balance", {}), ("balance", {"prepaid": 1}), ("balance", {"prepaid": True, "low_threshold_micro_units": -1}),
        ("balance", {"prepaid": True, "low_threshold_micro_units": 10**18 + 1}),
    ],
)  # fmt: skip
def test_what_cannot_be_read_changes_nothing(admin: Caller, shared: Caller, where: str, body: dict[str, Any]) -> None:
    method = "PUT" if where == "balance" else "POST"
    problem(admin.call(method, f"/admin/tenants/{shared.tenant_id}/{where}", body), 422, "invalid")
    found = admin.get(f"/admin/tenants/{shared.tenant_id}/balance")
    assert (found["settled_micro_units"], found["prepaid"]) == (0, False)


@pytest.fixture(scope="module")
def shared(admin: Caller) -> Caller:
    """A tenant that no test changes."""
    return new_tenant(admin)


def test_with_the_client(admin: Caller, tenant: Caller) -> None:
    url, tenant_id = str(admin.http.base_url), uuid.UUID(tenant.tenant_id)
    with Client(url, admin.key) as operator, Client(url, tenant.key) as client:
        assert operator.set_balance_policy(tenant_id, prepaid=True).depleted_at is not None
        body = create(tenant)
        with pytest.raises(BalanceDepleted):
            client.create_allocation(
                sku=SLICE_SKU, gpus=1, region=REGION, image=IMAGE, ssh_key_ids=[uuid.UUID(body["ssh_key_ids"][0])]
            )
        key = operator.new_idempotency_key()
        lines = [operator.top_up_balance(tenant_id, amount_micro_units=10**18, idempotency_key=key) for _ in range(2)]
        assert lines[0] == lines[1]
        with pytest.raises(BalanceOutOfBounds) as full:
            operator.top_up_balance(tenant_id, amount_micro_units=1)
        assert full.value.extra["balance_max_micro_units"] == 10**18
        operator.withdraw_from_balance(tenant_id, amount_micro_units=1, reference="too much")
        assert client.get_balance().available_micro_units == 10**18 - 1
        assert operator.get_balance_of(tenant_id).settled_micro_units == 10**18 - 1
        with pytest.raises(Forbidden):
            client.top_up_balance(tenant_id, amount_micro_units=1)

    async def awaited() -> int:
        async with AsyncClient(url, tenant.key) as client:
            return (await client.get_balance()).available_micro_units

    assert asyncio.run(awaited()) == 10**18 - 1


def test_from_the_command_line(admin: Caller, tenant: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.shell import Shell

    monkeypatch.chdir(tmp_path)
    shell = Shell(str(admin.http.base_url), admin.key)
    line = shell.json(f"balance top-up {tenant.tenant_id} 500 --reference invoice")
    assert (line["amount_micro_units"], line["reference"]) == (500, "invoice")
    assert shell.json(f"balance set {tenant.tenant_id} --prepaid --low-below 50")["low_threshold_micro_units"] == 50
    shell.json(f"balance withdraw {tenant.tenant_id} 460 --reference back")
    assert shell.json(f"balance show --tenant {tenant.tenant_id}")["available_micro_units"] == 40
    shown = shell.run(f"balance show --tenant {tenant.tenant_id}")
    assert shown.exit_code == 0
    assert "low since" in shown.stdout
    assert "depleted" not in shown.stdout
