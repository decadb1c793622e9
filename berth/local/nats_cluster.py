"""Servers of NATS that form a cluster on the loopback address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from berth.local import secret_files
from berth.local.servers import LocalNats
from berth.local.state import Ports, StateDirectory, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from berth.local.nats_users import NatsUser, NatsUsers

ROUTES_FILE = "nats-routes.conf"


MEMBERS = 3
"""Two of them acknowledge each message, so that one may be lost."""


def nats_servers_of(state: StateDirectory, ports: Ports, *, ha: bool) -> list[LocalNats]:
    """The NATS servers of a stack, not started: one, or a cluster of three whose stream each of them keeps."""
    users = secret_files.nats_users(state.secrets)
    if not ha:
        return [LocalNats(state.path / "nats", ports.of("nats"), ports.of("nats-monitor"), users)]
    names = [f"nats-{number + 1}" for number in range(MEMBERS)]
    routes = tuple(ports.of(f"{name}-routes") for name in names)
    password = secret_files.nats_routes_password(state.secrets)
    return [
        NatsMember(state.path / name, (ports.of(name), ports.of(f"{name}-monitor")), number, routes, password, users)
        for number, name in enumerate(names)
    ]


def addresses_of(servers: Sequence[LocalNats], user: NatsUser) -> str:
    """The servers' addresses for a user, as one address."""
    return ",".join(server.url_of(user) for server in servers)


class NatsMember(LocalNats):
    """One server of a cluster. The members reach each other at `route_ports`, with a password that a separate file holds.

    `number` is its place in `route_ports`, from 0; its port for clients answers before the cluster has a leader.
    """

    def __init__(
        self, directory: Path, ports: tuple[int, int], number: int, route_ports: tuple[int, ...], password: str,
        users: NatsUsers | None = None,
    ) -> None:  # fmt: skip
        super().__init__(directory, *ports, users)
        self.name = self.server_name = f"nats-{number + 1}"
        self._route_port = route_ports[number]
        self._route_ports = route_ports
        self._password = password
        self.routes = f'include "{ROUTES_FILE}"\n'

    def start(self) -> None:
        """Write the routes and the configuration, and start."""
        routes = ", ".join(f'"nats://member:{self._password}@127.0.0.1:{port}"' for port in self._route_ports)
        text = (
            f'cluster {{\n  name: berth-local\n  listen: "127.0.0.1:{self._route_port}"\n  routes: [{routes}]\n'
            f"{self.cluster_options()}"
            f'  authorization {{ user: member, password: "{self._password}", timeout: 2 }}\n}}\n'
        )
        self.directory.mkdir(parents=True, exist_ok=True)
        write_whole(self.directory / ROUTES_FILE, text, mode=0o600)
        super().start()

    def cluster_options(self) -> str:
        """Further lines of the block `cluster` of the configuration."""
        return ""
