"""An operator says what the root disk of a machine must be; every deployment on it goes to such a disk, and to no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from node_agent.wire.deploy_tasks import MetalInspectReport
from orchestrator.nodes.deploy_systems.root_disks import SPARE_BYTES, NoRootDisk, RootDiskHint, root_disk_of
from orchestrator.nodes.deploy_systems.run_rules import Move, RunKind
from orchestrator.operations.store.operations import Answer
from tests.deploy_system.stage import INSPECTED, TOPOLOGY
from tests.nodes.answers import body_of
from tests.sites.renting.tenancy import LARGE, SMALL, Renting, Scene

MIB = 2**20
DISKS = [
    {"name": "vda", "serial": "V", "size_bytes": 100 * MIB},
    {"name": "sda", "serial": "S", "size_bytes": 200 * MIB},
    {"name": "nvme1n1", "serial": "N2", "size_bytes": 400 * MIB},
    {"name": "nvme0n1", "serial": "N1", "size_bytes": 300 * MIB},
    {"name": "nvme2n1", "size_bytes": 90 * MIB},
]
SMALLEST, NAMELESS = DISKS[0], {"name": "nvme2n1", "serial": " ", "size_bytes": 900 * MIB}
SIZELESS = {"name": "sdb", "serial": "S9"}
UNNAMED = "can be named in the task of a deployment:"
REPLACE = "has no usable serial or size; replace it, and inspect again"
FOUND = {**INSPECTED, "topology": {**TOPOLOGY, "disks": [SMALL, LARGE]}}
"""What an inspection of the rented machine finds."""
SECOND = {"serial": "S2", "kind": None, "size_bytes_min": None}
"""A hint that its larger disk is the root disk, as it is shown."""


def chosen(hint: dict[str, Any], image_bytes: int = MIB, disks: Sequence[dict[str, Any]] = DISKS) -> str:
    """The serial of the root disk of a machine with these disks."""
    report = MetalInspectReport.model_validate({**INSPECTED, "topology": {**TOPOLOGY, "disks": list(disks)}})
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
    with pytest.raises(NoRootDisk, match="found no disk that the hint for the root disk allows"):
        chosen(hint)


def test_an_image_that_no_allowed_disk_holds_goes_to_no_other() -> None:
    assert chosen({"kind": "scsi"}, 200 * MIB - SPARE_BYTES) == "S"
    with pytest.raises(
        NoRootDisk, match=r"no disk that the hint for the root disk allows \(kind scsi\) holds the image"
    ):
        chosen({"kind": "scsi"}, 200 * MIB - SPARE_BYTES + 1)


@pytest.mark.parametrize(
    ("disks", "hint", "said"),
    [
        ([], {}, "the inspection has found no disk"),
        ([SMALLEST], {}, f"no disk holds the image's {101 * MIB} bytes and the config drive"),
        (
            [SMALLEST, NAMELESS],
            {"kind": "virtio"},
            "no disk that the hint for the root disk allows (kind virtio) holds the image's 105906176 bytes and the config drive",
        ),
        ([NAMELESS], {}, f"no disk {UNNAMED} nvme2n1 {REPLACE}"),
        ([SMALLEST, NAMELESS], {}, f"no disk {UNNAMED} nvme2n1 {REPLACE}"),
        ([SMALLEST, SIZELESS], {}, f"no disk {UNNAMED} sdb {REPLACE}"),
        (
            [SMALLEST, NAMELESS],
            {"kind": "nvme"},
            f"no disk that the hint for the root disk allows (kind nvme) {UNNAMED} nvme2n1 {REPLACE}",
        ),
        (
            [SMALLEST, {**NAMELESS, "size_bytes": MIB}],
            {},
            f"no disk holds the image's {101 * MIB} bytes and the config drive",
        ),
    ],
)
def test_a_refusal_names_its_cause_and_the_hint_if_one_is_given(
    disks: list[dict[str, Any]], hint: dict[str, Any], said: str
) -> None:
    with pytest.raises(NoRootDisk) as refused:
        chosen(hint, 101 * MIB, disks)
    assert str(refused.value) == said


async def request(rent: Renting, hint: dict[str, Any] | None, kind: RunKind = RunKind.INSPECT) -> Answer:
    """An operator's request on the node, which stays cordoned."""
    rent.set_state("cordoned")
    root_disk = None if hint is None else RootDiskHint.model_validate(hint)
    return await rent.run.request(network=None, kind=kind, root_disk=root_disk)


async def inspect(rent: Renting, hint: dict[str, Any] | None, outcome: str = "completed") -> Any:
    """An operator has the free machine inspected with this hint, which ends so; the hint as it is shown at the end."""
    assert (await request(rent, hint)).status == 200
    if outcome == "stopped":
        await rent.run.stop()
    else:
        assert await rent.steps() is Move.WORK
        failure = {"code": "internal_error", "detail": "x"} if outcome == "failed" else None
        await rent.run.report(rent.run.boot(), failure=failure, result=FOUND)
    assert await rent.steps() is Move.CLOSE
    shown = await rent.run.shown()
    assert shown["outcome"] == outcome, shown
    rent.set_state("active")
    return shown["root_disk"]


async def deploy(rent: Renting) -> str:
    """The serial of the disk that a tenant's create is deployed to."""
    rent.create()
    await rent.provision()
    assert await rent.steps() is Move.WORK
    parameters = rent.run.row("select parameters from deploy_tasks where type = 'metal.deploy'")[0]
    return str(parameters["root_disk"]["serial"])


@pytest.mark.parametrize("outcome", ["completed", "stopped", "failed"])
def test_a_hint_is_kept_for_later_runs_and_decides_where_a_tenant_is_deployed(
    play: Callable[[Scene], None], outcome: str
) -> None:
    """However the inspection ends that it was given with: what is shown is what counts."""

    async def scene(rent: Renting) -> None:
        assert await inspect(rent, {"serial": "S2"}, outcome) == SECOND
        assert await deploy(rent) == "S2"
        assert (await rent.run.shown())["root_disk"] == SECOND, "the run of the deployment keeps it"

    play(scene)


def test_a_run_without_a_hint_keeps_the_one_before(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await inspect(rent, {"serial": "S2"}, "stopped")
        assert await inspect(rent, None) == SECOND
        assert await inspect(rent, None, "failed") == SECOND
        assert await deploy(rent) == "S2"

    play(scene)


@pytest.mark.parametrize("outcome", ["completed", "stopped"])
def test_an_empty_hint_is_none(play: Callable[[Scene], None], outcome: str) -> None:
    async def scene(rent: Renting) -> None:
        await inspect(rent, {"serial": "S2"})
        assert await inspect(rent, {}, outcome) is None
        assert await deploy(rent) == "S1", "the smallest that fits"

    play(scene)


def test_an_open_run_takes_no_other_hint(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        first = body_of(await request(rent, {"serial": "S2"}))
        for other in ({"serial": "S1"}, {"serial": "S2", "kind": "scsi"}, {}):
            refused = await request(rent, other)
            assert (refused.status, body_of(refused)["code"], body_of(refused)["state"]) == (
                409,
                "invalid_state",
                "run_open",
            )
            assert "with another root disk" in body_of(refused)["detail"]
        for same in (None, {"serial": "S2"}):
            assert body_of(await request(rent, same))["id"] == first["id"]
        assert (await rent.run.shown())["root_disk"] == SECOND

    play(scene)


def test_a_hint_that_allows_no_disk_fails_the_create_before_anything_is_done(play: Callable[[Scene], None]) -> None:
    async def scene(rent: Renting) -> None:
        await inspect(rent, {"kind": "nvme"})
        rent.create()
        await rent.provision()
        assert await rent.run.advance() is Move.REFUSE
        assert rent.task["failure_code"] == "image_does_not_fit"
        assert rent.task["failure_detail"] == (
            "the inspection has found no disk that the hint for the root disk allows (kind nvme)"
        )
        assert rent.run.is_undone()

    play(scene)
