"""Checks of what tenant networks need of the host: programs and forwarding."""

from __future__ import annotations

from node_agent.checks.finding import Code, Finding
from node_agent.discovery.reading import Tree

# Programs with the Debian packages that have them.
PROGRAMS = {"ip": "iproute2", "nft": "nftables", "conntrack": "conntrack"}
FORWARDING = "proc/sys/net/ipv4/ip_forward"
_FOLDERS = ("usr/sbin", "usr/bin", "sbin", "bin")


def check_tenant_networks(tree: Tree) -> list[Finding]:
    """Check programs and forwarding. An agent with `BERTH_LIBVIRT_NETWORK=bridge` needs both."""
    return [_programs(tree), _forwarding(tree)]


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
