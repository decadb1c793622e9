"""Processes of a guest: is it alive, end it, and find what it left behind. Nothing here trusts a process id alone.

A guest holds a flock on its lock file while it runs, which the kernel releases when it ends; signals go through
a pidfd (pidfd_open(2)) whose process was checked by its start time, so that a reused id is never hit.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

from node_agent.drivers.removal import StillThere
from node_agent.drivers.sandbox.records import AllocationDirectory, GuestState

ALLOCATION_VARIABLE = "BERTH_ALLOCATION_ID"
STATE_SECONDS_MAX = 5.0
KILL_SECONDS_MAX = 10.0


def start_ticks(pid: int) -> int | None:
    """When process `pid` started, in clock ticks since boot (proc(5), stat field 22); None if it is gone or a
    zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def alive(directory: AllocationDirectory) -> bool:
    """Whether a guest process runs for this directory."""
    try:
        descriptor = os.open(directory.lock_file, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


async def end_guest(directory: AllocationDirectory, grace_seconds: float) -> bool | None:
    """End the guest: SIGTERM, then after `grace_seconds` SIGKILL. Returns whether it had to be killed, or None if it
    did not run. Raises StillThere."""
    if not alive(directory):
        return None
    state = await _state_of_living(directory)
    descriptor = _open_process(state)
    if descriptor is None:
        return None
    try:
        if grace_seconds > 0:
            _send(descriptor, signal.SIGTERM)
            if await _ended(descriptor, grace_seconds):
                return False
        _send(descriptor, signal.SIGKILL)
        if not await _ended(descriptor, KILL_SECONDS_MAX):
            raise StillThere(f"guest process {state.pid} does not end")
        return True
    finally:
        os.close(descriptor)


async def end_orphans(allocation_id: UUID) -> int:
    """Kill every process that carries the allocation's id in its environment; how many there were. Raises
    StillThere."""
    deadline = asyncio.get_running_loop().time() + KILL_SECONDS_MAX
    killed: set[int] = set()
    while orphans := list(_processes_of(allocation_id)):
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        if asyncio.get_running_loop().time() > deadline:
            raise StillThere(f"processes {orphans} of allocation {allocation_id} do not end")
        await asyncio.sleep(0.01)
    return len(killed)


def has_processes(allocation_id: UUID) -> bool:
    """Whether any process carries the allocation's id in its environment."""
    return next(_processes_of(allocation_id), None) is not None


def _processes_of(allocation_id: UUID) -> Iterator[int]:
    wanted = f"{ALLOCATION_VARIABLE}={allocation_id}".encode()
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            environment = Path(entry.path, "environ").read_bytes()
        except OSError:
            continue  # gone, or another user's: those cannot be ours
        if wanted in environment.split(b"\0") and start_ticks(int(entry.name)) is not None:
            yield int(entry.name)


async def _state_of_living(directory: AllocationDirectory) -> GuestState:
    deadline = asyncio.get_running_loop().time() + STATE_SECONDS_MAX
    while (state := directory.guest_state()) is None or start_ticks(state.pid) != state.start_ticks:
        if not alive(directory):
            return state or GuestState(pid=0, start_ticks=0)
        if asyncio.get_running_loop().time() > deadline:
            raise StillThere(f"a guest runs in {directory.path.name} and has not said which process it is")
        await asyncio.sleep(0.01)
    return state


def _open_process(state: GuestState) -> int | None:
    if state.pid == 0:
        return None
    try:
        descriptor = os.pidfd_open(state.pid)
    except ProcessLookupError:
        return None
    if start_ticks(state.pid) != state.start_ticks:
        os.close(descriptor)
        return None
    return descriptor


def _send(descriptor: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(descriptor, number)


async def _ended(descriptor: int, seconds_max: float) -> bool:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, lambda: None if ended.done() else ended.set_result(None))
    try:
        async with asyncio.timeout(seconds_max):
            await ended
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
    return True
