"""Guests of QEMU whose image states more than the defaults: UEFI, a TCP port, no cloud-init, another login user."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node_agent.checks.firmware import find_ovmf
from node_agent.drivers.contract import Driver, DriverFailure, GuestState, ProvisionOrder, Verb
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import FailureCode
from node_agent.settings import Settings
from tests.drivers.in_process import Node, play
from tests.drivers.libvirt_harness import LibvirtHarness, usable

pytestmark = [pytest.mark.hardware, pytest.mark.timeout(900)]


class Patient(LibvirtHarness):
    """Guests have 256 MiB, which UEFI needs, and so many seconds: it is slow by emulation."""

    readiness_seconds = 300.0

    def driver(self, settings: Settings) -> Driver:
        driver = super().driver(settings)
        node: Any = driver._node  # type: ignore[attr-defined]
        node.limits = replace(node.limits, readiness_seconds=self.readiness_seconds)
        node.placing.settings = replace(node.placing.settings, memory_bytes=256 << 20)
        return driver


@pytest.fixture
def harness() -> LibvirtHarness:
    return usable(Patient())


def stating(node: Node, **statement: Any) -> ProvisionOrder:
    """An order for an image with this statement."""
    order = node.order()
    image = {**order.parameters.image.model_dump(), **statement}
    parameters = order.parameters.model_dump() | {"image": image}
    return ProvisionOrder(order.allocation_id, order.fence, type(order.parameters).model_validate(parameters))


@pytest.mark.skipif(find_ovmf() is None, reason="OVMF is not installed")
def test_a_guest_boots_by_uefi_and_its_variables_are_wiped(harness: LibvirtHarness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        order = stating(node, firmware="uefi", format="qcow2")
        up = await perform(node.driver.provision(order), Unheard())
        said = await node.tenant.run(up.connection, "ls -d /sys/firmware/efi")  # type: ignore[attr-defined]
        assert said.strip() == "/sys/firmware/efi"
        variables = harness.directory(node.state_dir) / "allocations" / str(order.allocation_id) / "uefi-vars.fd"
        assert variables.stat().st_size > 0
        released = await perform(node.release(order), Unheard())
        (proof,) = released.evidence["devices"]
        assert proof["checked"]["uefi_variables_overwritten_bytes"] > 0
        assert node.probe.there() == set()

    play(harness, tmp_path, scenario)


def test_a_guest_without_cloud_init_is_up_when_its_port_answers_and_has_its_own_host_key(
    harness: LibvirtHarness, tmp_path: Path
) -> None:
    async def scenario(node: Node) -> None:
        order = stating(node, cloud_init=False, readiness="tcp_port", readiness_port=22)
        up = await perform(node.driver.provision(order), Unheard())
        assert up.connection.host_key.startswith("ssh-ed25519 ")
        assert (await node.tenant.run(up.connection, "id -un")).strip() == "tenant"  # type: ignore[attr-defined]
        again = await perform(node.verb(order, Verb.START), Unheard())
        assert again.connection == up.connection, "the key of the first start is the one that counts"
        assert await node.state(order) is GuestState.RUNNING
        await perform(node.release(order), Unheard())

    play(harness, tmp_path, scenario)


def test_a_tenant_logs_in_as_the_user_that_the_image_states(harness: LibvirtHarness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        order = stating(node, login_user="debian", readiness="ssh")
        up = await perform(node.driver.provision(order), Unheard())
        assert up.connection.user == "debian"
        assert (await node.tenant.run(up.connection, "id -un")).strip() == "debian"  # type: ignore[attr-defined]
        await perform(node.release(order), Unheard())

    play(harness, tmp_path, scenario)


class Impatient(Patient):
    """Guests have 40 seconds."""

    readiness_seconds = 40.0


def test_a_port_on_which_nothing_listens_is_no_readiness(harness: LibvirtHarness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        order = stating(node, readiness="tcp_port", readiness_port=81)
        with pytest.raises(DriverFailure) as failed:
            await perform(node.driver.provision(order), Unheard())
        assert failed.value.code is FailureCode.GUEST_MARKER_MISSING
        assert "accepted no connection" in failed.value.detail
        await node.driver.cleanup(order.allocation_id)

    play(Impatient(), tmp_path, scenario)


@pytest.mark.parametrize(
    ("statement", "code", "why"),
    [
        ({"disk_bytes_min": 1 << 40}, FailureCode.IMAGE_DOES_NOT_FIT, "needs a disk of"),
        ({"firmware": "uefi"}, FailureCode.IMAGE_DOES_NOT_FIT, "OVMF is not installed"),
        ({"format": "raw"}, FailureCode.IMAGE_DOWNLOAD_FAILED, "the catalogue states raw"),
    ],
)
def test_an_image_that_does_not_fit_fails_before_a_guest_is_made(
    harness: LibvirtHarness,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    statement: dict[str, Any],
    code: FailureCode,
    why: str,
) -> None:
    monkeypatch.setattr("node_agent.drivers.libvirt.provisioning.find_ovmf", lambda: None)

    async def scenario(node: Node) -> None:
        order = stating(node, **statement)
        with pytest.raises(DriverFailure, match=why) as failed:
            await perform(node.driver.provision(order), Unheard())
        assert failed.value.code is code
        await node.driver.cleanup(order.allocation_id)
        assert node.probe.there() == set()

    play(harness, tmp_path, scenario)
