"""The health of a worker process, for its port of metrics and health."""

from __future__ import annotations

from contextlib import AbstractContextManager

from prometheus_client import REGISTRY

from berth.process.health_server import serve_health


class Health:
    """Whether the worker does its work: it has started, and it takes events from the log."""

    def __init__(self) -> None:
        self.started = False
        self.consuming = False

    @property
    def ok(self) -> bool:
        """Whether the process is worth keeping. Waiting for NATS to come back is no reason for a restart."""
        return self.started

    def report(self) -> dict[str, object]:
        """Return the body of `/ok`."""
        return {"ok": self.ok, "started": self.started, "consuming": self.consuming}


def served(host: str, port: int | None, health: Health) -> AbstractContextManager[int | None]:
    """Serve metrics and health during the context. Raises CannotListen if the port cannot be used."""
    return serve_health(host, port, REGISTRY, health.report)
