"""A real guest of QEMU reports the processors and the memory that its task states, also after a rebuild and a reboot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from node_agent.drivers.contract import DriverFailure, Verb
from node_agent.drivers.performing import Unheard, perform
from node_agent.protocol import FailureCode
from tests.drivers.in_process import Node, play
from tests.drivers.libvirt_harness import usable
from tests.libvirt_driver.placement.harness import Placed

pytestmark = [pytest.mark.hardware, pytest.mark.timeout(600)]

MIB = 2**20
OF_A_GUEST = "grep -c ^processor /proc/cpuinfo; sed -n 's/^MemTotal: *//p' /proc/meminfo"
KERNEL_BYTES_MAX = 56 * MIB
"""What the guest's kernel keeps of its memory, so that MemTotal does not name it."""


async def reported(node: Node, connection: Any) -> tuple[int, int]:
    """Processors, and bytes of memory for programs, as the guest itself finds them."""
    said = await node.tenant.run(connection, OF_A_GUEST)  # type: ignore[attr-defined]
    processors, kib = re.findall(r"[0-9]+", said)
    return int(processors), int(kib) * 1024


def test_a_guest_has_the_size_that_its_task_states(tmp_path: Path) -> None:
    harness = usable(Placed(guest_processors=4, guest_memory_bytes=512 * MIB))

    async def scenario(node: Node) -> None:
        order = node.order(guest_size={"vcpus": 3, "memory_bytes": 192 * MIB})

        async def has_the_size(connection: Any) -> None:
            processors, memory = await reported(node, connection)
            assert processors == 3
            assert 192 * MIB - KERNEL_BYTES_MAX < memory <= 192 * MIB

        await has_the_size((await perform(node.driver.provision(order), Unheard())).connection)
        for verb in (Verb.REBOOT, Verb.REBUILD):
            changes = {"guest_size": {"vcpus": 3, "memory_bytes": 192 * MIB}} if verb is Verb.REBUILD else {}
            await has_the_size((await perform(node.verb(order, verb, **changes), Unheard())).connection)
        with pytest.raises(DriverFailure, match="states 5 vCPUs, and 1 slots have 4") as caught:
            node.verb(order, Verb.REBUILD, guest_size={"vcpus": 5})
        assert caught.value.code is FailureCode.GUEST_SIZE_UNAVAILABLE
        (pid,) = node.probe.processes()[order.allocation_id]
        assert Path(f"/proc/{pid}").exists(), "the guest goes on"
        await perform(node.release(order), Unheard())

    play(harness, tmp_path, scenario)
