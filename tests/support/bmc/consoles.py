"""The SSH server of a stub BMC: a serial console that repeats each line, and the BMC's command line behind its hot keys.

`print N` prints N bytes. What reaches the console, and what reaches the command line, is kept for the test.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import termios
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from node_agent.drivers.ssh import new_host_key
from tests.support.bmc.machine import StubMachine

Process = asyncssh.SSHServerProcess[bytes]
PROMPT = b"BMC> "
RECEIVE_BYTES = 4096
"""What its kernel takes without it, about: less than one piece that the agent passes on."""


@dataclass
class StubConsole:
    """`announced`: `SerialConsole.SSH` of the system. Each fault may be set at any time."""

    machine: StubMachine
    private_key: bytes = field(default=b"", repr=False)
    host_key: str = ""
    port: int = 0
    announced: dict[str, Any] = field(default_factory=dict)
    hot_keys: bytes = b"~."
    sessions_max: int = 1
    replay: bytes = b""
    replay_delay: float = 0.0  # seconds before it
    refuses_password: bool = False
    hangs: bool = False  # no greeting
    serial_port: Path | None = None  # the socket of an emulated machine's serial port, which is the console then
    returns_to_shell: bool = False  # the console ends, and the channel goes on with the command line
    received: bytearray = field(default_factory=bytearray)
    commands: bytearray = field(default_factory=bytearray)
    entered: list[str | None] = field(default_factory=list)
    logins: list[bool] = field(default_factory=list)
    open: list[Process] = field(default_factory=list)
    opened: int = 0
    printed: int = 0

    def __post_init__(self) -> None:
        """A new host key."""
        self.private_key, self.host_key = new_host_key()

    def document(self) -> dict[str, Any]:
        """What the system says of its console."""
        ssh = {
            "ServiceEnabled": True, "Port": self.port, "SharedWithManagerCLI": False,
            "HotKeySequenceDisplay": "Press ~. to exit console", **self.announced,
        }  # fmt: skip
        return {"MaxConcurrentSessions": self.sessions_max, "SSH": {k: v for k, v in ssh.items() if v is not None}}

    def die(self) -> None:
        """Every connection breaks."""
        for process in list(self.open):
            _connection(process).abort()

    def stop_reading(self) -> None:
        """What is sent from now on stays where it is sent."""
        for process in self.open:
            _transport(process).pause_reading()

    def read_on(self) -> None:
        """Read what has come, and what comes."""
        for process in self.open:
            if (transport := _transport(process)) is not None:
                transport.resume_reading()

    def has_unread(self) -> bool:
        """Whether something has come that is not read."""
        waiting = array("i", [0])
        for process in self.open:
            fcntl.ioctl(_transport(process).get_extra_info("socket").fileno(), termios.FIONREAD, waiting)
        return waiting[0] > 0

    def print(self, data: bytes) -> None:
        """The machine prints this now."""
        for process in self.open:
            process.stdout.write(data)

    async def serve(self, process: Process) -> None:
        """One channel."""
        self.open.append(process)
        self.opened += 1
        self.entered.append(process.command)
        try:
            await self._quiet()
            process.stdout.write(self.replay)
            await (self._console(process) if self.serial_port is None else self._bridge(process, self.serial_port))
            if self.returns_to_shell:
                await self._shell(process)
        except (OSError, asyncssh.Error):
            pass
        finally:
            self.open.remove(process)
            with suppress(OSError, asyncssh.Error):
                process.exit(0)

    async def _quiet(self) -> None:
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(self.replay_delay, over.set)
        await over.wait()

    async def _console(self, process: Process) -> None:
        line = b""
        while data := await process.stdin.read(4096):
            self.received += data
            line += data
            if self.hot_keys and self.hot_keys in bytes(self.received[-len(data) - len(self.hot_keys) :]):
                return
            while (end := min((line.find(one) for one in (b"\r", b"\n") if one in line), default=-1)) >= 0:
                said, line = line[:end], line[end + 1 :]
                await self._answer(process, said)

    async def _bridge(self, process: Process, serial_port: Path) -> None:
        """The machine's serial port, until one side ends."""
        reader, writer = await asyncio.open_unix_connection(serial_port)

        async def typed() -> None:
            while data := await process.stdin.read(4096):
                self.received += data
                writer.write(data)
                await writer.drain()

        async def printed() -> None:
            while data := await reader.read(4096):
                process.stdout.write(data)
                await process.stdout.drain()

        both = [asyncio.create_task(typed()), asyncio.create_task(printed())]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for one in both:
            one.cancel()
        writer.close()

    async def _answer(self, process: Process, said: bytes) -> None:
        if said.startswith(b"print "):
            left = int(said[6:])
            while left > 0:
                process.stdout.write(b"x" * min(left, 65_536))
                self.printed += min(left, 65_536)
                left -= 65_536
                await process.stdout.drain()
            process.stdout.write(b"printed\r\n")
        elif said == b"exit":
            raise ConnectionResetError
        else:
            process.stdout.write(b"said " + said + b"\r\n")

    async def _shell(self, process: Process) -> None:
        process.stdout.write(PROMPT)
        while data := await process.stdin.read(4096):
            self.commands += data


def _connection(process: Process) -> Any:
    # Not of the channel itself: a lost connection takes it away before the process ends.
    return process.get_extra_info("connection")


def _transport(process: Process) -> Any:
    return _connection(process)._transport


class _Server(asyncssh.SSHServer):
    def __init__(self, console: StubConsole) -> None:
        self._console = console

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        is_right = not self._console.refuses_password and self._console.machine.login(username, password)
        self._console.logins.append(is_right)
        return is_right

    def session_requested(self) -> Any:
        if len(self._console.open) >= self._console.sessions_max:
            return False
        return asyncssh.SSHServerProcess(self._console.serve, None, 3, False)


@asynccontextmanager
async def console_served(console: StubConsole, host_key: bytes | None = None) -> AsyncIterator[StubConsole]:
    """Serve the console on 127.0.0.1 until the block ends; `host_key`: another private key than the announced one."""
    silent: list[asyncio.StreamWriter] = []

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        console.opened += 1
        silent.append(writer)

    if console.hangs:
        waiting = await asyncio.start_server(hang, "127.0.0.1", 0)
        console.port = waiting.sockets[0].getsockname()[1]
        try:
            yield console
        finally:
            waiting.close()
            for writer in silent:
                writer.transport.abort()
        return
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    server = await asyncssh.listen(
        sock=listening, server_factory=lambda: _Server(console), encoding=None, line_editor=False,
        server_host_keys=[asyncssh.import_private_key(host_key or console.private_key)],
    )  # fmt: skip
    console.port = server.get_port()
    try:
        yield console
    finally:
        console.die()
        server.close()
        await server.wait_closed()
