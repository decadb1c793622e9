"""The console of an emulated machine: its firmware prints and is typed at, through SSH to a stub BMC."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from node_agent.bmc_consoles.machine_console import MachineConsole
from node_agent.redfish import contract
from node_agent.redfish.clock import SystemClock
from tests.metal.qemu import Machine
from tests.support.bmc.consoles import StubConsole, console_served
from tests.support.bmc.machine import StubMachine
from tests.support.waiting import pause, wait_for

pytestmark = [pytest.mark.hardware, pytest.mark.timeout(300)]
ESCAPE = b"\x1b"
MENU = b"Boot Manager"
"""What the firmware shows once the escape key was pressed while it starts."""


async def reach_menu(descriptor: int) -> bytes:
    """Press the escape key until the firmware shows its menu; what it has printed."""

    async def type_on() -> None:
        while True:
            os.write(descriptor, ESCAPE)
            await pause(0.5)

    typing, data = asyncio.create_task(type_on()), b""
    try:
        while MENU not in data:
            piece = await asyncio.to_thread(os.read, descriptor, 65_536)
            assert piece, data
            data += piece
    finally:
        typing.cancel()
    return data


def test_a_tenant_types_at_the_firmware_of_its_machine(tmp_path: Path) -> None:
    port = tmp_path / "serial"

    async def scene() -> bytes:
        stub = StubConsole(StubMachine(SystemClock()), serial_port=port)

        async def find() -> tuple[contract.SshConsole, str]:
            return contract.SshConsole(stub.port, "", "Press ~. to exit console", shared=False), "first-secret"

        async with console_served(stub):
            console = MachineConsole("127.0.0.1", "berth", stub.host_key, find, lambda: None, shared_allowed=False)
            async with console as descriptor:
                return await reach_menu(descriptor)

    with Machine(tmp_path, {}, serial_socket=port, keys_awaited_seconds=60).running():
        wait_for(port.exists, "the machine has a serial port")
        assert MENU in asyncio.run(scene())
