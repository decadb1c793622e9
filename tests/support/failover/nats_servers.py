"""Three servers of NATS that keep the stream together, for tests that kill, freeze, cut off and wipe them."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import nats
from nats.aio.client import Client

from berth.local.nats_cluster import NatsMember
from berth.local.servers import free_port
from tests.outbox_relay.relays import STREAM, asked
from tests.proxy import Mode, Proxies, Proxy
from tests.support.waiting import wait_for

T = TypeVar("T")


class NatsServers:
    """The cluster, started."""

    kind: type[NatsMember] = NatsMember

    def __init__(self, directory: Path) -> None:
        self.route_ports = tuple(free_port() for _ in range(3))
        password = secrets.token_hex(16)
        self.members = [
            self.kind(directory / f"nats-{number + 1}", (free_port(), free_port()), number, self.route_ports, password)
            for number in range(3)
        ]

    @property
    def url(self) -> str:
        """Addresses of all three."""
        return ",".join(member.url for member in self.members)

    def start(self, *members: NatsMember) -> None:
        """Start these, or all, and wait until they can make streams."""
        for member in members or self.members:
            member.start()

    def stop(self) -> None:
        for member in self.members:
            if member.process is not None:
                os.kill(member.process.pid, signal.SIGCONT)
            member.kill()

    def leader(self) -> NatsMember:
        """The server that leads the stream; waits until there is one."""
        found: list[NatsMember] = []

        def look() -> bool:
            name = self._leader_name()
            found[:] = [member for member in self.members if member.server_name == name]
            return bool(found)

        wait_for(look, "the stream has a leader", 60)
        return found[0]

    def followers(self) -> list[NatsMember]:
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def current(self) -> bool:
        """Whether each member has all of the stream, and answers questions that only the leader of the cluster can answer."""

        async def ask(client: Client) -> bool:
            cluster = (await client.jetstream().stream_info(STREAM)).cluster
            return cluster is not None and sum(bool(one.current) for one in cluster.replicas or ()) == 2

        async def find(client: Client) -> str:
            return await client.jetstream().find_stream_name_by_subject("berth.events.>")

        return any(_answered(member, ask) for member in self.members) and all(
            _answered(member, find) == STREAM for member in self.members
        )

    def _leader_name(self) -> str | None:
        async def ask(client: Client) -> str | None:
            cluster = (await client.jetstream().stream_info(STREAM)).cluster
            return None if cluster is None else cluster.leader

        names = (_answered(member, ask) for member in self.members if member.process is not None)
        return next((name for name in names if name), None)


class LinkedMember(NatsMember):
    """A server whose connections to the others go through a proxy each."""

    links: Mapping[int, Proxy] = {}
    """By the number of the server that is connected to."""

    def start(self) -> None:
        """Start; the others learn an address at which nothing listens, so that they use the proxies alone."""
        self._route_ports = tuple(proxy.port for proxy in self.links.values())
        super().start()

    def cluster_options(self) -> str:
        """Lines of the block `cluster`."""
        return '  advertise: "127.0.0.1:1"\n'


class LinkedServers(NatsServers):
    """A cluster whose links can be cut, each alone."""

    kind: type[NatsMember] = LinkedMember

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._proxies = Proxies()
        for one, member in enumerate(self.members):
            assert isinstance(member, LinkedMember)
            member.links = {
                other: self._proxies.make(f"{one}-{other}", self.route_ports[other])
                for other in range(3)
                if other != one
            }

    @contextmanager
    def cut_off(self, member: NatsMember) -> Iterator[None]:
        """For the length of the context this server and the others receive nothing from each other; clients reach all."""
        number = self.members.index(member)
        cut = [proxy for name, proxy in self._proxies.by_name.items() if str(number) in name.split("-")]
        for proxy in cut:
            proxy.set_mode(Mode.CUT)
        try:
            yield
        finally:
            for proxy in cut:
                proxy.set_mode(Mode.PASS)

    def stop(self) -> None:
        super().stop()
        self._proxies.close()


def _answered(member: NatsMember, ask: Callable[[Client], Awaitable[T]]) -> T | None:
    """None: the server does not run, or has no answer."""
    try:
        found: T = asked(member.url, ask)
        return found
    except (nats.errors.Error, OSError):
        return None


def wipe(member: NatsMember) -> None:
    """As if the disk of this server, which does not run, had been replaced."""
    shutil.rmtree(member.directory)


@contextmanager
def nats_servers(directory: Path) -> Iterator[NatsServers]:
    """Three servers, killed at the end."""
    servers = NatsServers(directory)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


@contextmanager
def linked_servers(directory: Path) -> Iterator[LinkedServers]:
    """Three servers that can be cut off, killed at the end."""
    servers = LinkedServers(directory)
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()
