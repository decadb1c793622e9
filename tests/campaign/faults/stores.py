"""Faults of what servers and agents write to: no room, or nothing left."""

from __future__ import annotations

import resource
import shutil

from tests.campaign.faults.act import Act
from tests.campaign.schedule import Fault
from tests.campaign.stage import Stage

FILE_BYTES_MAX = 1
"""To NATS and to SQLite a file that may not grow is a disk that is full."""


class Full(Act):
    """There is no room. PostgreSQL's small file system has its size reduced; NATS and agents may not let a file grow.

    PostgreSQL ends itself when it cannot write WAL, an agent when it cannot write its journal; NATS stores nothing until it is
    restarted (docs/reference/events.md). So an operator makes room and starts what ended; NATS is restarted in any case.
    """

    def __init__(self, stage: Stage, fault: Fault) -> None:
        super().__init__(stage, fault)
        self._bounds: tuple[int, tuple[int, int]] | None = None

    def begin(self) -> None:
        """Leave no room."""
        if self.fault.target == "postgres":
            assert self.stage.disk is not None, "PostgreSQL has a small file system"
            self.stage.disk.fill()
            return
        pid = self.stage.pid_of(self.fault.target)
        soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        self._bounds = pid, (soft, hard)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, hard))

    def end(self) -> None:
        """Make room, and start what ended or has to be restarted."""
        target = self.fault.target
        if target == "postgres":
            assert self.stage.disk is not None
            self.stage.disk.give_room()
        elif self._bounds is not None:
            pid, bounds = self._bounds
            if not self.stage.ends(target):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, bounds)
            self._bounds = None
            if target == "nats":
                self.stage.stop(target)
        self.stage.start(target)


class Wipe(Act):
    """NATS dies with its disk. The relay makes the stream anew from the log."""

    def begin(self) -> None:
        """Kill it and delete what it stored."""
        server = self.stage.server(self.fault.target)
        server.kill()
        shutil.rmtree(server.directory / "jetstream", ignore_errors=True)

    def end(self) -> None:
        """Start it with nothing."""
        self.stage.start(self.fault.target)
