"""The health of a process, for its port of metrics and health, and whether the servers that it needs answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager

import structlog
from prometheus_client import REGISTRY

from berth.process.health_server import serve_health
from berth.process.json_objects import JsonObject
from orchestrator.database.schema_revision import require_schema
from orchestrator.database.transactions import Database

ROUND_SECONDS = 2.0
ANSWER_SECONDS_MAX = 5.0
"""A server that has not answered for so long counts as one that does not answer."""

log = structlog.get_logger()

Question = Callable[[], Awaitable[None]]
"""Returns if the server answers, and raises otherwise."""


class Health:
    """Whether the process has started and reaches its servers: readiness.

    Waiting for a server that is to come back is no reason for a restart, which `/live` decides.
    """

    def __init__(self) -> None:
        self.started = False
        self.waiting_for: str | None = None
        """Why it has not started yet, in a sentence."""
        self.unreachable: tuple[str, ...] = ()
        """The servers that did not answer when they were asked last."""

    @property
    def ok(self) -> bool:
        """Whether the process can do its work now."""
        return self.started and not self.unreachable

    def report(self) -> JsonObject:
        """Return the body of `/ok`."""
        report: JsonObject = {"ok": self.ok, "started": self.started}
        if not self.started and self.waiting_for is not None:
            report["waiting_for"] = self.waiting_for
        if self.unreachable:
            report["unreachable"] = list(self.unreachable)
        return report


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


async def examine_for_ever(
    health: Health, questions: Mapping[str, Question], round_seconds: float = ROUND_SECONDS
) -> None:
    """Ask every server at once, round after round, and keep in `health` which ones do not answer. Never ends by itself."""
    while True:
        found = await asyncio.gather(*(_answers(question) for question in questions.values()))
        silent = tuple(server for server, answers in zip(questions, found, strict=True) if not answers)
        if silent != health.unreachable:
            log.info("servers_reached" if not silent else "servers_unreachable", unreachable=list(silent))
        health.unreachable = silent
        await asyncio.sleep(round_seconds)


async def _answers(question: Question) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await question()
    except Exception:  # noqa: BLE001 - a question that fails, for whatever reason, has no answer
        return False
    return True


def ask_database(database: Database) -> Question:
    """Whether the database answers, has the schema, and no restore is open."""
    return lambda: require_schema(database)
