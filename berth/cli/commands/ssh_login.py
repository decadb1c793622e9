"""Logs in to an allocation with the system's `ssh`, or with asyncssh if there is none."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from berth.cli.endings import UNREACHABLE, Refused

if TYPE_CHECKING:
    from berth.client import Connection

CONNECT_SECONDS = 15


def known_hosts_line(connection: Connection) -> str:
    """The allocation's host key in the format of OpenSSH's known_hosts (sshd(8))."""
    where = connection.host if connection.port == 22 else f"[{connection.host}]:{connection.port}"
    return f"{where} {connection.host_key}\n"


def log_in(connection: Connection, identity: Path | None, remote: Sequence[str]) -> int:
    """Run a shell or `remote` there and return its exit status. Refuses any host key but the allocation's."""
    program = shutil.which("ssh")
    if program is None:
        return asyncio.run(_with_asyncssh(connection, identity, remote))
    with tempfile.NamedTemporaryFile("w", prefix="berth-known-hosts-", suffix=".txt") as known_hosts:
        known_hosts.write(known_hosts_line(connection))
        known_hosts.flush()
        command = ssh_command(program, connection, identity, Path(known_hosts.name), remote)
        return subprocess.run(command, check=False).returncode


def ssh_command(
    program: str, connection: Connection, identity: Path | None, known_hosts: Path, remote: Sequence[str]
) -> list[str]:
    """The command line for OpenSSH's client. User and host are what a node said: neither can become an option."""
    chosen = ["-i", str(identity), "-o", "IdentitiesOnly=yes"] if identity else []
    return [
        program, "-p", str(connection.port), *chosen, "-o", f"UserKnownHostsFile={known_hosts}",
        "-o", "GlobalKnownHostsFile=none", "-o", "StrictHostKeyChecking=yes", "-o", f"ConnectTimeout={CONNECT_SECONDS}",
        "-o", "LogLevel=ERROR", "-l", connection.user, "--", connection.host, *remote,
    ]  # fmt: skip


async def _with_asyncssh(connection: Connection, identity: Path | None, remote: Sequence[str]) -> int:
    # Only where the system has no `ssh`; loading it takes longer than all the rest.
    import asyncssh

    options = {} if identity is None else {"client_keys": [str(identity)]}
    try:
        async with asyncssh.connect(
            connection.host, connection.port, username=connection.user, connect_timeout=CONNECT_SECONDS,
            known_hosts=asyncssh.import_known_hosts(known_hosts_line(connection)), config=None, **options,
        ) as session:  # fmt: skip
            terminal = None if remote or not sys.stdin.isatty() else "xterm"
            done = await session.run(
                " ".join(remote) or None, stdin=sys.stdin, stdout=sys.stdout, stderr=sys.stderr, term_type=terminal
            )
            return done.exit_status if done.exit_status is not None else 255
    except (asyncssh.Error, OSError) as error:
        where = f"{connection.host} port {connection.port}"
        raise Refused(f"cannot log in to {where}: {error}", code="ssh", exit_code=UNREACHABLE) from error
