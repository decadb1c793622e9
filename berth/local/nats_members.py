"""Servers of NATS that form a cluster on the loopback address."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class NatsMember:
    """A server's place in a cluster: its name, and the ports at which the members reach each other with this password."""

    name: str
    route_port: int
    route_ports: tuple[int, ...]
    password: str = field(repr=False)

    def configuration(self) -> str:
        """The part of the server's configuration."""
        routes = ", ".join(f'"nats://member:{self.password}@127.0.0.1:{port}"' for port in self.route_ports)
        return (
            f'cluster {{ name: berth-local, listen: "127.0.0.1:{self.route_port}", routes: [{routes}]\n'
            f'  authorization {{ user: member, password: "{self.password}", timeout: 2 }} }}\n'
        )
