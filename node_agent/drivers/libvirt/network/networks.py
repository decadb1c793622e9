"""The tenant networks of one node: guests are brought in before they start and taken out before their slots are free.

What should be is in the records of the guests; what is, in the kernel. An agent that starts makes the second equal the first.
The rules are replaced as a whole then, and when they differ from what the agent left, for example after `nft flush ruleset`, and
when a network gets or loses a guest on another node. A network's name server knows its guests before one of them starts.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

import structlog

from node_agent.drivers.libvirt.network.conflicts import conflict
from node_agent.drivers.libvirt.network.connecting import connecting_by
from node_agent.drivers.libvirt.network.dhcp import NameServers, served
from node_agent.drivers.libvirt.network.links import (
    Link,
    is_complete,
    links,
    make_bridge,
    make_tap,
    owner_of,
    remove_link,
)
from node_agent.drivers.libvirt.network.names import tap_name
from node_agent.drivers.libvirt.network.policy import Policy
from node_agent.drivers.libvirt.network.programs import NetworkError, apply_rules, forget_connections, listed_rules
from node_agent.drivers.libvirt.network.rules import TABLES, Guest, Remote, addition, address_of, removal, replacement
from node_agent.drivers.libvirt.network.span import Span
from node_agent.drivers.threads import in_thread
from node_agent.problems import CannotStart
from node_agent.wire.networks import SpannedNetwork

log = structlog.get_logger("node_agent.network")

# Abstract sockets belong to the network namespace, as interfaces and rules do, and end with their process.
_OWNER = "\0berth-tenant-networks"


class TenantNetworks:
    """Bridges, taps, uplinks and rules of this network namespace. `guests` returns those that should be there, by their records.

    `span`: what is known of other nodes; None if networks end at this node. `name_servers`: None for tests of the rest.
    """

    def __init__(
        self, policy: Policy, guests: Callable[[], list[Guest]], span: Span | None = None,
        name_servers: NameServers | None = None,
    ) -> None:  # fmt: skip
        self._policy = policy
        self._connecting = connecting_by(policy.uplink)
        self._guests = guests
        self._span = span
        self._name_servers = name_servers
        self._remotes: tuple[Remote, ...] = ()
        """Those that the rules name."""
        self._lock = asyncio.Lock()
        self._left: str | None = None
        self._owner: socket.socket | None = None
        self._brought_in: set[UUID] = set()

    async def start(self) -> None:
        """Make everything as the records say and remove what no record names. Raises CannotStart."""
        if self._owner is None:
            owner = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                owner.bind(_OWNER)
            except OSError as error:
                owner.close()
                raise CannotStart("another agent has the tenant networks of this host") from error
            self._owner = owner
        try:
            async with self._lock:
                await in_thread(self._connecting.start)
                await in_thread(self._rebuild)
        except OSError as error:
            raise CannotStart(f"tenant networks cannot be made: {error}; see `python -m node_agent --check`") from error

    def close(self) -> None:
        """Let another agent of this host have the networks; they stay as they are."""
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    async def bring_in(self, guest: Guest, *, was_there: bool = False) -> None:
        """Bridge, rules and tap of the guest are there. Repeating it changes nothing.

        `was_there`: the guest ran before, and starts also while its name server does not: `tend` tries again.
        Raises OSError, also for a guest whose VNI, subnet or address is in the record of a guest of another network.
        """
        async with self._lock:
            await in_thread(partial(self._bring_in, guest, was_there))

    async def take_out(self, allocation_id: UUID) -> list[str]:
        """Remove tap, rules and tracked connections of the allocation, and the bridge with its last guest.

        Returns what was removed, for people. Nothing is there afterwards, and repeating it changes nothing. Raises OSError.
        """
        async with self._lock:
            return await in_thread(partial(self._take_out, allocation_id))

    def note_other_nodes(self, networks: Sequence[SpannedNetwork]) -> bool:
        """From the next `tend` or `bring_in` on networks span these guests of other nodes; return whether that is a change."""
        return self._span is not None and self._span.note(networks)

    async def tend(self) -> bool:
        """Restore rules and interfaces that something else has changed; whether it had. Raises OSError.

        Networks are connected with those nodes that the last `note_other_nodes` named.
        """
        async with self._lock:
            return await in_thread(self._tend)

    def _bring_in(self, guest: Guest, was_there: bool) -> None:
        if (problem := conflict(guest, self._guests())) is not None:
            raise NetworkError(problem)
        there = links()
        others = [one for one in self._wanted(there) if one.allocation_id != guest.allocation_id]
        if self._left is None or listed_rules(TABLES) != self._left or self._differs([*others, guest]):
            self._replace_among(others, guest)
        make_bridge(guest.bridge, guest.order, there)
        try:
            apply_rules(addition(self._policy, guest))
        except NetworkError as error:
            # An element of a guest without a readable record is in the way.
            log.warning("rules_replaced", allocation_id=str(guest.allocation_id), why=str(error))
            self._replace_among(others, guest)
        self._connect_guest(guest, [*others, guest], was_there)
        try:
            self._serve(guest, [*others, guest])
        except OSError as error:
            if not was_there:
                raise
            log.error("network_without_names", network_id=str(guest.order.network_id), why=str(error))
        make_tap(guest, links())
        self._left = listed_rules(TABLES)
        self._brought_in.add(guest.allocation_id)

    def _wanted(self, there: dict[str, Link]) -> list[Guest]:
        """The guests whose interfaces and rules should be there. Of two in conflict the one that has its tap, or the first."""
        wanted: list[Guest] = []
        for guest in sorted(self._guests(), key=lambda one: not _has_tap(one, there)):
            brought_in = guest.stage == "coming" and guest.allocation_id in self._brought_in
            if not (guest.stage == "there" or brought_in or _has_tap(guest, there)):
                continue
            if (problem := conflict(guest, wanted)) is not None:
                log.error("guest_without_network", allocation_id=str(guest.allocation_id), why=problem)
                continue
            wanted.append(guest)
        return wanted

    def _take_out(self, allocation_id: UUID) -> list[str]:
        self._brought_in.discard(allocation_id)
        tap, there = tap_name(allocation_id), links()
        others = [guest for guest in self._wanted(there) if guest.allocation_id != allocation_id]
        own = next((guest for guest in self._guests() if guest.allocation_id == allocation_id), None)
        removed = []
        if tap in there and owner_of(there[tap]) in (allocation_id, None):
            remove_link(tap)
            removed.append(tap)
        listed = listed_rules(TABLES)
        if listed is None or f'"{tap}"' in listed:
            self._remove_rules(own, others, listed)
            removed.append("rules")
        # After the tap: nothing can begin a connection any more. Without a readable record the rules have the address.
        address = str(own.order.address) if own is not None else address_of(tap, listed or "")
        if address is not None and address not in {str(guest.order.address) for guest in others}:
            forget_connections(address)
        if own is not None and own.bridge not in {guest.bridge for guest in others}:
            try:
                if self._name_servers is not None and self._name_servers.end(own.order.vni):
                    removed.append("name server")
            except OSError as error:
                # No reason to keep the guest: the next repair ends it as a stray.
                log.error("stray_name_server_stays", network=own.order.vni, why=str(error))
            for name in (own.uplink, own.bridge):
                if name in there:
                    remove_link(name)
                    removed.append(name)
            self._share(others)
        elif own is not None:
            try:
                self._serve(own, others)
            except OSError as error:
                # Its name leads nowhere until the next repair.
                log.error("network_without_names", network_id=str(own.order.network_id), why=str(error))
        return removed

    def _remove_rules(self, own: Guest | None, others: list[Guest], listed: str | None) -> None:
        try:
            if own is not None and listed == self._left and not self._differs(others):
                apply_rules(removal(self._policy, own, others))
                self._left = listed_rules(TABLES)
                return
        except NetworkError as error:
            log.warning("rules_replaced", allocation_id=str(own and own.allocation_id), why=str(error))
        self._replace_among(others)

    def _tend(self) -> bool:
        there = links()
        guests = self._wanted(there)
        whole = self._left is not None and listed_rules(TABLES) == self._left and self._complete(guests, there)
        if not whole:
            self._rebuild()
            log.warning("tenant_networks_restored", guests=len(guests))
        elif self._differs(guests):
            self._rebuild()
            log.info("tenant_networks_connected", guests_elsewhere=len(self._remotes))
        started = self._serve_all(guests)
        if started and whole:
            log.warning("name_servers_restored", networks=started)
        return not whole or bool(started)

    def _rebuild(self) -> None:
        """Raises OSError for the rules; a guest that fails is logged, and the others go on."""
        there = links()
        guests = self._wanted(there)
        self._replace(guests)
        for name in sorted(set(there) - self._names(guests)):
            try:
                remove_link(name)
            except OSError as error:
                log.error("stray_interface_stays", interface=name, why=str(error))
                continue
            log.warning("stray_interface_removed", interface=name)
        self._share(guests)
        for guest in guests:
            try:
                make_bridge(guest.bridge, guest.order, links())
                make_tap(guest, links())
                self._connecting.connect(guest, guests, self._remotes)
            except OSError as error:
                log.error("guest_without_network", allocation_id=str(guest.allocation_id), why=str(error))
        self._serve_all(guests)

    def _serve(self, guest: Guest, guests: list[Guest]) -> None:
        """The name server of this guest's network knows these guests of it. Raises OSError."""
        if self._name_servers is not None:
            self._name_servers.serve(served(guests, self._remotes)[guest.order.vni])

    def _serve_all(self, guests: list[Guest]) -> list[int]:
        """Each network has its name server and no other has one; those that were started. What fails is logged."""
        started: list[int] = []
        if self._name_servers is None:
            return started
        networks = served(guests, self._remotes)
        try:
            for vni in self._name_servers.end_others(networks):
                log.warning("stray_name_server_ended", network=vni)
        except OSError as error:
            log.error("stray_name_server_stays", why=str(error))
        for vni, network in networks.items():
            try:
                if self._name_servers.serve(network):
                    started.append(vni)
            except OSError as error:
                log.error("network_without_names", network_id=str(network.order.network_id), why=str(error))
        return started

    def _replace(self, guests: list[Guest]) -> None:
        remotes = self._wanted_remotes(guests)
        apply_rules(replacement(self._policy, guests, remotes))
        self._left = listed_rules(TABLES)
        self._remotes = remotes

    def _replace_among(self, others: list[Guest], *coming: Guest) -> None:
        """`_replace` beside guests that run: their networks are connected as the rules say. Raises OSError for the rules."""
        self._replace([*others, *coming])
        for guest in {guest.order.network_id: guest for guest in others}.values():
            try:
                self._connecting.connect(guest, [*others, *coming], self._remotes)
            except OSError as error:
                # Its bridge is gone: the next repair makes both.
                log.error("network_not_connected", network_id=str(guest.order.network_id), why=str(error))

    def _wanted_remotes(self, guests: list[Guest]) -> tuple[Remote, ...]:
        if self._span is None:
            return ()
        self._span.keep()
        return self._connecting.reached(guests, self._span.remotes(guests))

    def _differs(self, guests: list[Guest]) -> bool:
        """Whether other guests on other nodes are known than the rules name."""
        return self._wanted_remotes(guests) != self._remotes

    def _connect_guest(self, guest: Guest, guests: list[Guest], was_there: bool) -> None:
        """Connect the network of a guest that comes, as the rules say. Raises OSError, except for one that ran before."""
        try:
            self._connecting.share(guests)
            self._connecting.connect(guest, guests, self._remotes)
        except OSError as error:
            if not was_there:
                raise
            log.error("network_not_connected", network_id=str(guest.order.network_id), why=str(error))

    def _share(self, guests: list[Guest]) -> None:
        """What networks share is there for these guests; what fails is logged, and the next repair tries again."""
        try:
            self._connecting.share(guests)
        except OSError as error:
            log.error("networks_not_connected", why=str(error))

    def _names(self, guests: list[Guest]) -> set[str]:
        return {name for guest in guests for name in (guest.tap, guest.bridge)} | self._connecting.names(guests)

    def _complete(self, guests: list[Guest], there: dict[str, Link]) -> bool:
        if self._names(guests) != set(there) or not all(is_complete(guest, there) for guest in guests):
            return False
        return self._connecting.is_whole(guests, self._remotes, there)


def _has_tap(guest: Guest, there: dict[str, Link]) -> bool:
    return guest.tap in there and owner_of(there[guest.tap]) == guest.allocation_id
