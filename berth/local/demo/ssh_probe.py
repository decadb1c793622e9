"""Logs in to an allocation as the demo's tenant, or tries to with another key."""

from __future__ import annotations

import asyncssh

from berth.client import Connection

LOGIN_SECONDS = 15
SSH_PORT = 22


def known_host(connection: Connection) -> str:
    """The line of known_hosts for the allocation's host key; with SSH's own port it has no brackets."""
    host, port = connection.host, connection.port
    where = host if port == SSH_PORT else f"[{host}]:{port}"
    return f"{where} {connection.host_key}\n"


async def run_there(
    connection: Connection, key: asyncssh.SSHKey, command: str, login_seconds: float = LOGIN_SECONDS
) -> str:
    """The output of a command run over SSH. The host key must be the allocation's. Raises `asyncssh.Error`, `OSError`."""
    async with asyncssh.connect(
        connection.host, connection.port, username=connection.user, client_keys=[key], agent_path=None, config=None,
        known_hosts=asyncssh.import_known_hosts(known_host(connection)), login_timeout=login_seconds,
    ) as session:  # fmt: skip
        done = await session.run(command, check=True)
        return str(done.stdout or "")


async def is_refused(connection: Connection, key: asyncssh.SSHKey) -> bool:
    """Whether the server is there and refuses this key."""
    try:
        await run_there(connection, key, "true")
    except asyncssh.PermissionDenied:
        return True
    return False


async def is_gone(connection: Connection, key: asyncssh.SSHKey) -> bool:
    """Whether login with this key fails, most likely because nothing listens there."""
    try:
        await run_there(connection, key, "true")
    except (asyncssh.Error, OSError):
        return True
    return False
