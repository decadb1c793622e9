"""What a tenant runs in a sandbox guest: `sh -c <command>`, or a shell, with or without a terminal.

Every command runs in a separate session, so that a signal reaches all of it; the guest is a subreaper (prctl(2)), so that
whatever a command leaves behind stays below the guest and ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import pty
import signal
import struct
import termios
from pathlib import Path

import asyncssh

CHUNK_BYTES = 65_536
PR_SET_CHILD_SUBREAPER = 36
KILL_ROUNDS_MAX = 50

Process = asyncssh.SSHServerProcess[bytes]


class Shells:
    """Runs tenants' commands in `home`."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self._home = home
        self._environment = environment
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    async def serve(self, process: Process) -> None:
        """One session, from its request to its exit status."""
        command = ["/bin/sh", "-c", process.command] if process.command else ["/bin/sh", "-i"]
        terminal = process.get_terminal_type()
        try:
            if terminal is None:
                await self._without_terminal(process, command)
            else:
                await self._with_terminal(process, command, terminal)
        except (OSError, asyncssh.Error) as error:
            with contextlib.suppress(OSError, asyncssh.Error):
                process.stderr.write(f"{error}\n".encode())
                process.exit(126)

    def kill_all(self) -> None:
        """Kill every process below this one, those that daemons left included."""
        for _ in range(KILL_ROUNDS_MAX):
            children = _children()
            if not children:
                return
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for pid in children:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)

    async def _without_terminal(self, process: Process, command: list[str]) -> None:
        child = await asyncio.create_subprocess_exec(
            *command, cwd=self._home, env=self._environment, start_new_session=True,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        typing = asyncio.create_task(_pump_in(process, child.stdin, child.pid, None))
        outputs = [
            asyncio.create_task(_pump_out(child.stdout, process.stdout)),
            asyncio.create_task(_pump_out(child.stderr, process.stderr)),
        ]
        await _until_over(process, child, outputs)
        typing.cancel()
        _exit(process, await child.wait())

    async def _with_terminal(self, process: Process, command: list[str], terminal: str) -> None:
        master, slave = pty.openpty()
        _resize(master, process.get_terminal_size())
        try:
            child = await asyncio.create_subprocess_exec(
                *command, cwd=self._home, env={**self._environment, "TERM": terminal}, start_new_session=True,
                stdin=slave, stdout=slave, stderr=slave, preexec_fn=_take_terminal,
            )  # fmt: skip
        finally:
            os.close(slave)
        loop = asyncio.get_running_loop()
        writing, protocol = await loop.connect_write_pipe(
            asyncio.streams.FlowControlMixin, os.fdopen(os.dup(master), "wb", 0)
        )
        typing = asyncio.create_task(
            _pump_in(process, asyncio.StreamWriter(writing, protocol, None, loop), child.pid, master)
        )
        await _until_over(process, child, [asyncio.create_task(_pump_terminal(master, process.stdout))])
        typing.cancel()
        writing.close()
        os.close(master)
        _exit(process, await child.wait())


async def _until_over(process: Process, child: asyncio.subprocess.Process, outputs: list[asyncio.Task[None]]) -> None:
    """Until all output is passed on, or the client is gone; then what is left of the command is ended."""
    over = asyncio.gather(*outputs, child.wait())
    gone = asyncio.create_task(process.wait_closed())
    await asyncio.wait((over, gone), return_when=asyncio.FIRST_COMPLETED)
    if not over.done():
        _signal(child.pid, signal.SIGHUP)
        _signal(child.pid, signal.SIGKILL)
        over.cancel()
    gone.cancel()
    await asyncio.wait((over, gone))


async def _pump_out(reader: asyncio.StreamReader, writer: asyncssh.SSHWriter[bytes]) -> None:
    # A terminal whose last process has ended reads as EIO; a client that has gone, as a broken pipe.
    with contextlib.suppress(OSError, asyncssh.Error):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()


async def _pump_terminal(master: int, writer: asyncssh.SSHWriter[bytes]) -> None:
    # Not through a StreamReader: the EIO with which a terminal ends would make it drop what it has not passed on yet.
    with contextlib.suppress(OSError, asyncssh.Error):
        while True:
            await _until_readable(master)
            try:
                writer.write(os.read(master, CHUNK_BYTES))
            except BlockingIOError:
                continue
            await writer.drain()


async def _until_readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if readable.done() else readable.set_result(None))
    try:
        await readable
    finally:
        loop.remove_reader(descriptor)


async def _pump_in(process: Process, writer: asyncio.StreamWriter, pid: int, terminal: int | None) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        while True:
            try:
                data = await process.stdin.read(CHUNK_BYTES)
            except asyncssh.TerminalSizeChanged as change:
                if terminal is not None:
                    _resize(terminal, (change.width, change.height, change.pixwidth, change.pixheight))
                continue
            except asyncssh.BreakReceived:
                continue
            except asyncssh.SignalReceived as received:
                _signal(pid, signal.Signals[f"SIG{received.signal}"])
                continue
            if not data:
                break
            writer.write(data)
            await writer.drain()
    if terminal is None:
        writer.close()


def _exit(process: Process, status: int) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        if status < 0:
            process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
        else:
            process.exit(status)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _take_terminal() -> None:
    # Runs in the child, after setsid: the terminal becomes its controlling one (tty_ioctl(4)).
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    width, height, pixels_wide, pixels_high = size
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, pixels_wide, pixels_high))


def _children() -> list[int]:
    """Processes whose parent is this one (proc(5), children)."""
    pid = os.getpid()
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found
