"""`berth node inspect` of a machine of QEMU behind sushy-tools' BMC, with the real medium: from off to off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from berth.local.machines.domains import console_devices, uefi_system
from berth.local.machines.networks import HOST
from node_agent.redfish.contract import BmcAccess
from tests.metal.qemu import MAC
from tests.redfish.emulator import defined
from tests.sites.emulated import EmulatedStage, access, berth, image_at, medium, site, stage, virsh
from tests.sites.stage import Site
from tests.support.waiting import wait_for

__all__ = ["access", "medium", "site", "stage"]

# Quicker, without a guest: tests/sites/test_runs.py and tests/sites/test_killed_runs.py.
pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(900)]
DISK_BYTES = 64 << 20
RUN_SECONDS_MAX = 700.0


@pytest.fixture
def machine(tmp_path: Path, medium: Path) -> Iterator[str]:
    """A domain that is off, with one empty disk and one port; its UUID."""
    place = tmp_path / "machine"
    system = uefi_system(place)
    devices = f"<interface type='user'><mac address='{MAC}'/><model type='virtio'/></interface>{console_devices(place)}"
    with defined(place, system, devices, DISK_BYTES) as identity:
        yield identity


def test_a_machine_is_inspected_from_off_to_off(
    stage: EmulatedStage, site: Site, machine: str, access: BmcAccess, tmp_path: Path
) -> None:
    node = stage.node()

    def is_run(condition: str) -> bool:
        return bool(stage.fleet.one(f"select count(*) from deploy_runs where node_id = %s and {condition}", node))

    (tmp_path / "password").write_text(access.password)
    berth(stage, f"node cordon {node}")
    berth(
        stage,
        f"node bmc set {node} --site {site.name} --url {access.url} --username {access.username}"
        f" --certificate-sha256 {access.certificate_sha256} --password-file {tmp_path / 'password'}",
    )
    berth(stage, f"node bmc look {node}")
    assert stage.ended(node)["task"]["outcome"] == "completed"
    assert virsh("domstate", machine).strip() == "shut off"

    berth(stage, f"node inspect {node} --mac {MAC} --address 10.0.2.15/24 --gateway {HOST}")
    assert berth(stage, f"node inspect {node}")["outcome"] is None
    wait_for(lambda: is_run("step in ('work', 'end')"), "the deploy system starts", 400)
    image = image_at(access, machine)
    assert image is not None
    assert httpx.head(image).status_code == 200
    wait_for(lambda: is_run("ended_at is not null"), "the run ends", RUN_SECONDS_MAX)

    console = tmp_path / "machine" / "console"
    run = berth(stage, f"node run {node}")
    assert (run["outcome"], run["failure"]) == ("completed", None), console.read_text(errors="replace")[-3000:]
    assert virsh("domstate", machine).strip() == "shut off"
    assert "cdrom" not in virsh("domblklist", machine, "--details")
    assert image_at(access, machine) is None
    assert httpx.head(image).status_code == 404, "nothing is served after the end"
    found = berth(stage, f"node deploy-system {node}")["machine"]
    assert found["smbios_uuid"] == machine
    disks = found["report"]["topology"]["disks"]
    assert [(one["serial"], one["size_bytes"]) for one in disks] == [("DISK1", DISK_BYTES)]
    assert (tmp_path / "machine" / "disk.raw").read_bytes().count(0) == DISK_BYTES, "an inspection writes to no disk"
