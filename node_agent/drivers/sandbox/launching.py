"""The agent's side of the launcher: asks for guests and hears what becomes of them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import json
import os
import signal
import sys
from pathlib import Path

import structlog

from berth.process.json_objects import JsonObject
from node_agent.problems import CannotStart

log = structlog.get_logger("node_agent.sandbox")

PREDECESSOR_SECONDS_MAX = 5.0
STOP_SECONDS_MAX = 3.0


class GuestProblem(Exception):
    """The guest, or the launcher, could not do what was asked."""


class Boot:
    """One guest's start: futures that are done when it listens and when it has written its marker."""

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.number = number
        loop = asyncio.get_running_loop()
        self.listening: asyncio.Future[int] = loop.create_future()
        self.ready: asyncio.Future[None] = loop.create_future()

    def fail(self, detail: str) -> None:
        """The guest has ended, or never began."""
        for future in (self.listening, self.ready):
            if not future.done():
                future.set_exception(GuestProblem(detail))
                future.exception()  # retrieved, because no task may be awaiting it

    async def why_ended(self, seconds_max: float) -> str | None:
        """Why the guest has ended; None if it is up, or nothing is heard of it for so long."""
        try:
            async with asyncio.timeout(seconds_max):
                await asyncio.shield(self.ready)
        except GuestProblem as problem:
            return str(problem)
        except TimeoutError:
            pass
        return None


class GuestLauncher:
    """One launcher process, started when the first guest is wanted and again if it has died."""

    def __init__(self, lock_file: Path) -> None:
        self._lock_file = lock_file
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None
        self._boots: dict[int, Boot] = {}
        self._numbers = itertools.count(1)
        self._starting = asyncio.Lock()

    async def wait_for_predecessor(self) -> None:
        """Return when no launcher of an earlier agent is left. It ends by itself when its agent has; raises CannotStart
        if it does not."""
        deadline = asyncio.get_running_loop().time() + PREDECESSOR_SECONDS_MAX
        while not self._lock_is_free():
            if asyncio.get_running_loop().time() > deadline:
                raise CannotStart(
                    f"an earlier agent's launcher still runs; end the process that holds {self._lock_file}"
                )
            await asyncio.sleep(0.02)

    async def launch(self, path: Path) -> Boot:
        """Ask for the guest of the allocation directory `path`. Raises GuestProblem if no launcher can be had."""
        async with self._starting:
            stdin = await self._launcher()
        # By number, not by path: the end of an earlier guest of the same directory may be heard only now.
        boot = Boot(path, next(self._numbers))
        self._boots[boot.number] = boot
        try:
            stdin.write(json.dumps({"path": str(path), "boot": boot.number}).encode() + b"\n")
            await stdin.drain()
        except OSError as error:
            self.forget(path)
            raise GuestProblem(f"the launcher does not listen: {error}") from error
        return boot

    def forget(self, path: Path) -> None:
        """No more is wanted to be known of the starts of this directory's guest."""
        self._boots = {number: boot for number, boot in self._boots.items() if boot.path != path}

    async def stop(self) -> None:
        """End the launcher; guests that still run go on."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS_MAX):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        if self._listening is not None:
            self._listening.cancel()

    async def _launcher(self) -> asyncio.StreamWriter:
        if self._process is None or self._process.returncode is not None:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "node_agent.drivers.sandbox.launcher", str(self._lock_file),
                    stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise GuestProblem(f"the launcher cannot be started: {error}") from error
            assert self._process.stdout is not None
            self._listening = asyncio.create_task(self._listen(self._process, self._process.stdout))
            self._listening.add_done_callback(_end_process_if_dead)
        assert self._process.stdin is not None
        return self._process.stdin

    async def _listen(self, process: asyncio.subprocess.Process, stdout: asyncio.StreamReader) -> None:
        while line := await stdout.readline():
            self._hear(json.loads(line))
        log.warning("launcher_ended", status=await process.wait())
        for boot in self._boots.values():
            boot.fail("the launcher ended")

    def _hear(self, event: JsonObject) -> None:
        boot = self._boots.get(event["boot"])
        match event["event"], boot:
            case "listening", Boot() if not boot.listening.done():
                boot.listening.set_result(int(event["port"]))
            case "ready", Boot() if not boot.ready.done():
                boot.ready.set_result(None)
            case "problem", Boot():
                boot.fail(str(event["detail"]))
            case "ended", Boot():
                boot.fail(f"the guest ended with status {event['status']}")
            case "ended", None if event["status"] not in (0, -signal.SIGKILL):
                log.warning("guest_ended", path=Path(event["path"]).name, status=event["status"])

    def _lock_is_free(self) -> bool:
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            return False
        finally:
            os.close(descriptor)


def _end_process_if_dead(listening: asyncio.Task[None]) -> None:
    """Stop listening for guests that end; the next agent process finds them again."""
    if not listening.cancelled() and listening.exception() is not None:
        log.critical("the launcher is no longer heard; ending the process", exc_info=listening.exception())
        raise SystemExit(1)
