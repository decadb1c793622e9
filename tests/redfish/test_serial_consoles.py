"""The serial console over SSH is what the BMC's documents announce; links are followed, and nothing is assumed."""

from __future__ import annotations

from typing import Any

import pytest

from node_agent.redfish.contract import SshConsole
from tests.redfish.running import run
from tests.support.bmc.machine import Options
from tests.support.bmc.server import served

OPENBMC = {"ServiceEnabled": True, "Port": 2200, "HotKeySequenceDisplay": "Press ~. to exit console"}


def found(ssh: Any = None, manager: dict[str, Any] | None = None) -> SshConsole | None:
    async def scene() -> SshConsole | None:
        options = Options(manager_console=manager)
        if ssh is not None:
            options.console = lambda: {"MaxConcurrentSessions": 1, "SSH": ssh}
        async with served(options) as stub:
            client = stub.client()
            try:
                return await client.ssh_console()
            finally:
                await client.close()

    return run(scene())


@pytest.mark.parametrize(
    ("ssh", "wanted"),
    [
        (OPENBMC, SshConsole(2200, "", "Press ~. to exit console", shared=None)),
        ({**OPENBMC, "SharedWithManagerCLI": None}, SshConsole(2200, "", "Press ~. to exit console", shared=None)),
        ({**OPENBMC, "SharedWithManagerCLI": "false"}, SshConsole(2200, "", "Press ~. to exit console", shared=None)),
        ({**OPENBMC, "SharedWithManagerCLI": 0}, SshConsole(2200, "", "Press ~. to exit console", shared=None)),
        ({**OPENBMC, "HotKeySequenceDisplay": ["~."]}, SshConsole(2200, "", None, shared=None)),
        ({**OPENBMC, "HotKeySequenceDisplay": "Press ~\x1d. to exit"}, SshConsole(2200, "", None, shared=None)),
        ({**OPENBMC, "HotKeySequenceDisplay": None}, SshConsole(2200, "", None, shared=None)),
        (
            {"ServiceEnabled": True, "Port": 22, "SharedWithManagerCLI": True, "ConsoleEntryCommand": "console com2"},
            SshConsole(22, "console com2", "", shared=True),
        ),
        ({"ServiceEnabled": True, "Port": 22}, SshConsole(22, "", "", shared=None)),
        ({"ServiceEnabled": True, "Port": 22, "SharedWithManagerCLI": False}, SshConsole(22, "", "", shared=False)),
    ],
)
def test_a_console_is_as_the_system_announces_it(ssh: dict[str, Any], wanted: SshConsole) -> None:
    assert found(ssh) == wanted


@pytest.mark.parametrize(
    "ssh",
    [
        None, {}, {**OPENBMC, "ServiceEnabled": False}, {**OPENBMC, "ServiceEnabled": "true"}, {"ServiceEnabled": True},
        {**OPENBMC, "Port": 0}, {**OPENBMC, "Port": 65_536}, {**OPENBMC, "Port": 22.5}, {**OPENBMC, "Port": "x"}, ["SSH"],
    ],
)  # fmt: skip
def test_what_is_not_announced_as_enabled_is_no_console(ssh: Any) -> None:
    assert found(ssh) is None


def test_a_console_of_the_manager_is_behind_its_command_line() -> None:
    offered = {"ServiceEnabled": True, "MaxConcurrentSessions": 1, "ConnectTypesSupported": ["IPMI", "SSH"]}
    assert found(manager=offered) == SshConsole(22, "", "", shared=True)
    assert found(manager={**offered, "ConnectTypesSupported": ["IPMI"]}) is None
    assert found(manager={**offered, "ServiceEnabled": False}) is None
    assert found(OPENBMC, offered) == SshConsole(2200, "", "Press ~. to exit console", shared=None)
