"""How the networks of a node are connected with those of other nodes: by VXLAN, by VLANs, or not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import structlog

from node_agent.drivers.libvirt.network.links import Link, all_links, links
from node_agent.drivers.libvirt.network.names import TRUNK_BRIDGE
from node_agent.drivers.libvirt.network.policy import Trunk, Uplink
from node_agent.drivers.libvirt.network.rules import Guest, Remote
from node_agent.drivers.libvirt.network.uplinks import destinations, is_connected, make_uplink
from node_agent.drivers.libvirt.network.vlan import (
    is_access_whole,
    is_trunk_whole,
    join_trunk,
    make_access,
    make_trunk_bridge,
    tags,
    trunk_problem,
    vlans_of,
)

log = structlog.get_logger("node_agent.network")


class Connecting(Protocol):
    """What makes the uplinks of networks. Guests are all of the node, unless one is named alone."""

    def names(self, guests: Iterable[Guest]) -> set[str]:
        """The interfaces that should be there beside taps and bridges."""

    def start(self) -> None:
        """Make what no network is needed for. Raises OSError for a host on which no network can be connected."""

    def share(self, guests: Sequence[Guest]) -> None:
        """Make what the networks of these guests share. Raises OSError."""

    def connect(self, guest: Guest, guests: Sequence[Guest], remotes: Sequence[Remote]) -> None:
        """Connect the guest's network. After its rules: no frame arrives unfiltered. Raises OSError."""

    def reached(self, guests: Sequence[Guest], remotes: Sequence[Remote]) -> tuple[Remote, ...]:
        """Those remote guests whose networks are connected."""

    def is_whole(self, guests: Sequence[Guest], remotes: Sequence[Remote], there: Mapping[str, Link]) -> bool:
        """Whether everything is as the calls above leave it. `there`: the interfaces of tenant networks. Raises OSError."""


class Unconnected:
    """Networks end at the node."""

    def names(self, guests: Iterable[Guest]) -> set[str]:
        """None."""
        return set()

    def start(self) -> None:
        """Nothing."""

    def share(self, guests: Sequence[Guest]) -> None:
        """Nothing."""

    def connect(self, guest: Guest, guests: Sequence[Guest], remotes: Sequence[Remote]) -> None:
        """Nothing."""

    def reached(self, guests: Sequence[Guest], remotes: Sequence[Remote]) -> tuple[Remote, ...]:
        """None."""
        return ()

    def is_whole(self, guests: Sequence[Guest], remotes: Sequence[Remote], there: Mapping[str, Link]) -> bool:
        """Nothing is missing."""
        return True


class ByVxlan(Unconnected):
    """Each network's uplink is a VXLAN device."""

    def __init__(self, uplink: Uplink) -> None:
        self._uplink = uplink

    def names(self, guests: Iterable[Guest]) -> set[str]:
        """The uplink of each network."""
        return {guest.uplink for guest in guests}

    def connect(self, guest: Guest, guests: Sequence[Guest], remotes: Sequence[Remote]) -> None:
        """The network's uplink sends to the nodes that the rules accept from. Raises OSError."""
        make_uplink(guest, self._uplink, remotes, links())

    def reached(self, guests: Sequence[Guest], remotes: Sequence[Remote]) -> tuple[Remote, ...]:
        """All."""
        return tuple(remotes)

    def is_whole(self, guests: Sequence[Guest], remotes: Sequence[Remote], there: Mapping[str, Link]) -> bool:
        """Whether each uplink sends where it should. Raises OSError."""
        found = destinations()
        return all(is_connected(guest, self._uplink, remotes, dict(there), found) for guest in guests)


class ByVlans(Unconnected):
    """Each network's uplink leads to an access port in the network's VLAN. A network without a VLAN ends at the node."""

    def __init__(self, trunk: Trunk) -> None:
        self._trunk = trunk
        self._problem: str | None = None

    def names(self, guests: Iterable[Guest]) -> set[str]:
        """The trunk's bridge, and both ends of each network that has a VLAN."""
        here = list(guests)
        vlans = vlans_of(here)
        return {TRUNK_BRIDGE}.union(*({one.uplink, one.access} for one in here if one.order.vni in vlans))

    def start(self) -> None:
        """Make the trunk's bridge. Raises OSError for a kernel that filters no VLANs."""
        make_trunk_bridge(self._trunk)

    def share(self, guests: Sequence[Guest]) -> None:
        """The trunk carries the VLANs of these guests. Raises OSError for an interface that cannot be used."""
        make_trunk_bridge(self._trunk)
        join_trunk(self._trunk, vlans_of(guests).values())

    def connect(self, guest: Guest, guests: Sequence[Guest], remotes: Sequence[Remote]) -> None:
        """Uplink and access port are there if the network has a VLAN. Raises OSError."""
        vlan = vlans_of(guests).get(guest.order.vni)
        if vlan is not None:
            make_access(guest, vlan, self._trunk)

    def reached(self, guests: Sequence[Guest], remotes: Sequence[Remote]) -> tuple[Remote, ...]:
        """Those of networks that have a VLAN."""
        vlans = vlans_of(guests)
        return tuple(one for one in remotes if one.vni in vlans)

    def is_whole(self, guests: Sequence[Guest], remotes: Sequence[Remote], there: Mapping[str, Link]) -> bool:
        """Whether each VLAN is at its access port and the trunk, and no other. A trunk that cannot be used is logged once."""
        every, found, vlans = all_links(), tags(), vlans_of(guests)
        self._note(trunk_problem(self._trunk, every))
        of_networks = ((guest, vlan) for guest in guests if (vlan := vlans.get(guest.order.vni)) is not None)
        return is_trunk_whole(self._trunk, vlans.values(), every, found) and all(
            is_access_whole(guest, vlan, self._trunk, every, found) for guest, vlan in of_networks
        )

    def _note(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            log.error("trunk_not_connected", interface=self._trunk.interface, why=problem)
        self._problem = problem


def connecting_by(uplink: Uplink | Trunk | None) -> Connecting:
    """What a policy's uplink means."""
    if isinstance(uplink, Trunk):
        return ByVlans(uplink)
    return Unconnected() if uplink is None else ByVxlan(uplink)
