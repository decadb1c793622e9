"""The user of one guest's QEMU can do nothing to another guest, nor to the agent; each attempt with its control."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import DriverFailure, ProvisionOrder
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import FailureCode, ProvisionParameters
from tests.drivers.guest_users import first_user_id
from tests.drivers.in_process import SLOT, Node, play
from tests.drivers.libvirt_harness import LibvirtHarness
from tests.libvirt_driver.users.as_user import Attempt, attempts

pytestmark = pytest.mark.hardware
FIRST = first_user_id()
OTHER_SLOT = [SLOT[0] + 1]
OWN, OTHER = FIRST + SLOT[0], FIRST + OTHER_SLOT[0]


@pytest.fixture
def agents_key(tmp_path: Path) -> Iterator[Path]:
    """A key below a directory that has the mode of an agent's state directory, below directories that all may traverse."""
    top = Path("/var/tmp") / f"berth-test-{uuid.uuid4().hex}"
    (top / "identity").mkdir(parents=True)
    key = top / "identity" / "client.pem"
    key.write_text("key")
    key.chmod(0o600)
    (top / "identity").chmod(0o700)
    yield key
    key.unlink()
    (top / "identity").rmdir()
    top.rmdir()


async def files_and_processes(
    node: Node, harness: LibvirtHarness, order: ProvisionOrder
) -> tuple[set[Attempt], set[Attempt]]:
    """What the guest's own QEMU can do to its files, sockets and process; and what it cannot do either."""
    guest = harness.directory(node.state_dir) / "allocations" / str(order.allocation_id)
    (pid,) = node.probe.processes()[order.allocation_id]
    channel = await node.driver._hypervisor.channel(order.allocation_id)  # type: ignore[attr-defined]
    (own,) = list(Path("/var/lib/libvirt/qemu").glob(f"domain-*-berth-{str(order.allocation_id)[:8]}*"))
    disks = {(what, str(guest / name)) for name in ("disk.qcow2", "seed.iso") for what in ("read", "write", "change")}
    sockets = {("connect", channel)}
    # The key that libvirt encrypts the disk's key with.
    secret = {("read", str(own / "master-key.aes"))}
    process = {(what, str(pid)) for what in ("memory", "attach", "signal")}
    of_root = {("read", str(guest / name)) for name in ("disk.key", "record.json", "console.log")}
    of_root |= {("list", str(guest)), ("list", str(guest.parent)), ("remove", str(guest / "disk.qcow2"))}
    # Guests share an image: all read it, none changes it.
    of_root |= {("connect", str(own / "monitor.sock"))}
    of_root |= {(what, str(guest / "base")) for what in ("write", "change", "remove")}
    return disks | sockets | secret | process, of_root


def provisioned(node: Node, slots: list[int], **changes: Any) -> ProvisionOrder:
    parameters = ProvisionParameters.model_validate(node.tenant.provision(slots, **changes))
    return ProvisionOrder(uuid.uuid4(), 7, parameters)


def test_a_process_with_the_user_of_one_guest_reaches_no_other_guest_and_not_the_agent(
    harness: LibvirtHarness, tmp_path: Path, agents_key: Path
) -> None:
    async def scenario(node: Node) -> None:
        mine, others = provisioned(node, SLOT), provisioned(node, OTHER_SLOT)
        for order in (mine, others):
            await perform(node.driver.provision(order), Unheard())
        for order, owner, stranger in ((mine, OWN, OTHER), (others, OTHER, OWN)):
            of_guest, of_root = await files_and_processes(node, harness, order)
            assert attempts(stranger, sorted(of_guest | of_root)) == set()
            assert attempts(owner, sorted(of_guest | of_root)) == of_guest, "the control"
            harmless = {(what, target) for what, target in of_root if what in ("read", "list", "connect")}
            assert attempts(0, sorted(harmless)) == harmless, "the control: root, as the agent is"
            base = str(harness.directory(node.state_dir) / "allocations" / str(order.allocation_id) / "base")
            assert attempts(stranger, [("read", base)]) == {("read", base)}, "the control: images are shared"
        agent = {("read", str(agents_key)), ("list", str(agents_key.parent)), ("connect", "/run/libvirt/libvirt-sock")}
        agent |= {(what, str(os.getpid())) for what in ("memory", "attach", "signal")}
        assert attempts(OWN, sorted(agent)) == set()
        assert attempts(0, sorted(agent)) == agent, "the control: root, as the agent is"

    play(harness, tmp_path, scenario)


def test_a_user_is_never_that_of_two_guests_and_is_free_after_the_release(
    harness: LibvirtHarness, tmp_path: Path
) -> None:
    """Two agents of one host, configured with the same user ids by mistake."""

    async def scenario(node: Node) -> None:
        mine = provisioned(node, SLOT)
        await perform(node.driver.provision(mine), Unheard())
        (tmp_path / "other").mkdir()
        other = Node(harness, tmp_path / "other")
        await other.driver.start()
        order = provisioned(other, SLOT)
        with pytest.raises(DriverFailure, match="BERTH_GUEST_USER_ID_FIRST") as failed:
            await perform(other.driver.provision(order), Unheard())
        assert failed.value.code is FailureCode.GUEST_DEFINITION_FAILED
        assert other.probe.processes() == {}
        await other.driver.cleanup(order.allocation_id)
        await perform(node.release(mine), Unheard())
        again = provisioned(other, SLOT)
        await perform(other.driver.provision(again), Unheard())
        await other.driver.cleanup(again.allocation_id)
        await other.driver.stop(0.0)
        harness.clean(other.state_dir)

    play(harness, tmp_path, scenario)
