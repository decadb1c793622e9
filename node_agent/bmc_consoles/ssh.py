"""The connection to a BMC's SSH server for one session: its host key is pinned, and its one channel is the console.

The channel begins with the console: with the command that the BMC announces to enter it, or in an SSH server that serves nothing
else. No command is typed, so that the end of the console is the end of the channel, and no shell is behind it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import asyncssh
import structlog

from node_agent.bmc_consoles.hot_keys import HotKeyFilter, Keys
from node_agent.consoles.consoles import ConsoleRefused

log = structlog.get_logger("node_agent.bmc_consoles")

OPEN_SECONDS_MAX: Final = 30.0
PIECE_BYTES: Final = 16 * 1024
WINDOW_BYTES: Final = 128 * 1024
"""What the BMC may send before it is read."""
QUIET_SECONDS: Final = 0.3
REPLAY_SECONDS_MAX: Final = 2.0
"""Some BMCs begin with what was printed before, and not at once. So long is waited for its first byte; from it on, all is dropped
until nothing comes for `QUIET_SECONDS`, at most for so long again."""
CLOSE_SECONDS_MAX: Final = 2.0
UNACKNOWLEDGED_SECONDS_MAX: Final = 10.0
"""How long the kernel keeps what a BMC does not take, at most: a frozen process does not take it back."""
KEEP_ALIVE_SECONDS: Final = 10
KEEP_ALIVE_PROBES: Final = 3
TERMINAL: Final = "vt100"
TERMINAL_SIZE: Final = (80, 24)

Guard = Callable[[], None]
"""Raises if nothing may be sent or passed on any more."""


@dataclass(frozen=True)
class SshAccess:
    """How the SSH server of a BMC is reached, and the one host key that is trusted. `command`: empty for a server that is the
    console. `unacknowledged_seconds`: after so long without progress the connection is gone."""

    host: str
    port: int
    username: str
    password: str = field(repr=False)
    host_key: str
    command: str
    keys: Keys
    unacknowledged_seconds: float = UNACKNOWLEDGED_SECONDS_MAX


class _Client(asyncssh.SSHClient):
    """Trusts no key but the pinned one, and remembers the other one that was shown."""

    def __init__(self) -> None:
        self.seen: str | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        """Called for a key that is not the pinned one."""
        self.seen = key.get_fingerprint()
        return False


_DISCARDS: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: the kernel's queue is discarded with the connection, which ends by a reset."""


class SshConsole:
    """An open console: bytes of `descriptor` are those of the channel. Both ends close together."""

    def __init__(self, connection: asyncssh.SSHClientConnection, channel: asyncssh.SSHClientProcess[bytes]) -> None:
        self._connection = connection
        self._channel = channel
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._pumps: list[asyncio.Task[None]] = []
        self.replayed = 0
        self.keys_dropped = 0

    @property
    def descriptor(self) -> int:
        """What the session reads and writes."""
        return self._theirs.fileno()

    async def start(self, keys: Keys, guard: Guard) -> None:
        """Drop what the BMC replays, then pass bytes both ways."""
        await self._drop_replay()
        self._pumps = [
            asyncio.create_task(self._from_bmc(guard)), asyncio.create_task(self._to_bmc(HotKeyFilter(keys), guard))
        ]  # fmt: skip

    async def cut(self) -> None:
        """End the channel and the connection at once; nothing is waited for at the BMC. The descriptor reads as ended."""
        self._end()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await self._connection.wait_closed()

    async def close(self) -> None:
        """Cut it, and close the descriptor, which is not used any more."""
        await self.cut()
        self._ours.close()
        self._theirs.close()

    async def _drop_replay(self) -> None:
        loop = asyncio.get_running_loop()
        until, quiet = loop.time() + REPLAY_SECONDS_MAX, REPLAY_SECONDS_MAX
        with suppress(TimeoutError):
            while (left := until - loop.time()) > 0:
                async with asyncio.timeout(min(quiet, left)):
                    data = await self._channel.stdout.read(PIECE_BYTES)
                if not data:
                    return
                if not self.replayed:
                    until, quiet = loop.time() + REPLAY_SECONDS_MAX, QUIET_SECONDS
                self.replayed += len(data)

    async def _from_bmc(self, guard: Guard) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await self._channel.stdout.read(PIECE_BYTES):
                guard()
                await loop.sock_sendall(self._ours, data)
        except (OSError, asyncssh.Error) as error:
            log.info("bmc_console_lost", why=str(error) or type(error).__name__)
        finally:
            self._end()

    async def _to_bmc(self, keys: HotKeyFilter, guard: Guard) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(self._ours, PIECE_BYTES):
                guard()
                self._channel.stdin.write(keys.passed(data))
                self.keys_dropped = keys.dropped
                await self._channel.stdin.drain()
        except (OSError, asyncssh.Error) as error:
            log.info("bmc_console_lost", why=str(error) or type(error).__name__)
        finally:
            self._end()

    def _end(self) -> None:
        """The session reads the end of the console. Whatever comes after it is not passed on, and what the BMC has not taken yet
        is not sent to it."""
        _set(self._connection, socket.SOL_SOCKET, socket.SO_LINGER, _DISCARDS)
        self._connection.abort()
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)


async def open_console(access: SshAccess) -> SshConsole:
    """Connect, prove the host key, log in by password, and open the channel. Raises ConsoleRefused."""
    client = _Client()
    connection: asyncssh.SSHClientConnection | None = None
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            connection = await _connected(access, client)
            milliseconds = max(1, int(access.unacknowledged_seconds * 1_000))
            _set(connection, socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
            channel = await connection.create_process(
                access.command or None, term_type=TERMINAL, term_size=TERMINAL_SIZE, encoding=None, window=WINDOW_BYTES,
                stderr=asyncssh.STDOUT,
            )  # fmt: skip
        return SshConsole(connection, channel)
    except BaseException as error:
        if connection is not None:
            connection.abort()
        if isinstance(error, OSError | asyncssh.Error | ValueError):
            raise _refusal(error, client.seen) from error
        raise


def _set(connection: asyncssh.SSHClientConnection, level: int, name: int, value: int | bytes) -> None:
    """Set an option of the socket, if the connection still has one."""
    found = connection.get_extra_info("socket")
    with suppress(OSError):
        if found is not None:
            found.setsockopt(level, name, value)


async def _connected(access: SshAccess, client: _Client) -> asyncssh.SSHClientConnection:
    pinned = asyncssh.import_public_key(access.host_key)
    # Nothing of the environment: no configuration, agent, key, authority or known host of the account that the agent runs as.
    connection, _ = await asyncssh.create_connection(
        lambda: client, access.host, access.port, username=access.username, password=access.password,
        known_hosts=([pinned], [], []), client_keys=None, agent_path=None, config=None, public_key_auth=False,
        host_based_auth=False, gss_auth=False, gss_kex=False, login_timeout=OPEN_SECONDS_MAX,
        x509_trusted_certs=None, x509_trusted_cert_paths=None,
        keepalive_interval=KEEP_ALIVE_SECONDS, keepalive_count_max=KEEP_ALIVE_PROBES,
    )  # fmt: skip
    return connection


def _refusal(error: Exception, seen: str | None) -> ConsoleRefused:
    """Why the console was not opened."""
    if seen is not None or isinstance(error, asyncssh.HostKeyNotVerifiable):
        return ConsoleRefused("bmc_host_key_changed", f"the BMC's SSH server shows the key {seen}, not the pinned one")
    if isinstance(error, asyncssh.PermissionDenied):
        return ConsoleRefused("bmc_credentials_refused", "the BMC's SSH server refuses the account")
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return ConsoleRefused(
            "bmc_host_key_changed", f"no key of the pinned type, or no secure algorithm, is offered: {error}"
        )
    if isinstance(error, asyncssh.ChannelOpenError | asyncssh.ChannelListenError):
        return ConsoleRefused(
            "bmc_console_refused", f"the BMC refuses the console, which another client may have: {error}"
        )
    if isinstance(error, asyncssh.Error):
        return ConsoleRefused("bmc_console_refused", f"the SSH connection was ended: {error}")
    return ConsoleRefused("bmc_unreachable", str(error) or type(error).__name__)
