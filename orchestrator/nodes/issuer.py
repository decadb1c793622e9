"""The issuer: signs the requests for node certificates that the listeners have recorded. Any number may run.

It has no listener but the one for metrics and health, and it alone loads the key of the node CA.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import structlog
from prometheus_client import REGISTRY, Counter, Gauge

from berth.process.health_server import serve_health
from berth.process.json_objects import JsonObject
from berth.process.poolers import pooler_behind
from orchestrator.database.schema_revision import require_schema
from orchestrator.database.transactions import Database
from orchestrator.nodes.certificates import NodeAuthority
from orchestrator.nodes.commands.deploy_issuance import issue_pending_deploy_systems
from orchestrator.nodes.commands.issuance import issue_pending
from orchestrator.nodes.issuer_settings import IssuerSettings
from orchestrator.problems import DatabaseUnavailable, Problem, RestoreInProgress

RETRY_SECONDS = 0.5

DECIDED = Counter("berth_issuer_decided_total", "Requests for certificates that this issuer has signed or refused")
FAILED = Counter("berth_issuer_failed_reads_total", "Rounds that failed, for example without a database")
LAST_ROUND = Gauge("berth_issuer_last_round_seconds", "When the last round ended without an error (Unix time)")

log = structlog.get_logger("issuer")

Decide = Callable[[Database, NodeAuthority], Awaitable[int]]
"""Decides pending requests of one kind of holders and returns how many."""


class Issuer:
    """Decides pending requests until it is stopped; a failed round is logged and repeated."""

    def __init__(
        self,
        database: Database,
        authority: NodeAuthority,
        poll_seconds: float,
        others: Sequence[Decide] = (),
        deploy_authority: NodeAuthority | None = None,
    ) -> None:
        """`others` decide requests of holders that are no nodes, after those of nodes in each round.

        Without the CA of deploy systems, their requests stay pending.
        """
        self._rounds = [(decide, authority) for decide in (issue_pending, *others)]
        if deploy_authority is not None:
            self._rounds.append((issue_pending_deploy_systems, deploy_authority))
        self._database = database
        self._poll_seconds = poll_seconds
        self._stop = asyncio.Event()
        self.works = False

    def stop(self) -> None:
        """End `run` after the transaction in progress."""
        self._stop.set()

    async def wait_for_database(self, seconds_max: float) -> None:
        """Return when the schema is there and new enough. Raises `DatabaseUnavailable` after `seconds_max`, and for a pooler."""
        deadline = time.monotonic() + seconds_max
        while not self._stop.is_set():
            try:
                await require_schema(self._database)
                return
            except DatabaseUnavailable as problem:
                if isinstance(problem, RestoreInProgress):
                    deadline = time.monotonic() + seconds_max
                elif time.monotonic() > deadline or pooler_behind(problem) is not None:
                    raise
                log.info("waiting", for_what="database", why=problem.detail)
                await self._pause(RETRY_SECONDS)

    async def run(self) -> None:
        """Decide requests as they are recorded."""
        while not self._stop.is_set():
            try:
                decided = sum([await decide(self._database, authority) for decide, authority in self._rounds])
                self._note_round(decided)
                pause = 0.0 if decided else self._poll_seconds
            except Problem as problem:
                self.works = False
                FAILED.inc()
                log.warning("round_failed", why=problem.detail)
                pause = RETRY_SECONDS
            await self._pause(pause)

    def _note_round(self, decided: int) -> None:
        self.works = True
        LAST_ROUND.set_to_current_time()
        if decided:
            DECIDED.inc(decided)
            log.info("decided", requests=decided)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)

    def report(self) -> JsonObject:
        """Return the body of `/ok`: whether the last round succeeded."""
        return {"ok": self.works}


async def run_issuer(settings: IssuerSettings, issuer: Issuer) -> None:
    """Serve metrics and health, and decide requests until `issuer` is stopped. Raises CannotListen, `DatabaseUnavailable`."""
    with serve_health(settings.metrics_host, settings.metrics_port, REGISTRY, issuer.report):
        await issuer.wait_for_database(settings.startup_seconds_max)
        log.info("serving", listen="issuer")
        await issuer.run()
