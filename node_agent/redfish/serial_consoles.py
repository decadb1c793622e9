"""The serial console of a machine over SSH, as its BMC announces it: `SerialConsole` of the system, else of its manager."""

from __future__ import annotations

from typing import Final

from node_agent.redfish.contract import SshConsole
from node_agent.redfish.documents import Document
from node_agent.redfish.machine import Machine
from node_agent.redfish.problems import NotSupported

PORT_MAX: Final = 65_535


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
    # Absent, null or no boolean is never read as separate, whatever the port.
    return SshConsole(port, ssh.text("ConsoleEntryCommand"), _hot_keys(ssh), shared=ssh.flag("SharedWithManagerCLI"))


def _hot_keys(ssh: Document) -> str | None:
    """The text; empty if the property is absent, None if it is there and no printable text, as null is."""
    if "HotKeySequenceDisplay" not in ssh.data:
        return ""
    said = ssh.data["HotKeySequenceDisplay"]
    return ssh.text("HotKeySequenceDisplay") if isinstance(said, str) and said.isprintable() else None


def _port(protocol: Document) -> int | None:
    port = protocol.number("Port")
    return int(port) if port is not None and port.is_integer() and 1 <= port <= PORT_MAX else None
