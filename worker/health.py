"""The health of a process, for its port of metrics and health."""

from __future__ import annotations

from contextlib import AbstractContextManager

from prometheus_client import REGISTRY

from berth.process.health_server import serve_health
from berth.process.json_objects import JsonObject


class Health:
    """Whether the process has started. Waiting for a server to come back is no reason for a restart."""

    def __init__(self) -> None:
        self.started = False
        self.waiting_for: str | None = None
        """Why it has not started yet, in a sentence."""

    @property
    def ok(self) -> bool:
        """Whether the process is worth keeping."""
        return self.started

    def report(self) -> JsonObject:
        """Return the body of `/ok`."""
        report: JsonObject = {"ok": self.ok, "started": self.started}
        return report if self.started or self.waiting_for is None else {**report, "waiting_for": self.waiting_for}


class WorkerHealth(Health):
    """The health of a worker, and whether it takes events from the log."""

    def __init__(self) -> None:
        super().__init__()
        self.consuming = False

    def report(self) -> JsonObject:
        """Return the body of `/ok`."""
        return {**super().report(), "consuming": self.consuming}


def served(host: str, port: int | None, health: Health) -> AbstractContextManager[int | None]:
    """Serve metrics and health during the context. Raises CannotListen if the port cannot be used."""
    return serve_health(host, port, REGISTRY, health.report)
