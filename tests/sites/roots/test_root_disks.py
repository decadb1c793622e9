"""An operator says what the root disk of a machine must be; every deployment on it goes to such a disk, and to no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from node_agent.wire.deploy_tasks import MetalInspectReport
from orchestrator.nodes.deploy_systems.root_disks import SPARE_BYTES, NoRootDisk, RootDiskHint, root_disk_of
from orchestrator.nodes.deploy_systems.run_rules import Move, RunKind
from orchestrator.sites.commands.runs import request_run
from orchestrator.sites.run_orders import RunOrder
from tests.allocations.driving import ADMIN
from tests.allocations.reconciling import admin_operation
from tests.deploy_system.stage import INSPECTED, SMBIOS, TOPOLOGY
from tests.nodes.answers import body_of
from tests.sites.renting.tenancy import Renting, Scene
from tests.sites.running import ADDRESSES

MIB = 2**20
DISKS = [
    {"name": "vda", "serial": "V", "size_bytes": 100 * MIB},
    {"name": "sda", "serial": "S", "size_bytes": 200 * MIB},
    {"name": "nvme1n1", "serial": "N2", "size_bytes": 400 * MIB},
    {"name": "nvme0n1", "serial": "N1", "size_bytes": 300 * MIB},
    {"name": "nvme2n1", "size_bytes": 90 * MIB},
]


def chosen(hint: dict[str, Any], image_bytes: int = MIB) -> str:
    """The serial of the root disk of a machine with these disks."""
    report = MetalInspectReport.model_validate({**INSPECTED, "topology": {**TOPOLOGY, "disks": DISKS}})
    return root_disk_of(report, image_bytes, RootDiskHint.model_validate(hint)).serial


@pytest.mark.parametrize(
    ("hint", "serial"),
    [
        ({}, "V"),
        ({"kind": "virtio"}, "V"),
        ({"kind": "scsi"}, "S"),
        ({"kind": "nvme"}, "N1"),
        ({"serial": "N2"}, "N2"),
        ({"size_bytes_min": 300 * MIB}, "N1"),
        ({"kind": "nvme", "size_bytes_min": 300 * MIB + 1}, "N2"),
    ],
)
def test_the_smallest_disk_that_the_hint_allows_is_the_root_disk(hint: dict[str, Any], serial: str) -> None:
    assert chosen(hint) == serial


@pytest.mark.parametrize("hint", [{"serial": "n1"}, {"serial": "N1", "kind": "scsi"}, {"size_bytes_min": 401 * MIB}])
def test_where_the_hint_allows_no_disk_none_is_the_root_disk(hint: dict[str, Any]) -> None:
    with pytest.raises(NoRootDisk, match="hint for the root disk"):
        chosen(hint)


def test_an_image_that_no_allowed_disk_holds_goes_to_no_other() -> None:
    assert chosen({"kind": "scsi"}, 200 * MIB - SPARE_BYTES) == "S"
    with pytest.raises(NoRootDisk, match="holds the image"):
        chosen({"kind": "scsi"}, 200 * MIB - SPARE_BYTES + 1)


async def inspect(rent: Renting, hint: dict[str, Any] | None) -> dict[str, Any]:
    """An operator has the free machine inspected with this hint; the run as it is shown."""
    rent.set_state("cordoned")
    order = RunOrder(
        RunKind.INSPECT, None, SMBIOS, (), False, None if hint is None else RootDiskHint.model_validate(hint)
    )
    answer = await request_run(rent.run.stage.api, admin_operation(), ADMIN, rent.run.node, order, ADDRESSES)
    assert answer.status == 200, answer
    shown: dict[str, Any] = body_of(answer)
    await rent.run.stop()
    assert await rent.run.advance() is Move.CLOSE
    rent.run.stage.fleet.connection.execute(
        "update deploy_runs set outcome = 'completed', failure = null where id = %s", (shown["id"],)
    )
    rent.set_state("active")
    return shown


async def deploy(rent: Renting) -> str:
    """The serial of the disk that a tenant's create is deployed to."""
    rent.create()
    await rent.provision()
    assert await rent.steps() is Move.WORK
    parameters = rent.run.row("select parameters from deploy_tasks where type = 'metal.deploy'")[0]
    return str(parameters["root_disk"]["serial"])


def test_a_hint_is_kept_for_later_runs_and_decides_where_a_tenant_is_deployed(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        shown = await inspect(rent, {"serial": "S2"})
        assert shown["root_disk"] == {"serial": "S2", "kind": None, "size_bytes_min": None}
        assert (await inspect(rent, None))["root_disk"] == shown["root_disk"]
        assert await deploy(rent) == "S2"

    play(scene)


def test_an_empty_hint_is_none(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await inspect(rent, {"serial": "S2"})
        assert (await inspect(rent, {}))["root_disk"] is None
        assert await deploy(rent) == "S1", "the smallest that fits"

    play(scene)


def test_a_hint_that_allows_no_disk_fails_the_create_before_anything_is_done(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await inspect(rent, {"kind": "nvme"})
        rent.create()
        await rent.provision()
        assert await rent.run.advance() is Move.REFUSE
        assert rent.task["failure_code"] == "image_does_not_fit"
        assert rent.task["failure_detail"] == (
            "no disk of the inspection is what the hint for the root disk allows (kind nvme)"
        )
        assert rent.run.is_undone()

    play(scene)
