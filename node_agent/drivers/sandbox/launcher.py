"""The launcher: a small process that has asyncssh imported already and forks guests, a few milliseconds each.

The agent itself is not forked: it has threads, sockets and a key. The launcher has one thread and two pipes: a line
of JSON on standard input asks for a guest (`{"path": ..., "boot": number}`), lines on standard output say what becomes of
it, with the same number. It
ends when the agent does, and leaves its guests running. While it runs it holds a lock on `launcher.lock`, which
guests do not inherit: once the lock is free, no guest of an earlier agent can come into being any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import selectors
import signal
import sys
import traceback
from pathlib import Path

from node_agent.drivers.sandbox.guest import Events, run_guest
from node_agent.drivers.sandbox.records import AllocationDirectory

STANDARD_INPUT, STANDARD_OUTPUT = 0, 1
READ_BYTES = 65_536


class Launcher:
    """Forks a guest for each request and reaps them."""

    def __init__(self, lock_file: Path) -> None:
        """Take the launcher's lock. Raises BlockingIOError if another launcher runs."""
        self._lock = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._guests: dict[int, tuple[str, int]] = {}
        self._wake_reading, self._wake_writing = os.pipe()
        for descriptor in (self._wake_reading, self._wake_writing):
            os.set_blocking(descriptor, False)

    def run(self) -> None:
        """Serve until standard input ends."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.set_wakeup_fd(self._wake_writing, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(STANDARD_INPUT, selectors.EVENT_READ)
        selector.register(self._wake_reading, selectors.EVENT_READ)
        pending = b""
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if self._wake_reading in ready:
                os.read(self._wake_reading, READ_BYTES)
                self._reap()
            if STANDARD_INPUT in ready:
                data = os.read(STANDARD_INPUT, READ_BYTES)
                if not data:
                    return
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    request = json.loads(line)
                    self._launch(Path(request["path"]), request["boot"])

    def _launch(self, path: Path, boot: int) -> None:
        try:
            lock = os.open(AllocationDirectory(path).lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            self._tell(path=str(path), boot=boot, event="problem", detail=str(error))
            return
        try:
            # Shared with the child by fork; ours is closed below, so from then on the child alone holds it.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            pid = os.fork()
            if pid == 0:
                self._become_guest(path, boot)
            self._guests[pid] = (str(path), boot)
        except OSError as error:
            self._tell(path=str(path), boot=boot, event="problem", detail=str(error))
        finally:
            os.close(lock)

    def _become_guest(self, path: Path, boot: int) -> None:
        """Runs in the child and never returns."""
        status, events = 1, os.dup(STANDARD_OUTPUT)
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self._lock, self._wake_reading, self._wake_writing):
                os.close(descriptor)
            _redirect_to(Path(os.devnull), os.O_RDWR, (STANDARD_INPUT, STANDARD_OUTPUT))
            _redirect_to(AllocationDirectory(path).log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, (2,))
            run_guest(path, Events(events, path, boot))
            status = 0
        except BaseException as error:  # noqa: BLE001 - nothing may return into the launcher's loop
            with contextlib.suppress(OSError):
                detail = f"{type(error).__name__}: {error}"[:500]
                Events(events, path, boot).say("problem", detail=detail)
            with contextlib.suppress(OSError):  # the disk of the log may be full
                traceback.print_exc()
        finally:
            os._exit(status)

    def _reap(self) -> None:
        while self._guests:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            guest = self._guests.pop(pid, None)
            if guest is not None:
                path, boot = guest
                self._tell(path=path, boot=boot, event="ended", status=os.waitstatus_to_exitcode(status))

    def _tell(self, **event: object) -> None:
        os.write(STANDARD_OUTPUT, json.dumps(event).encode() + b"\n")


def _redirect_to(path: Path, flags: int, descriptors: tuple[int, ...]) -> None:
    opened = os.open(path, flags, 0o600)
    for descriptor in descriptors:
        os.dup2(opened, descriptor)
    os.close(opened)


def main() -> int:
    """`python -m node_agent.drivers.sandbox.launcher <lock file>`; started by the agent, not by people."""
    launcher = Launcher(Path(sys.argv[1]))
    # What is imported stays as it is: without this the first collection in each guest would copy all of it.
    gc.collect()
    gc.freeze()
    launcher.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
