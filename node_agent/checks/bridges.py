"""Checks that the host's packet filter does not see frames between guests on one bridge."""

from __future__ import annotations

from collections.abc import Mapping

from node_agent.checks.finding import Code, Finding
from node_agent.discovery.reading import Tree

DIRECTORY = "proc/sys/net/bridge"
SETTINGS = ("bridge-nf-call-iptables", "bridge-nf-call-ip6tables", "bridge-nf-call-arptables")
_NAME = "bridge filter"


def check_bridge_filter(tree: Tree) -> Finding:
    """Check the three settings of the module br_netfilter."""
    if not tree.has(DIRECTORY):
        return judge_bridge_filter(None)
    return judge_bridge_filter({name: tree.number(f"{DIRECTORY}/{name}") for name in SETTINGS})


def judge_bridge_filter(settings: Mapping[str, int | None] | None) -> Finding:
    """The finding for the three values; None without the module, and a value of None if it cannot be read."""
    if settings is None:
        return Finding(_NAME, "the module br_netfilter is not loaded")
    unreadable = [name for name, value in settings.items() if value is None]
    if unreadable:
        found = f"{', '.join(unreadable)} cannot be read"
        return Finding(_NAME, found, Code.BRIDGE_FILTER_UNREADABLE, f"see that /{DIRECTORY} can be read")
    on = [name for name, value in settings.items() if value]
    if not on:
        return Finding(_NAME, "the host's packet filter does not see frames on bridges")
    # Docker and Kubernetes switch it on: their rules then drop frames between guests of one tenant.
    remedy = f"sysctl -w {' '.join(f'net.bridge.{name}=0' for name in on)}, and the same in /etc/sysctl.d"
    return Finding(
        _NAME, f"the host's packet filter sees frames on bridges: {', '.join(on)}", Code.BRIDGE_FILTER_ON, remedy
    )
