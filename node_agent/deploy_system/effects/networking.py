"""The deploy system's network, from its medium: a port by its MAC, an optional VLAN, a static address. DHCP is not used."""

from __future__ import annotations

import time
from ipaddress import ip_address
from typing import Final

from node_agent.deploy_system.effects.contract import Host
from node_agent.deploy_system.effects.lldp import ports
from node_agent.wire.deploy_medium import MediumNetwork

PORT_SECONDS_MAX: Final = 60.0
_COMMAND_SECONDS: Final = 15.0
_PAUSE_SECONDS: Final = 0.5


class NoNetwork(Exception):
    """The network of the medium cannot be set up; the message says why."""


def bring_up(host: Host, network: MediumNetwork) -> str:
    """Set up the network and return the interface's name. What is set up already is kept. Raises NoNetwork, Interrupted.

    A link may take seconds to come up after that; the caller's requests repeat.
    """
    port = interface = _port(host, network.mac)
    _ip(host, "link", "set", "dev", port, *(() if network.mtu is None else ("mtu", str(network.mtu))), "up")
    if network.vlan is not None:
        interface = f"berth.{network.vlan}"
        if not (host.sys / "class/net" / interface).exists():
            _ip(host, "link", "add", "link", port, "name", interface, "type", "vlan", "id", str(network.vlan))
        _ip(host, "link", "set", "dev", interface, "up")
    _ip(host, "address", "replace", str(network.address), "dev", interface)
    if network.gateway is not None:
        family = f"-{ip_address(network.gateway).version}"
        _ip(host, family, "route", "replace", "default", "via", network.gateway, "dev", interface)
    return interface


def _port(host: Host, mac: str) -> str:
    """The port with this MAC, as its driver may need time to find it."""
    end = host.monotonic() + PORT_SECONDS_MAX
    while True:
        host.check_stop()
        found = ports(host)
        for name, address in sorted(found.items()):
            if address == mac.lower():
                return name
        if host.monotonic() > end:
            raise NoNetwork(f"no network port has the MAC {mac}; found: {', '.join(sorted(found.values())) or 'none'}")
        time.sleep(_PAUSE_SECONDS)


def _ip(host: Host, *arguments: str) -> None:
    run = host.run(["ip", *arguments], _COMMAND_SECONDS)
    if run.status != 0:
        raise NoNetwork(f"ip {' '.join(arguments)}: {run.output[-200:] or f'status {run.status}'}")
