"""Checks of what tenant networks need of the host: programs and forwarding."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from node_agent.checks.finding import Code, Finding
from node_agent.discovery.reading import Gaps, Tree
from node_agent.drivers.libvirt.network.names import TRUNK_BRIDGE

# Programs with the Debian packages that have them.
PROGRAMS = {"ip": "iproute2", "nft": "nftables", "conntrack": "conntrack"}
# Of those that guests get addresses by DHCP and names by DNS with. The package makes the account as well.
NAME_PROGRAMS = {"dnsmasq": "dnsmasq-base", "setpriv": "util-linux"}
NAME_ACCOUNT = "dnsmasq"
IPV6_SETTING = "proc/sys/net/ipv6/conf/default/disable_ipv6"
FORWARDING = "proc/sys/net/ipv4/ip_forward"
_FOLDERS = ("usr/sbin", "usr/bin", "sbin", "bin")


@dataclass(frozen=True)
class NetworkSettings:
    """What tenant networks need of the host by the settings.

    `names`: whether guests get addresses by DHCP and names by DNS. `trunk`: interface at which VLANs of networks are tagged, None
    without VLANs; `mtu`: largest IP packet of guests there.
    """

    names: bool
    trunk: str | None = None
    mtu: int = 1500


def addresses_of(interface: str) -> list[str]:
    """The IP addresses of an interface of this host, without link-local ones of IPv6."""
    found = psutil.net_if_addrs().get(interface, [])
    return [
        one.address
        for one in found
        if one.family.name in ("AF_INET", "AF_INET6") and not one.address.startswith("fe80:")
    ]


def check_tenant_networks(
    tree: Tree, wanted: NetworkSettings, addresses: Callable[[str], list[str]] = addresses_of
) -> list[Finding]:
    """Check what an agent with `BERTH_LIBVIRT_NETWORK=bridge` needs: programs, forwarding, a trunk; and the setting of IPv6."""
    names = [_name_server(tree)] if wanted.names else []
    trunk = [] if wanted.trunk is None else [_trunk(tree, wanted.trunk, wanted.mtu, addresses(wanted.trunk))]
    return [_programs(tree), *names, *trunk, _forwarding(tree), _ipv6_setting(tree)]


def can_serve_names(root: Path = Path("/")) -> bool:
    """Whether the programs and the account of name servers are there now."""
    return _name_server(Tree(root, Gaps())).code is None


def _programs(tree: Tree) -> Finding:
    missing = _missing(tree, PROGRAMS)
    if not missing:
        return Finding("network programs", ", ".join(PROGRAMS))
    remedy = f"apt-get install --no-install-recommends {' '.join(PROGRAMS[name] for name in missing)}"
    found = f"{', '.join(missing)} is not installed"
    return Finding("network programs", found, Code.NETWORK_PROGRAM_MISSING, remedy)


def _name_server(tree: Tree) -> Finding:
    missing = _missing(tree, NAME_PROGRAMS)
    if not missing and not _has_account():
        missing = ["dnsmasq"]
        found = f"the account {NAME_ACCOUNT} is missing"
    elif missing:
        found = f"{', '.join(missing)} is not installed"
    else:
        return Finding("name server", f"dnsmasq, as the user {NAME_ACCOUNT}")
    remedy = f"apt-get install --no-install-recommends {' '.join(NAME_PROGRAMS[name] for name in missing)}"
    return Finding("name server", found, Code.NAME_SERVER_MISSING, f"{remedy}, or BERTH_LIBVIRT_NETWORK_NAMES=none")


def _has_account() -> bool:
    try:
        pwd.getpwnam(NAME_ACCOUNT)
    except KeyError:
        return False
    return True


def _missing(tree: Tree, programs: Mapping[str, str]) -> list[str]:
    return [name for name in programs if not any(tree.has(f"{folder}/{name}") for folder in _FOLDERS)]


def _trunk(tree: Tree, interface: str, mtu: int, addresses: list[str]) -> Finding:
    name, place = "trunk of tenant networks", f"sys/class/net/{interface}"
    setting = "BERTH_LIBVIRT_NETWORK_UPLINK_INTERFACE"
    if not tree.has(place):
        remedy = f"set {setting} to the interface whose switch port carries the VLANs (`ip -br link`), or bring it back"
        return Finding(name, f"there is no interface {interface}", Code.TRUNK_INTERFACE_MISSING, remedy)
    link = tree.root / place / "master"
    master = link.readlink().name if link.is_symlink() else None
    if master not in (None, TRUNK_BRIDGE):
        remedy = (
            f"ip link set {interface} nomaster, also in the host's network configuration; or set {setting} to another"
        )
        return Finding(name, f"{interface} is a port of {master}", Code.TRUNK_INTERFACE_TAKEN, remedy)
    if addresses and master is None:
        remedy = f"move {', '.join(addresses)} to another interface, or set {setting} to one without addresses"
        return Finding(name, f"{interface} has the address {addresses[0]}", Code.TRUNK_INTERFACE_TAKEN, remedy)
    found = tree.number(f"{place}/mtu")
    if found is not None and found < mtu:
        remedy = (
            f"ip link set {interface} mtu {mtu} and on the switch, or BERTH_LIBVIRT_NETWORK_MTU={found} on all nodes"
        )
        return Finding(
            name, f"{interface} has an MTU of {found}, below the {mtu} of guests", Code.TRUNK_MTU_TOO_SMALL, remedy
        )
    return Finding(name, f"{interface}, used for nothing else")


def _forwarding(tree: Tree) -> Finding:
    if tree.number(FORWARDING) == 1:
        return Finding("forwarding", "the host forwards IPv4")
    # The agent does not switch it on: the host would forward for everything else too, unfiltered.
    remedy = (
        "filter what else the host would forward, then sysctl -w net.ipv4.ip_forward=1, and the same in /etc/sysctl.d"
    )
    return Finding("forwarding", "the host does not forward IPv4", Code.FORWARDING_OFF, remedy)


def _ipv6_setting(tree: Tree) -> Finding:
    name = "ipv6 of guests"
    try:
        # Opened, not written: the agent writes the same setting of taps and bridges.
        os.close(os.open(tree.root / IPV6_SETTING, os.O_WRONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        return Finding(name, "the host has no IPv6")
    except OSError as error:
        found = (
            f"/{IPV6_SETTING} cannot be written ({error.strerror}): the rules alone keep IPv6 of guests from the node"
        )
        remedy = "in a container mount /proc/sys writable; in a unit of systemd ReadWritePaths=/proc/sys/net/ipv6/conf"
        return Finding(name, found, Code.IPV6_SETTING_CLOSED, remedy)
    return Finding(name, "the agent switches IPv6 off on taps and bridges")
