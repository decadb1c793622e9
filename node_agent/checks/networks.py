"""Checks of what tenant networks need of the host: programs and forwarding."""

from __future__ import annotations

import os

from node_agent.checks.finding import Code, Finding
from node_agent.discovery.reading import Tree

# Programs with the Debian packages that have them.
PROGRAMS = {"ip": "iproute2", "nft": "nftables", "conntrack": "conntrack"}
IPV6_SETTING = "proc/sys/net/ipv6/conf/default/disable_ipv6"
FORWARDING = "proc/sys/net/ipv4/ip_forward"
_FOLDERS = ("usr/sbin", "usr/bin", "sbin", "bin")


def check_tenant_networks(tree: Tree) -> list[Finding]:
    """Check programs and forwarding, which an agent with `BERTH_LIBVIRT_NETWORK=bridge` needs, and the setting of IPv6."""
    return [_programs(tree), _forwarding(tree), _ipv6_setting(tree)]


def _programs(tree: Tree) -> Finding:
    missing = [name for name in PROGRAMS if not any(tree.has(f"{folder}/{name}") for folder in _FOLDERS)]
    if not missing:
        return Finding("network programs", ", ".join(PROGRAMS))
    remedy = f"apt-get install --no-install-recommends {' '.join(PROGRAMS[name] for name in missing)}"
    found = f"{', '.join(missing)} is not installed"
    return Finding("network programs", found, Code.NETWORK_PROGRAM_MISSING, remedy)


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
