"""A person types into the serial port of a guest of QEMU, through libvirtd; the log goes on, and the guest notices nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from node_agent.consoles.output import GuestOutput
from node_agent.drivers.contract import InteractiveConsole
from node_agent.drivers.performing import Unheard, perform
from tests.drivers.in_process import Node, play
from tests.drivers.libvirt_harness import LibvirtHarness
from tests.support.waiting import async_wait_for

pytestmark = pytest.mark.hardware

SECONDS_MAX = 60.0


async def output_until(output: GuestOutput, wanted: bytes | None) -> bytes:
    """What the guest prints up to these bytes, or to its end."""
    data = b""
    async with asyncio.timeout(SECONDS_MAX):
        while wanted is None or wanted not in data:
            if (found := await output.next()) is None:
                return data
            data += found[0]
    return data


def test_a_guest_is_typed_into_over_its_serial_port(harness: LibvirtHarness, tmp_path: Path) -> None:
    async def scenario(node: Node) -> None:
        driver = node.driver
        assert isinstance(driver, InteractiveConsole)
        order = node.order()
        with pytest.raises(LookupError):
            async with driver.attach(order.allocation_id):
                pass
        await perform(driver.provision(order), Unheard())
        (pid,) = node.probe.processes()[order.allocation_id]
        for word in (b"typed over the wire", b"and once more"):
            async with driver.attach(order.allocation_id) as descriptor:
                output = GuestOutput(descriptor)
                output.start()
                with pytest.raises(OSError, match="libvirt"):
                    async with driver.attach(order.allocation_id):
                        pass
                os.write(descriptor, word + b"\r")
                assert word in await output_until(output, word), "the guest's terminal echoes"
                output.stop()

            async def logged(word: bytes = word) -> bool:
                return word in (await driver.console(order.allocation_id, 0, 1 << 20)).data

            await async_wait_for(logged, "the log goes on beside a person")
        assert node.probe.processes()[order.allocation_id] == {pid}, "the guest noticed nothing"
        async with driver.attach(order.allocation_id) as descriptor:
            output = GuestOutput(descriptor)
            output.start()
            released = await perform(node.release(order), Unheard())
            assert released.released
            await output_until(output, None)
            output.stop()

    play(harness, tmp_path, scenario)
