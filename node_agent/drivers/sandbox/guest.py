"""The guest: a real SSH server (asyncssh) in a separate process; a sandbox allocation consists only of it.

It accepts the user `tenant` with one of the allocation's public keys and nothing else: no passwords, no forwarding.
Commands and shells run with `sh` in the allocation's home directory. Runs in a process forked by `launcher`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import asyncssh

from node_agent.drivers.sandbox.processes import start_ticks
from node_agent.drivers.sandbox.records import AllocationDirectory, GuestRecord, GuestState
from node_agent.drivers.sandbox.shell import Shells

LISTEN_BACKLOG = 32
LOGIN_SECONDS_MAX = 20
PORT_TRIES_MAX = 200
GONE_CHECK_SECONDS = 2.0


class _Door(asyncssh.SSHServer):
    """One connection: public keys, for one user."""

    def __init__(self, user: str, keys: asyncssh.SSHAuthorizedKeys) -> None:
        self._user = user
        self._keys = keys
        self._connection: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn

    def begin_auth(self, username: str) -> bool:
        if username == self._user and self._connection is not None:
            self._connection.set_authorized_keys(self._keys)
        return True

    def password_auth_supported(self) -> bool:
        return False

    def kbdint_auth_supported(self) -> bool:
        return False


class Events:
    """What a guest says of its start to the agent, on a descriptor that is closed when the start is over."""

    def __init__(self, descriptor: int, path: Path, boot: int) -> None:
        self._descriptor = descriptor
        self._which = {"path": str(path), "boot": boot}

    def say(self, event: str, **more: Any) -> None:
        """Write one event. Below PIPE_BUF it is never mixed with another guest's (pipe(7))."""
        os.write(self._descriptor, json.dumps({**self._which, "event": event, **more}).encode() + b"\n")

    def close(self) -> None:
        """The start is over."""
        os.close(self._descriptor)


def run_guest(path: Path, events: Events) -> None:
    """Be the guest of the directory `path` until SIGTERM; say on `events` how the start goes.

    The guest's state file is written before anything else, so that a process that finds the lock held can identify its holder.
    """
    directory = AllocationDirectory(path)
    pid = os.getpid()
    ticks = start_ticks(pid)
    if ticks is None:
        raise RuntimeError("this process is not in /proc")
    _say(directory, GuestState(pid=pid, start_ticks=ticks))
    record = directory.load()
    if record is None:
        raise RuntimeError("there is no record of what to be")
    asyncio.run(_serve(directory, record, GuestState(pid=pid, start_ticks=ticks), events))


async def _serve(directory: AllocationDirectory, record: GuestRecord, state: GuestState, events: Events) -> None:
    told_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _on_sigterm, directory, told_to_stop)
    shells = Shells(directory.home, _environment(record, directory.home))
    listener = _bind(record) if record.listens else None
    if listener is not None:
        await _listen(listener, directory, record, shells)
        port = listener.getsockname()[1]
        _say(directory, state.model_copy(update={"port": port}))
        events.say("listening", port=port)
    if record.writes_marker and listener is not None:
        directory.marker_file.write_text(f"{record.allocation_id}\n")
        events.say("ready")
    events.close()
    await _until_stop_or_gone(directory, told_to_stop)
    if listener is not None:
        listener.close()
    shells.kill_all()
    os._exit(0)


async def _until_stop_or_gone(directory: AllocationDirectory, told_to_stop: asyncio.Event) -> None:
    """Serve until SIGTERM, or until the directory is removed: no agent would stop this guest then."""
    while not told_to_stop.is_set() and directory.state_file.exists():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GONE_CHECK_SECONDS):
                await told_to_stop.wait()


async def _listen(listener: socket.socket, directory: AllocationDirectory, record: GuestRecord, shells: Shells) -> None:
    keys = asyncssh.import_authorized_keys("\n".join(record.ssh_public_keys))
    await asyncssh.listen(
        sock=listener,
        server_factory=lambda: _Door(record.login_user, keys),
        server_host_keys=[asyncssh.read_private_key(directory.host_key_file)],
        process_factory=shells.serve,
        encoding=None,
        line_editor=False,
        agent_forwarding=False,
        x11_forwarding=False,
        allow_pty=True,
        gss_host=None,
        login_timeout=LOGIN_SECONDS_MAX,
        server_version="Berth_sandbox",
    )


def _bind(record: GuestRecord) -> socket.socket:
    """A listening socket on the port it had before, or on a free one of its range. Raises OSError."""
    wanted: Sequence[int] = (
        [record.port] * 3
        if record.port is not None
        else [random.randint(record.port_first, record.port_last) for _ in range(PORT_TRIES_MAX)]
    )
    problem: OSError | None = None
    for port in wanted:
        listener = socket.socket(socket.AF_INET6 if ":" in record.host else socket.AF_INET)
        try:
            # A new port must belong to no other guest, even one that does not listen now; the earlier port is kept.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(record.port is not None))
            listener.bind((record.host, port))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.listen(LISTEN_BACKLOG)
        except OSError as error:
            listener.close()
            problem = error
        else:
            listener.setblocking(False)
            return listener
    raise problem or OSError("there is no port to listen on")


def _on_sigterm(directory: AllocationDirectory, told_to_stop: asyncio.Event) -> None:
    # The fault switch `graceful_stop_hangs` leaves this file: then only SIGKILL ends us.
    if not (directory.path / "ignore_sigterm").exists():
        told_to_stop.set()


def _environment(record: GuestRecord, home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "USER": record.login_user,
        "LOGNAME": record.login_user,
        "SHELL": "/bin/sh",
        "HOSTNAME": record.hostname,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "BERTH_ALLOCATION_ID": str(record.allocation_id),
        "CUDA_VISIBLE_DEVICES": ",".join(str(slot) for slot in record.slots),
    }


def _say(directory: AllocationDirectory, state: GuestState) -> None:
    # Renamed into place, not synced: after a power failure no guest runs.
    aside = directory.state_file.with_name(".guest.json")
    aside.write_text(state.model_dump_json())
    aside.replace(directory.state_file)
