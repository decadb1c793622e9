"""The serial console of a machine over SSH, as its BMC announces it: `SerialConsole` of the system, else of its manager."""

from __future__ import annotations

from typing import Final

from node_agent.redfish.contract import SshConsole
from node_agent.redfish.documents import Document
from node_agent.redfish.machine import Machine
from node_agent.redfish.problems import NotSupported

PORT_MAX: Final = 65_535
CLI_PORT: Final = 22
"""Where a manager's command line is: a console of this port that does not say that it is separate is shared with it."""


async def find_ssh_console(machine: Machine) -> SshConsole | None:
    """The console that the BMC announces as enabled; None if it announces none over SSH. Raises BmcProblem."""
    system = await machine.system()
    if system.part("SerialConsole", "SSH").data:
        return _of_system(system.part("SerialConsole", "SSH"))
    try:
        manager = await machine.manager(system)
    except NotSupported:
        return None
    console = manager.part("SerialConsole")
    if "SSH" not in console.texts("ConnectTypesSupported") or console.flag("ServiceEnabled") is not True:
        return None
    protocol = await machine.session.get(manager.link("NetworkProtocol"), "the manager's protocols")
    port = _port(protocol.part("SSH"))
    # The manager's own SSH server: Redfish gives no command that enters the console from its command line.
    return None if port is None else SshConsole(port, "", "", shared=True)


def _of_system(ssh: Document) -> SshConsole | None:
    port = _port(ssh)
    if ssh.flag("ServiceEnabled") is not True or port is None:
        return None
    shared = ssh.flag("SharedWithManagerCLI")
    return SshConsole(
        port, ssh.text("ConsoleEntryCommand"), ssh.text("HotKeySequenceDisplay"),
        shared=port == CLI_PORT if shared is None else shared,
    )  # fmt: skip


def _port(protocol: Document) -> int | None:
    port = protocol.number("Port")
    return int(port) if port is not None and port.is_integer() and 1 <= port <= PORT_MAX else None
