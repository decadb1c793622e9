"""A tenant rents a machine with three kinds of disk and a TPM, uses them all, and leaves nothing; its certificate says how."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from berth.local.machines.raw_disks import RawContent
from node_agent.redfish.contract import BmcAccess
from orchestrator.allocations.commands.cleanup import begin_release, finish_release
from orchestrator.allocations.queries import find_wipe_certificate
from orchestrator.allocations.states import Verb
from tests.placement.fleet import working
from tests.sites.emulated import EmulatedStage, access, berth, medium, site, stage, virsh
from tests.sites.lives.equipped import NODES, SIZES, Equipped
from tests.sites.renting.emulated_tenancy import Tenancy, deployed, put_into_service
from tests.sites.stage import Site

__all__ = ["access", "medium", "site", "stage"]

# Quicker, without a BMC: tests/metal/test_kinds.py; without a machine: tests/sites/renting/test_wipe_certificates.py.
pytestmark = [pytest.mark.hardware, pytest.mark.full, pytest.mark.timeout(3000)]
MARKER = b"TENANT-WAS-HERE-3d15c5be"
WIPED = {
    "disk NVME1 (nvme_format_user_data, purge)", "disk SATA1 (discard_zero_out, clear)", "disk DISK1 (discard_zero_out, clear)",
}  # fmt: skip
OWNED = "ownerAuthSet:              1"
FREE = "ownerAuthSet:              0"
NV_INDEX = "0x1500016"


@pytest.fixture
def machine(iron: Equipped) -> str:
    return iron.uuid


def planted(at_mib: int, serial: str) -> str:
    """A command that writes the marker on this disk."""
    return f"echo {MARKER.decode()} | dd of={NODES[serial]} bs=1M seek={at_mib} conv=notrunc,fsync"


def certificate_of(stage: EmulatedStage, tenancy: Tenancy) -> dict[str, Any]:
    """The wipe certificate, as its tenant fetches it."""

    async def main() -> Any:
        async with working(stage.url) as (context, _):
            return await find_wipe_certificate(context.database, tenancy.allocation, tenancy.tenant.id)

    found: dict[str, Any] = asyncio.run(main())
    return found


def test_a_life_over_three_kinds_of_disk_and_a_tpm(
    stage: EmulatedStage, site: Site, iron: Equipped, access: BmcAccess, tmp_path: Path
) -> None:
    node = stage.node()
    put_into_service(stage, site, access, node, tmp_path, iron.console, "--root-kind nvme")
    found = berth(stage, f"node deploy-system {node}")["machine"]["report"]["topology"]
    assert {disk["serial"]: disk["size_bytes"] for disk in found["disks"]} == SIZES
    assert found["tpm"] is not None

    tenancy = deployed(stage, iron.uuid, tmp_path, iron.console)
    root = stage.fleet.one("select parameters -> 'root_disk' from deploy_tasks where type = 'metal.deploy'")
    assert root == {"serial": "NVME1", "size_bytes": SIZES["NVME1"]}, (
        "the SATA disk is smaller, and the hint does not allow it"
    )
    own = tenancy.shown("connection")
    tenancy.ssh(own, f"{planted(200, 'NVME1')} && {planted(300, 'DISK1')}", tmp_path)
    tenancy.order(Verb.RESCUE, iron.console)
    taking = f"tpm2 changeauth -c owner tenants && tpm2 nvdefine -C o -P tenants {NV_INDEX} -s 32"
    tenancy.ssh(tenancy.shown("rescue"), f"{planted(100, 'SATA1')} && {taking}", tmp_path)
    assert iron.marked(MARKER) == set(SIZES)
    held = iron.tpm(tmp_path / "before")
    assert (OWNED in held, NV_INDEX in held) == (True, True), held

    tenancy.release()
    tenancy.run(lambda context, _: begin_release(context, tenancy.allocation, "releasing-1"))
    tenancy.wait("wipe", iron.console)
    done = tenancy.run(lambda context, _: finish_release(context, tenancy.allocation, "releasing-1"))
    assert done.state == "released"
    assert virsh("domstate", iron.uuid).strip() == "shut off"
    assert iron.raw(MARKER) == {serial: RawContent(size, 0, False) for serial, size in SIZES.items()}
    left = iron.tpm(tmp_path / "after")
    assert (FREE in left, NV_INDEX in left) == (True, False), left

    file = tmp_path / "wipe.json"
    file.write_text(json.dumps(certificate_of(stage, tenancy)))
    roots = stage.authority.root_keys
    said = berth(stage, f"certificate verify {file} --allocation {tenancy.allocation} --root-keys {roots}")
    assert (said["verdict"], set(said["devices"]), "TPM: cleared" in said["machine"]) == ("wiped", WIPED, True), said
    taken = "select count(*) from claims where node_id = %s and closed_at is null"
    assert (stage.fleet.one(taken, node), stage.fleet.one("select state from nodes where id = %s", node)) == (
        0,
        "active",
    )
