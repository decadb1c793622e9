"""Guests of QEMU, examined from inside and from beside: devices, users, network, console, and what never boots."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import Driver, DriverFailure, GuestState, Verb
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import FailureCode
from node_agent.settings import Settings
from tests.drivers.guest_users import first_user_id
from tests.drivers.in_process import SLOT, Node, play
from tests.drivers.libvirt_harness import LibvirtHarness
from tests.libvirt_driver.listening import listening

pytestmark = pytest.mark.hardware

# PCI classes that a guest sees: bridges, disks, network, serial ports, random numbers.
CLASSES = {"0x0600", "0x0601", "0x0604", "0x0100", "0x0200", "0x0780", "0x00ff"}
USER_ID = first_user_id() + SLOT[0]


def reads(user_id: int, file: Path) -> bool:
    """Whether a process with this user's id, and no other right, can read the file."""
    command = ["setpriv", f"--reuid={user_id}", f"--regid={user_id}", "--clear-groups", "head", "-c", "1", str(file)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_guest_has_its_devices_and_its_qemu_a_user_that_reads_no_other_guest(
    harness: LibvirtHarness, tmp_path: Path
) -> None:
    async def scenario(node: Node) -> None:
        order = node.order()
        up = await perform(node.driver.provision(order), Unheard())
        classes = await node.tenant.run(up.connection, "cat /sys/bus/pci/devices/*/class")  # type: ignore[attr-defined]
        assert {line[:6] for line in classes.split()} == CLASSES, "no USB, display or sound"
        (pid,) = node.probe.processes()[order.allocation_id]
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        assert status["Uid"].split() == [str(USER_ID)] * 4
        assert int(status["CapEff"], 16) == 0, "QEMU has no capability"
        guest = harness.directory(node.state_dir) / "allocations" / str(order.allocation_id)
        secrets = [guest / name for name in ("disk.qcow2", "seed.iso", "disk.key", "console.log", "record.json")]
        other = {file.name for file in secrets if reads(USER_ID + 1, file)}
        assert other == set(), "QEMU of the next slot reads nothing of this guest"
        own = {file.name for file in secrets if reads(USER_ID, file)}
        assert own == {"disk.qcow2", "seed.iso"}, "the control: QEMU reads its disks, and not the key's file"
        agents = node.state_dir / "identity"
        agents.write_text("key")
        node.state_dir.chmod(0o700)  # as the agent makes it
        assert not reads(USER_ID, agents)
        console = await node.driver.console(order.allocation_id, 0, 1 << 20)
        assert b"the guest has started" in console.data
        with pytest.raises(OSError, match="runs already"):
            await node.driver._hypervisor.define(order.allocation_id, "<domain/>")  # type: ignore[attr-defined]

    play(harness, tmp_path, scenario)


@pytest.mark.parametrize("restricted", [True, False], ids=["restricted", "the control"])
def test_a_guest_reaches_nothing_of_its_host(
    harness: LibvirtHarness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restricted: bool
) -> None:
    if not restricted:
        monkeypatch.setattr("node_agent.drivers.libvirt.domain.RESTRICT", "off")

    async def scenario(node: Node) -> None:
        up = await perform(node.driver.provision(node.order()), Unheard())
        with listening() as port:
            try_it = f"nc -w 5 10.0.2.2 {port} </dev/null >/dev/null 2>&1 && echo reached || echo refused"
            said = await node.tenant.run(up.connection, try_it)  # type: ignore[attr-defined]
        assert said.strip() == ("refused" if restricted else "reached")

    play(harness, tmp_path, scenario)


class Impatient(LibvirtHarness):
    """Guests have less time than any takes to boot."""

    def driver(self, settings: Settings) -> Driver:
        driver = super().driver(settings)
        node: Any = driver._node  # type: ignore[attr-defined]
        node.limits = replace(node.limits, readiness_seconds=0.5)
        return driver


def test_a_guest_that_never_boots_fails_with_a_code_and_leaves_nothing(harness: LibvirtHarness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        order = node.order()
        with pytest.raises(DriverFailure) as failed:
            await perform(node.driver.provision(order), Unheard())
        assert failed.value.code is FailureCode.GUEST_MARKER_MISSING
        assert "no ready message within 0.5 s" in failed.value.detail
        await node.driver.cleanup(order.allocation_id)
        assert node.probe.there() == set()

    play(Impatient(), tmp_path, scenario)


def virsh(*words: str) -> None:
    """As an operator would, by hand."""
    subprocess.run(["virsh", "-c", "qemu:///system", *words], check=True, capture_output=True)


def test_a_paused_guest_is_down_and_goes_on_with_what_it_had_in_memory(harness: LibvirtHarness, tmp_path: Path) -> None:
    """QEMU pauses a guest whose disk cannot grow; that is no guest that runs."""

    async def scenario(node: Node) -> None:
        order = node.order(restart_policy="always")
        up = await perform(node.driver.provision(order), Unheard())
        boot = "cat /proc/sys/kernel/random/boot_id"
        before = await node.tenant.run(up.connection, boot)  # type: ignore[attr-defined]
        virsh("suspend", str(order.allocation_id))
        assert await node.state(order) is GuestState.DOWN
        assert await node.driver.restart(order.allocation_id)
        assert await node.state(order) is GuestState.RUNNING
        assert await node.tenant.run(up.connection, boot) == before, "the same boot"  # type: ignore[attr-defined]
        virsh("suspend", str(order.allocation_id))
        await perform(node.verb(order, Verb.REBOOT), Unheard())
        assert await node.state(order) is GuestState.RUNNING, "a verb ends a pause too"
        assert await node.tenant.run(up.connection, boot) != before  # type: ignore[attr-defined]
        virsh("suspend", str(order.allocation_id))
        released = await perform(node.release(order), Unheard())
        assert released.released, "a paused guest cannot be asked to shut down"

    play(harness, tmp_path, scenario)


def test_an_agent_without_libvirtd_reports_that(harness: LibvirtHarness, tmp_path: Path) -> None:
    nowhere = "qemu+unix:///system?socket=/nonexistent/libvirt-sock"
    settings = Settings(
        api_url="https://unused", root_keys_file=tmp_path / "unused", agent_state_dir=tmp_path, libvirt_uri=nowhere
    )
    driver = harness.driver(settings)
    with pytest.raises(Exception, match="is libvirtd started"):
        asyncio.run(driver.start())
    with pytest.raises(OSError, match="libvirt"):
        asyncio.run(driver.inventory())
    harness.clean(tmp_path)


@pytest.mark.timeout(600)
def test_guests_outlive_a_libvirtd_that_is_killed(harness: LibvirtHarness, tmp_path: Path) -> None:
    """In a libvirtd of this test's own: other tests share theirs."""
    root = Path(__file__).parents[2]
    command = [
        root / "deploy" / "guests" / "private-libvirtd", "/var/tmp/berth-libvirtd-killed",
        root / ".venv" / "bin" / "python", "-m", "tests.libvirt_driver.libvirtd_killed", tmp_path,
    ]  # fmt: skip
    done = subprocess.run([str(part) for part in command], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


def test_a_running_guest_starts_again_is_no_other_nodes_and_a_lost_disk_is_not_proven_wiped(
    harness: LibvirtHarness, tmp_path: Path
) -> None:
    async def scenario(node: Node) -> None:
        order = node.order()
        up = await perform(node.driver.provision(order), Unheard())
        again = await perform(node.verb(order, Verb.START), Unheard())
        assert again.connection == up.connection, "its ready message was read before"
        (tmp_path / "other").mkdir()
        other = Node(harness, tmp_path / "other")
        await other.driver.cleanup(order.allocation_id)
        assert await node.state(order) is GuestState.RUNNING, "another node's driver leaves it alone"
        harness.clean(other.state_dir)
        guest = harness.directory(node.state_dir) / "allocations" / str(order.allocation_id)
        (guest / "disk.qcow2").unlink()
        with pytest.raises(DriverFailure, match="nothing is known of the disk"):
            await perform(node.release(order), Unheard())
        assert node.probe.leases() == dict.fromkeys(SLOT, order.allocation_id), "the slot is still leased"

    play(harness, tmp_path, scenario)
