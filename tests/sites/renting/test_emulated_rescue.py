"""A rented machine of QEMU behind sushy-tools' BMC is rescued: its tenant reads the disk, and boots from it afterwards."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from berth.local.machines.raw_disks import read_raw
from node_agent.redfish.contract import BmcAccess
from orchestrator.allocations.states import Verb
from tests.sites.emulated import EmulatedStage, access, image_at, medium, site, stage, virsh
from tests.sites.renting.emulated_tenancy import deployed, machine, put_into_service
from tests.sites.stage import Site
from tests.support.waiting import wait_for

__all__ = ["access", "machine", "medium", "site", "stage"]

# Quicker, without a BMC: tests/metal/test_rescue.py; without a machine: tests/sites/renting/test_rescues.py.
pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(2400)]
MARKER = b"TENANT-WAS-HERE-0a54c3e1"
AT_MIB = 300
READ = f"dd if=/dev/vda bs=1M skip={AT_MIB} count=1 2>/dev/null | head -c {len(MARKER)}"


def test_a_tenant_rescues_its_machine_and_boots_it_again(
    stage: EmulatedStage, site: Site, machine: str, access: BmcAccess, tmp_path: Path
) -> None:
    node, console, disk = stage.node(), tmp_path / "machine" / "console", tmp_path / "machine" / "disk.raw"
    put_into_service(stage, site, access, node, tmp_path, console)
    tenancy = deployed(stage, machine, tmp_path, console)
    own = tenancy.shown("connection")
    tenancy.ssh(own, f"echo {MARKER.decode()} | dd of=/dev/vda bs=1M seek={AT_MIB} conv=notrunc,fsync", tmp_path)
    assert read_raw(disk, MARKER).has_marker

    tenancy.order(Verb.RESCUE, console)
    assert (tenancy.shown("guest_state"), tenancy.shown("connection")) == ("rescue", own)
    assert virsh("domstate", machine).strip() == "running"
    assert image_at(access, machine) is None, "the medium is ejected under the running rescue system"
    ended_by = "select ended_by from deploy_systems where node_id = %s order by deploy_epoch desc limit 1"
    assert stage.fleet.one(ended_by, node) == "handed_over"
    rescue = tenancy.shown("rescue")
    assert rescue["host_key"] != own["host_key"]
    assert tenancy.ssh(rescue, f"hostname && {READ}", tmp_path) == f"rescue\n{MARKER.decode()}"
    with pytest.raises(subprocess.CalledProcessError):
        tenancy.ssh(own, "true", tmp_path)  # the tenant's own system does not run

    tenancy.order(Verb.REBOOT, console)
    assert (tenancy.shown("guest_state"), tenancy.shown("rescue")) == ("running", None)

    def answers() -> bool:
        try:
            return tenancy.ssh(own, f"hostname && {READ}", tmp_path) == f"berth-{tenancy.allocation}\n{MARKER.decode()}"
        except subprocess.CalledProcessError:
            return False

    wait_for(answers, "the tenant's own system, with its host key and its disk", 300)
    assert image_at(access, machine) is None
