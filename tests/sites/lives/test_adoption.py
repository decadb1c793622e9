"""A machine that runs its tenant's system already is adopted: nothing is written on it until its release, which wipes it."""

from __future__ import annotations

import hashlib
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from berth.local.machines.domains import console_devices, uefi_system
from berth.local.machines.networks import HOST, port_arguments, reachable
from berth.local.machines.raw_disks import RawContent, read_raw
from node_agent.deploy_system.effects import config_drive
from node_agent.redfish.contract import BmcAccess
from node_agent.wire.deploy_medium import MediumNetwork
from node_agent.wire.deploy_tasks import ConfigDrive
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.nodes.deploy_systems.deploy_orders import netplan_of
from tests.metal.lab import GUEST_IMAGE
from tests.metal.qemu import MAC, wait_until_ssh
from tests.redfish.emulator import defined
from tests.sites.emulated import EmulatedStage, access, berth, medium, site, stage, virsh
from tests.sites.renting.emulated_tenancy import ADDRESS, DISK_BYTES, RUN_SECONDS_MAX, Tenancy
from tests.sites.stage import Site
from tests.support.waiting import wait_for

__all__ = ["access", "medium", "site", "stage"]

# Quicker, without a machine: tests/sites/adopting.
pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(2400)]
MARKER = b"TENANT-WAS-HERE-59ad0b7e"
SEED_BYTES = 32 << 20
NETWORK = MediumNetwork.model_validate({"mac": MAC, "address": f"{ADDRESS}/24", "gateway": HOST})
NEVER_ENROLLED = "update nodes set online = false, enrolled_at = null, driver = null where id = %s"
STEP = "select step from deploy_runs where allocation_id = %s and kind = 'wipe' and ended_at is null"
INSPECTED = "select count(*) from deploy_runs where allocation_id = %s and kind = 'inspect' and outcome = 'completed'"


@pytest.fixture
def machine(tmp_path: Path, medium: Path) -> Iterator[str]:
    """A machine that is off, with two disks."""
    place = tmp_path / "machine"
    system = uefi_system(place)
    with (place / "seed.raw").open("wb") as empty:
        empty.truncate(SEED_BYTES)
    seed = (
        f"<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{place / 'seed.raw'}'/>"
        "<target dev='vdb' bus='virtio'/><serial>SEED1</serial></disk>"
    )
    arguments = port_arguments(MAC, ADDRESS)
    with (
        reachable([ADDRESS]),
        defined(place, system, f"{seed}{console_devices(place)}", DISK_BYTES, arguments) as identity,
    ):
        yield identity


def digests(place: Path) -> dict[str, str]:
    """Of each disk as it is."""
    return {name: hashlib.sha256((place / name).read_bytes()).hexdigest() for name in ("disk.raw", "seed.raw")}


def installed(place: Path, tenancy: Tenancy) -> dict[str, Any]:
    """Put the tenant's system on the disks of the machine, as its owner would have; where it will answer."""
    subprocess.run(
        ["qemu-img", "convert", "-n", "-O", "raw", str(GUEST_IMAGE), str(place / "disk.raw")], check=True, timeout=60
    )
    key = config_drive.new_host_key()
    wanted = ConfigDrive(
        hostname="own-name", instance_id="i-1", ssh_public_keys=[tenancy.key.with_suffix(".pub").read_text().strip()],
        network=netplan_of(NETWORK),
    )  # fmt: skip
    with (place / "seed.raw").open("r+b") as disk:
        disk.write(config_drive.volume(wanted, "tenant", key))
    return {"host": ADDRESS, "port": 22, "user": "tenant", "host_key": key.public}


def adopt(stage: EmulatedStage, node: str, machine: str, tenancy: Tenancy, connection: dict[str, Any]) -> None:
    """The operator adopts the machine for its tenant."""
    tenant = tenancy.tenant
    made = berth(
        stage,
        f"node adopt-machine {node} --tenant {tenant.id} --ssh-key {tenant.ssh_key} --sku h100.metal --host {ADDRESS}"
        f" --user tenant --host-key '{connection['host_key']}' --mac {MAC} --address {ADDRESS}/24 --gateway {HOST}"
        f" --smbios-uuid {machine}",
    )
    assert made["allocation"]["status"] == "active"
    tenancy.allocation = uuid.UUID(made["allocation"]["allocation_id"])


def test_a_machine_that_runs_is_adopted_unchanged_and_wiped_before_its_next_tenant(
    stage: EmulatedStage, site: Site, machine: str, access: BmcAccess, tmp_path: Path
) -> None:
    node, place = stage.node(), tmp_path / "machine"
    tenancy = Tenancy(stage, tmp_path)
    connection = installed(place, tenancy)
    virsh("start", machine)
    written = f"echo {MARKER.decode()} | dd of=/dev/vda bs=1M seek=300 conv=notrunc,fsync && hostname"
    assert wait_until_ssh(tenancy.ssh_command(connection, written, tmp_path)).strip() == "own-name"
    before = digests(place)
    assert read_raw(place / "disk.raw", MARKER).has_marker

    stage.fleet.connection.execute("alter table nodes disable trigger node_transitions")
    stage.fleet.connection.execute(NEVER_ENROLLED, (node,))
    stage.fleet.connection.execute("alter table nodes enable trigger node_transitions")
    (tmp_path / "password").write_text(access.password)
    berth(stage, f"node cordon {node}")
    berth(
        stage,
        f"node bmc set {node} --site {site.name} --url {access.url} --username {access.username} --no-rotate-at-release"
        f" --certificate-sha256 {access.certificate_sha256} --password-file {tmp_path / 'password'}",
    )
    berth(stage, f"node bmc look {node}")
    assert stage.ended(node)["task"]["outcome"] == "completed"
    adopt(stage, node, machine, tenancy, connection)
    assert tenancy.ssh(tenancy.shown("connection"), "hostname", tmp_path).strip() == "own-name", "it was not restarted"
    assert digests(place) == before
    claim = "select count(*) from claims where node_id = %s and occupied and closed_at is null"
    assert stage.fleet.one(claim, node) == 1

    tenancy.release()
    tenancy.run(lambda context, _: begin_release(context, tenancy.allocation, "releasing-1"))
    wait_for(lambda: stage.fleet.one(INSPECTED, tenancy.allocation), "the inspection ends", RUN_SECONDS_MAX)
    assert digests(place) == before, "the inspection has written on no disk"
    step = stage.fleet.one(STEP, tenancy.allocation)
    assert step in (None, "power_off", "start"), "the wipe had not begun when the disks were read"
    assert stage.fleet.one(claim, node) == 1

    tenancy.wait("wipe", place / "console")
    assert stage.fleet.one(claim, node) == 1, "the release has not concluded"
    done = tenancy.run(lambda context, _: finish_release(context, tenancy.allocation, "releasing-1"))
    assert done.state == "released"
    assert read_raw(place / "disk.raw", MARKER) == RawContent(DISK_BYTES, 0, False)
    assert read_raw(place / "seed.raw", MARKER) == RawContent(SEED_BYTES, 0, False)
    assert virsh("domstate", machine).strip() == "shut off"
    berth(stage, f"node uncordon {node}")
    other = Tenancy(stage, other_place(tmp_path))
    other.create()
    assert stage.fleet.one(claim, node) == 1


def other_place(tmp_path: Path) -> Path:
    """Where another tenant has its key."""
    made = tmp_path / "other"
    made.mkdir()
    return made
