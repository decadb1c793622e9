"""`berth node adopt-machine` and `node adoption` against a real API: success, repetition, malformed and huge values, refusals."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.local.authority import ensure_authority
from berth.local.servers import LocalPostgres
from tests.api.calling import Caller, fresh
from tests.client.deployment import Deployment, running_deployment
from tests.placement.fleet import ADD_NODES, SEED
from tests.support.shell import Shell, bare

__all__ = ["bare"]

SMBIOS = "4c4c4544-0044-4810-8031-b4c04f4d3732"
MAC = "02:00:00:00:00:01"
LOOKED = """
update node_bmcs set power_state = 'On', looked_at = clock_timestamp(), inventory = jsonb_build_object(
    'uuid', '4c4c4544-0044-4810-8031-b4c04f4d3732', 'serial', 'S7', 'manufacturer', 'M', 'model', 'X',
    'nics', jsonb_build_array(jsonb_build_object('mac', '02:00:00:00:00:01')))
where node_id = (select id from nodes where name = %s)
"""
TENANT = """
with made as (insert into tenants (name) values (%s) returning id), quota as (
    insert into tenant_quotas (tenant_id, gpus_limit) select id, 8 from made
) insert into ssh_keys (tenant_id, name, public_key, fingerprint) select id, 'k', 'ssh-ed25519 AAAA', 'f' from made
returning tenant_id, id
"""
BODY: dict[str, Any] = {
    "sku": "h100.metal", "connection": {"host": "192.0.2.7", "user": "root", "host_key": "ssh-ed25519 AAAA"},
    "network": {"mac": MAC, "address": "192.0.2.7/24"},
}  # fmt: skip


@pytest.fixture(scope="module")
def deployment(
    postgres_server: LocalPostgres, migrated_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """An API at which deploy systems can enrol."""
    directory = tmp_path_factory.mktemp("cli")
    settings = {
        "BERTH_PUBLIC_API_URL": "https://api.example",
        "BERTH_PUBLIC_CA_FILE": str(ensure_authority(directory, "berth.local").ca_certificate),
    }
    with running_deployment(postgres_server, migrated_template, directory, **settings) as running:
        running.database.execute(SEED)
        yield running


@pytest.fixture
def shell(deployment: Deployment) -> Shell:
    return Shell(deployment.address, deployment.admin.key)


@pytest.fixture
def node(deployment: Deployment, shell: Shell, tmp_path: Path) -> str:
    """The name of a cordoned machine at a site."""
    deployment.database.execute(ADD_NODES, (1, "baremetal"))
    row = deployment.database.execute("select id, name from nodes order by unit_base desc limit 1").fetchone()
    assert row is not None
    site, key = fresh("rack"), shell.json(f"site new-recovery-key {tmp_path / 'recovery.pem'}")["public_key"]
    shell.json(f"site create {site} --recovery-key {key}")
    (tmp_path / "password").write_text("secret-of-a-BMC")
    shell.json(
        f"node bmc set {row[1]} --site {site} --url https://192.0.2.7 --username root"
        f" --certificate-sha256 {'ab' * 32} --password-file {tmp_path / 'password'}"
    )
    shell.json(f"node cordon {row[1]}")
    return str(row[1])


@pytest.fixture
def tenant(deployment: Deployment) -> tuple[str, str]:
    """Ids of a tenant and of its key."""
    row = deployment.database.execute(TENANT, (fresh("tenant"),)).fetchone()
    assert row is not None
    return str(row[0]), str(row[1])


def line(node: str, tenant: tuple[str, str], more: str = "") -> str:
    return (
        f"node adopt-machine {node} --tenant {tenant[0]} --ssh-key {tenant[1]} --sku h100.metal --host 192.0.2.7 --user root"
        f" --host-key 'ssh-ed25519 AAAA' --mac {MAC} --address 192.0.2.7/24 {more}"
    )


def test_a_machine_is_adopted_shown_and_released(
    shell: Shell, deployment: Deployment, node: str, tenant: tuple[str, str]
) -> None:
    shell.refused(f"node adoption {node}", "not_found")
    shell.refused(line(node, tenant), "machine_not_adoptable")
    deployment.database.execute(LOOKED, (node,))
    shell.refused(line(node, tenant, "--serial other"), "machine_not_adoptable")
    shell.refused(line(node, tenant, f"--smbios-uuid {uuid.UUID(int=7)}"), "machine_not_adoptable")
    more = (
        f"--serial S7 --smbios-uuid {SMBIOS} --name a --label team=x --port 2222 --gateway 192.0.2.1 --vlan 7 --require-tpm"
        " --image metal-only --ends-at 2026-12-24T00:00:00Z --idempotency-key adopt-1"
    )
    made = shell.json(line(node, tenant, more))
    found = made["allocation"]
    assert (found["status"], found["tenant_id"], found["labels"], found["image"]) == (
        "active", tenant[0], {"team": "x"}, "metal-only",
    )  # fmt: skip
    assert (found["connection"]["port"], made["network"]["vlan"], made["machine"]["serial"]) == (2222, 7, "S7")
    assert "network_port" not in made["gaps"]
    assert shell.json(line(node, tenant, more)) == made, "a repetition has the first answer"
    shell.refused(line(node, tenant, more.replace("2222", "22")), "operation_conflict")
    shell.refused(line(node, tenant), "node_in_use")
    assert shell.json(f"node adoption {node}") == made
    assert "operating_system" in shell.run(f"node adoption {node}").stdout
    (kept,) = deployment.database.execute(
        "select adoption -> 'medium' from allocations where id = %s", (found["allocation_id"],)
    ).fetchall()
    assert (kept[0]["require_tpm"], kept[0]["addresses"]["api_url"]) == (True, "https://api.example")
    shell.json(f"force-release {found['allocation_id']} --reason x")
    assert shell.json(f"node adoption {node}")["allocation"]["status"] == "releasing"
    shell.refused(f"node uncordon {node}", "invalid_state")


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("connection", {"host": "a b", "user": "root", "host_key": "ssh-ed25519 AAAA"}),
        ("connection", {"host": "h" * 254, "user": "root", "host_key": "ssh-ed25519 AAAA"}),
        ("connection", {"host": "h", "user": "Root!", "host_key": "ssh-ed25519 AAAA"}),
        ("connection", {"host": "h", "user": "root", "host_key": "ssh-ed25519 AAAA\nssh-rsa BBBB"}),
        ("connection", {"host": "h", "user": "root", "host_key": "ssh-ed25519 " + "A" * 5_000}),
        ("connection", {"host": "h", "user": "root", "host_key": "ssh-ed25519 AAAA", "port": 0}),
        ("connection", None), ("network", None), ("network", {"mac": MAC, "address": "192.0.2.7"}),
        ("network", {"mac": "02:00:00:00:00:0G", "address": "192.0.2.7/24"}),
        ("network", {"mac": MAC, "address": "192.0.2.7/24", "gateway": "198.51.100.1"}),
        ("smbios_uuid", SMBIOS.upper()), ("serial", "x" * 257), ("serial", ""), ("macs", [MAC] * 17), ("ssh_key_ids", []),
        ("name", "n" * 101), ("labels", {f"l{n}": "x" for n in range(65)}), ("ends_at", "tomorrow"), ("unknown", 1),
        ("tenant_id", "acme"), ("sku", ""), ("require_tpm", "yes"),
    ],
)  # fmt: skip
def test_what_is_malformed_or_too_large_is_refused_and_changes_nothing(
    deployment: Deployment, node: str, tenant: tuple[str, str], part: str, value: object
) -> None:
    deployment.database.execute(LOOKED, (node,))
    admin: Caller = deployment.admin
    node_id = admin.get(f"/admin/nodes/{node}")["id"]
    body = {**BODY, "tenant_id": tenant[0], "ssh_key_ids": [tenant[1]], part: value}
    answer = admin.call("POST", f"/admin/nodes/{node_id}/adoption", body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid"), answer.text
    assert deployment.count("select count(*) from claims where node_id = %s", node_id) == 0


def test_an_unknown_node_and_one_without_a_bmc_are_not_found(
    shell: Shell, deployment: Deployment, tenant: tuple[str, str]
) -> None:
    shell.refused(line("absent", tenant), "not_found")
    deployment.database.execute(ADD_NODES, (1, "baremetal"))
    row = deployment.database.execute("select name from nodes order by unit_base desc limit 1").fetchone()
    assert row is not None
    shell.refused(line(str(row[0]), tenant), "not_found")
    shell.refused(f"node adoption {row[0]}", "not_found")
    body = {**BODY, "tenant_id": tenant[0], "ssh_key_ids": [tenant[1]]}
    answer = deployment.admin.call("POST", f"/admin/nodes/{uuid.uuid4()}/adoption", body)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
