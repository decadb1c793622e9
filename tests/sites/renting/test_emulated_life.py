"""A tenant rents a machine of QEMU behind sushy-tools' BMC: deployed from the real medium, used over SSH, wiped."""

from __future__ import annotations

from pathlib import Path

import pytest

from berth.local.machines.raw_disks import RawContent, read_raw
from node_agent.redfish.contract import BmcAccess
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from tests.sites.emulated import EmulatedStage, access, berth, medium, site, stage, virsh
from tests.sites.renting.emulated_tenancy import ADDRESS, DISK_BYTES, deployed, machine, put_into_service
from tests.sites.stage import Site

__all__ = ["access", "machine", "medium", "site", "stage"]

# Quicker, without a guest: tests/sites/renting/test_tenancies.py.
pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(2400)]
MARKER = b"TENANT-WAS-HERE-be2740fe"


def test_a_tenant_rents_a_machine_and_leaves_nothing(
    stage: EmulatedStage, site: Site, machine: str, access: BmcAccess, tmp_path: Path
) -> None:
    node, console, disk = stage.node(), tmp_path / "machine" / "console", tmp_path / "machine" / "disk.raw"
    put_into_service(stage, site, access, node, tmp_path, console)
    tenancy = deployed(stage, machine, tmp_path, console)
    connection = stage.fleet.one("select connection from allocations where id = %s", tenancy.allocation)
    assert isinstance(connection, dict)
    assert connection["host"] == ADDRESS
    planted = f"echo {MARKER.decode()} | dd of=/dev/vda bs=1M seek=300 conv=notrunc,fsync && hostname"
    assert tenancy.ssh(connection, planted, tmp_path).strip() == f"berth-{tenancy.allocation}"
    assert read_raw(disk, MARKER).has_marker

    tenancy.release()
    tenancy.run(lambda context, _: begin_release(context, tenancy.allocation, "releasing-1"))
    tenancy.wait("wipe", console)
    done = tenancy.run(lambda context, _: finish_release(context, tenancy.allocation, "releasing-1"))
    assert done.state == "released"
    assert virsh("domstate", machine).strip() == "shut off"
    assert read_raw(disk, MARKER) == RawContent(DISK_BYTES, 0, False), "nothing of the tenant is on the raw disk"
    shown = berth(stage, f"node run {node}")
    assert (shown["kind"], shown["wipe"]["proven"]) == ("wipe", True)
