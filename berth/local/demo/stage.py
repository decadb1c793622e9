"""Where the demo plays: three tenants with a key each, and an SSH key that is theirs."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import asyncssh

from berth.client import AsyncClient, Client
from berth.local.stack import Stack

TENANTS = ("ada", "grace", "edsger")
RETRY_SECONDS = 30.0


@dataclass(frozen=True)
class Player:
    """A tenant of the demo."""

    name: str
    tenant_id: UUID
    key: str
    ssh_key_id: UUID


@dataclass(frozen=True)
class Stage:
    """Everything that the acts need."""

    stack: Stack
    players: tuple[Player, ...]
    ssh_key: asyncssh.SSHKey
    strangers_key: asyncssh.SSHKey

    def client(self, player: Player) -> AsyncClient:
        """A client with a tenant's key."""
        return AsyncClient(self.stack.endpoints.api_url, player.key, retry_seconds=RETRY_SECONDS)

    def admin(self) -> AsyncClient:
        """A client with the stack's admin key."""
        return AsyncClient(self.stack.endpoints.api_url, self.stack.admin_key, retry_seconds=RETRY_SECONDS)


def set_stage(stack: Stack) -> Stage:
    """Make the tenants, their keys and their SSH key."""
    ssh_key, strangers_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    public = ssh_key.export_public_key().decode().strip()
    players = []
    with stack.admin() as admin:
        for name in TENANTS:
            tenant = admin.create_tenant(name=name)
            key = admin.create_api_key(name="demo", role="tenant", tenant_id=tenant.id).key
            with Client(stack.endpoints.api_url, key) as client:
                stored = client.add_ssh_key(name="demo", public_key=public)
            players.append(Player(name, tenant.id, key, stored.id))
    return Stage(stack, tuple(players), ssh_key, strangers_key)
