"""`berth node inspect`, `node run` and `node power` against a real API: success, repetition, stop, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import get_args, get_type_hints

import pytest

from berth.cli.fleet.deploy_systems import inspect_machine
from berth.local.authority import ensure_authority
from berth.local.servers import LocalPostgres
from orchestrator.nodes.deploy_systems.root_disks import RootDiskKind
from tests.api.calling import fresh
from tests.client.deployment import Deployment, running_deployment
from tests.placement.fleet import ADD_NODES, SEED
from tests.support.shell import Shell, bare

__all__ = ["bare"]

SMBIOS = "4c4c4544-0044-4810-8031-b4c04f4d3732"
NETWORK = "--mac 02:00:00:00:00:01 --address 192.0.2.7/24 --gateway 192.0.2.1"
INSPECTED = """
insert into node_machines (node_id, smbios_uuid, macs, report, inspected_at)
select id, '4c4c4544-0044-4810-8031-b4c04f4d3732', '{02:00:00:00:00:01}', jsonb_build_object(
    'smbios_uuid', '4c4c4544-0044-4810-8031-b4c04f4d3732', 'topology', jsonb_build_object(
        'driver', 'redfish', 'processors', jsonb_build_object('architecture', 'x86_64'),
        'disks', jsonb_build_array(jsonb_build_object('name', 'sda', 'serial', 'S1', 'size_bytes', 4096)))),
    clock_timestamp()
from nodes where name = %s
"""
ENDED = (
    "update bmc_tasks set outcome = 'failed', failure = 'no_agent: test', ended_at = clock_timestamp(), waits_for = null,"
    " waits_since = null, waits_until = null where ended_at is null"
)

RUN_ENDED = (
    "update deploy_runs set outcome = 'stopped', ended_at = clock_timestamp(), waits_for = null, waits_since = null,"
    " waits_until = null where ended_at is null"
)


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


def test_a_run_is_requested_shown_and_stopped(shell: Shell, deployment: Deployment, node: str) -> None:
    shell.refused(f"node run {node}", "not_found")
    shell.refused(f"node run {node} --stop", "invalid_state")
    shell.refused(f"node inspect {node} --smbios-uuid {SMBIOS}", "invalid")
    shell.refused(f"node inspect {node} {NETWORK}", "machine_unknown")
    made = shell.json(f"node inspect {node} {NETWORK} --smbios-uuid {SMBIOS}")
    assert (made["step"], made["outcome"], made["waits"]["for"]) == ("power_off", None, "site_agent")
    assert shell.json(f"node inspect {node}")["id"] == made["id"], "an open run is the answer"
    rows = [line.split() for line in shell.run(f"node run {node}").stdout.splitlines()]
    for row in (["step", "power_off"], ["outcome", "open"], ["waits", "for", "site_agent"], ["SMBIOS", "UUID", SMBIOS]):
        assert row in rows
    shell.refused(f"node power {node} on", "invalid_state")
    shell.refused(f"node uncordon {node}", "invalid_state")
    assert shell.json(f"node run {node} --stop")["stop_requested_at"] is not None
    assert "stop requested at" in shell.run(f"node run {node} --stop").stdout


def test_what_the_root_disk_must_be_is_kept_until_it_is_said_anew(
    shell: Shell, deployment: Deployment, node: str
) -> None:
    made = shell.json(f"node inspect {node} {NETWORK} --smbios-uuid {SMBIOS} --root-serial S4AA --root-kind nvme")
    hint = {"serial": "S4AA", "kind": "nvme", "size_bytes_min": None}
    assert made["root_disk"] == hint
    rows = [line.split() for line in shell.run(f"node run {node}").stdout.splitlines()]
    assert ["root", "disk", "serial", "S4AA,", "kind", "nvme"] in rows
    least = {"serial": None, "kind": None, "size_bytes_min": 9}
    for options, kept in (("", hint), ("--root-bytes-min 9", least), ("--root-any", None), ("", None)):
        deployment.database.execute(ENDED)
        deployment.database.execute(RUN_ENDED)
        assert shell.json(f"node inspect {node} --smbios-uuid {SMBIOS} {options}")["root_disk"] == kept


def test_the_kinds_of_a_root_disk_are_those_of_the_api() -> None:
    (option,) = [kind for kind in get_args(get_type_hints(inspect_machine)["root_kind"]) if kind is not NoneType]
    assert get_args(option) == get_args(RootDiskKind)


def test_another_root_disk_while_a_run_is_open_is_refused(shell: Shell, node: str) -> None:
    shell.json(f"node inspect {node} {NETWORK} --smbios-uuid {SMBIOS} --root-serial S4AA")
    for options in ("--root-serial S4BB", "--root-any"):
        shell.refused(f"node inspect {node} {options}", "invalid_state")
    assert shell.json(f"node run {node}")["root_disk"]["serial"] == "S4AA"


def test_a_wipe_is_requested_with_a_confirmation_alone(shell: Shell, deployment: Deployment, node: str) -> None:
    assert shell.run(f"node wipe {node} {NETWORK}").exit_code == 2
    shell.refused(f"node wipe {node} --yes {NETWORK}", "machine_not_wipeable")
    shell.refused(f"node run {node}", "not_found")
    deployment.database.execute(INSPECTED, (node,))
    made = shell.json(f"node wipe {node} --yes {NETWORK}")
    assert (made["kind"], made["step"], made["wipe"]) == ("wipe", "power_off", None)
    assert shell.json(f"node wipe {node} --yes")["id"] == made["id"], "an open run is the answer"
    shell.refused(f"node inspect {node}", "invalid_state")


@pytest.mark.parametrize(
    "line",
    [
        "node wipe {}", "node wipe {} --yes --mac 02:00:00:00:00:01",
        "node inspect {} --mac 02:00:00:00:00:01", "node inspect {} --address 192.0.2.7/24", "node inspect {} --vlan 7",
        "node inspect {} --by-hand --smbios-uuid " + SMBIOS, "node inspect {} --by-hand " + NETWORK,
        "node inspect {} --stay-on", "node power {} sideways", "node inspect {} --by-hand --root-any",
        "node inspect {} --root-any --root-kind nvme", "node inspect {} --root-kind floppy", "node inspect {} --root-bytes-min 0",
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_request_nothing(shell: Shell, node: str, line: str) -> None:
    assert shell.run(line.format(node)).exit_code == 2
    shell.refused(f"node run {node}", "not_found")
    assert shell.json(f"node bmc show {node}")["task"] is None


def test_power_is_requested_once_and_refused_while_in_service(shell: Shell, deployment: Deployment, node: str) -> None:
    asked = shell.json(f"node power {node} off")["task"]
    assert (asked["kind"], shell.json(f"node power {node} off")["task"]["id"]) == ("power_off", asked["id"])
    shell.refused(f"node inspect {node} {NETWORK} --smbios-uuid {SMBIOS}", "invalid_state")
    deployment.database.execute(ENDED)
    assert ["failure", "no_agent:", "test"] in [
        one.split() for one in shell.run(f"node bmc show {node}").stdout.splitlines()
    ]
    shell.json(f"node uncordon {node}")
    for verb in ("off", "reset"):
        shell.refused(f"node power {node} {verb}", "invalid_state")
    assert shell.json(f"node power {node} on")["task"]["kind"] == "power_on"
    shell.refused("node inspect absent", "not_found")
    shell.refused("node run absent", "not_found")
