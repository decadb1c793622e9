"""The guests of this node's networks on other nodes, as the control plane names them in its answers to heartbeats.

They come over mutual TLS and not in a signed task: so none of them is a guest of this node, and none is at an underlay address
outside of the networks that the node's operator names. The last answer is kept in a file: an agent that starts without the
control plane connects what was connected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from uuid import UUID

import structlog
from pydantic import TypeAdapter, ValidationError

from node_agent.drivers.libvirt.network.links import bridge_mac
from node_agent.drivers.libvirt.network.policy import Trunk, Uplink
from node_agent.drivers.libvirt.network.rules import Guest, Remote
from node_agent.durable_files import write_durably
from node_agent.wire.networks import NetworkOrder, RemoteGuest, SpannedNetwork

log = structlog.get_logger("node_agent.network")

_NETWORKS = TypeAdapter(list[SpannedNetwork])


class Span:
    """What is known of other nodes. `file` keeps the last answer."""

    def __init__(self, uplink: Uplink | Trunk, file: Path) -> None:
        """Read what an earlier agent kept; nothing is known if it is damaged. Raises OSError."""
        self._uplink = uplink
        self._file = file
        self._kept: list[SpannedNetwork] = self._load()
        self._known = self._kept
        self._refused: set[tuple[UUID, IPv4Address, str]] = set()

    def note(self, networks: Sequence[SpannedNetwork]) -> bool:
        """Use this answer from now on; return whether it differs from the last one."""
        differs = list(networks) != self._known
        if differs:
            self._known = list(networks)
            self._refused.clear()
        return differs

    def keep(self) -> None:
        """Write the last answer if it is not in the file. A full disk is logged: rules are repaired all the same."""
        known = self._known
        if known == self._kept:
            return
        try:
            write_durably(self._file, _NETWORKS.dump_json(known))
            self._kept = known
        except OSError as error:
            log.error("networks_of_other_nodes_not_kept", file=str(self._file), why=str(error))

    def remotes(self, guests: Iterable[Guest]) -> tuple[Remote, ...]:
        """The guests on other nodes of the networks of these guests. What is refused is logged once."""
        here = list(guests)
        orders = {guest.order.network_id: guest.order for guest in here}
        taken: set[IPv4Address | str] = {it for guest in here for it in (guest.order.address, guest.order.mac)}
        found: list[Remote] = []
        for network in self._known:
            order = orders.get(network.network_id)
            if order is None or order.vni != network.vni:
                continue
            for one in network.guests:
                if (problem := self._problem(one, order, taken)) is not None:
                    self._refuse(order, one, problem)
                    continue
                taken |= {one.address, one.mac}
                found.append(Remote(order.vni, one.mac, one.address, one.underlay, tuple(one.names)))
        return tuple(sorted(found, key=lambda one: (one.vni, one.address)))

    def _problem(self, one: RemoteGuest, order: NetworkOrder, taken: set[IPv4Address | str]) -> str | None:
        subnet = order.subnet
        if one.address not in subnet or one.address in (subnet[0], subnet[-1], order.gateway):
            return "its address is no guest's in the network"
        if one.address in taken or one.mac in taken or one.mac == bridge_mac(order.vni):
            return "its address or MAC address is that of another guest, or the node's"
        if one.underlay == self._uplink.underlay:
            return "its underlay address is this node's"
        if not any(one.underlay in network for network in self._uplink.peers):
            return "its underlay address is in none of BERTH_LIBVIRT_NETWORK_PEERS"
        return None

    def _refuse(self, order: NetworkOrder, one: RemoteGuest, problem: str) -> None:
        if (known := (order.network_id, one.address, problem)) not in self._refused:
            self._refused.add(known)
            log.error(
                "remote_guest_refused", network_id=str(order.network_id), address=str(one.address),
                underlay=str(one.underlay), why=problem,
            )  # fmt: skip

    def _load(self) -> list[SpannedNetwork]:
        try:
            return _NETWORKS.validate_json(self._file.read_bytes())
        except FileNotFoundError:
            return []
        except ValidationError as error:
            log.error("networks_of_other_nodes_unreadable", file=str(self._file), why=str(error)[:300])
            return []
