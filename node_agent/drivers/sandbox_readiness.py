"""Is there really an SSH server, with the right key? Asked as a client would: connect, exchange keys, look at the
host key."""

from __future__ import annotations

import asyncio

import asyncssh


class NotReady(Exception):
    """No SSH server with the expected host key answers."""


async def check_ssh(host: str, port: int, host_key: str, seconds_max: float) -> None:
    """Complete the SSH key exchange (RFC 4253) with `host`:`port`, which proves that it holds the private key of
    `host_key`. Raises NotReady."""
    try:
        async with asyncio.timeout(seconds_max):
            offered = await asyncssh.get_server_host_key(
                host,
                port,
                config=None,
                server_host_key_algs=["ssh-ed25519"],
                kex_algs=["curve25519-sha256"],
            )
    except (TimeoutError, OSError, asyncssh.Error) as error:
        raise NotReady(f"SSH at {host}:{port}: {str(error) or type(error).__name__}") from error
    if offered is None or public_line(offered) != host_key:
        raise NotReady(f"somebody else answers at {host}:{port}: the host key is another one")


def new_host_key() -> tuple[bytes, str]:
    """A new Ed25519 host key: the private one as OpenSSH PEM, the public one as one line."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    return key.export_private_key(), public_line(key)


def read_host_key(private_key: bytes) -> str:
    """The public line of a host key. Raises ValueError."""
    try:
        return public_line(asyncssh.import_private_key(private_key))
    except asyncssh.KeyImportError as error:
        raise ValueError(str(error)) from error


def public_line(key: asyncssh.SSHKey) -> str:
    """`ssh-ed25519 AAAA...` without a comment."""
    return " ".join(key.export_public_key().decode().split()[:2])
