"""`python -m orchestrator [--listen public|node|both|issuer]`: serve until stopped."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time

import structlog
import uvicorn
import uvloop
from prometheus_client import disable_created_metrics
from pydantic import ValidationError

from berth.process.health_server import CannotListen
from berth.process.limits.open_files import raise_open_files
from berth.process.logs import configure_logging
from berth.process.poolers import pooler_behind
from orchestrator import app as application
from orchestrator.database.schema_revision import require_schema
from orchestrator.edge.console_listener import ConsoleListener
from orchestrator.edge.ending.orderly_stop import OrderlyStop
from orchestrator.edge.listeners import metrics_server, node_server, public_server
from orchestrator.heap import collect_when_due, settle_heap
from orchestrator.http.services import Services
from orchestrator.nodes.issuer import run_issuer
from orchestrator.nodes.issuer_settings import IssuerSettings
from orchestrator.operations.gate_settings import GateSettings
from orchestrator.problems import DatabaseUnavailable, Problem, RestoreInProgress
from orchestrator.settings import Settings
from orchestrator.tracing import start_tracing

KEYS_OF_OTHERS = {
    "BERTH_NODE_CA_KEY_FILE": "only `--listen issuer` may have the key of the node CA",
    "BERTH_DEPLOY_CA_KEY_FILE": "only `--listen issuer` may have the key of the CA of deploy systems",
    "BERTH_TASK_SIGNING_KEY_FILE": "only the worker may have the key that signs tasks",
}
"""Variables with which no listener starts, and why."""

log = structlog.get_logger("orchestrator")


class CannotStart(Exception):
    """One sentence that says why."""


class _Listener:
    """A uvicorn server among several: signals are handled once, outside."""

    def __init__(self, name: str, server: uvicorn.Server) -> None:
        self.name = name
        self.server = server

    async def serve(self) -> None:
        """Serve until stopped; a listener that cannot bind or dies ends the process."""
        config = self.server.config
        try:
            await self.server._serve()
        except SystemExit as error:
            raise CannotStart(f"the {self.name} listener cannot use {config.host}:{config.port}") from error
        if not self.server.should_exit:
            raise CannotStart(f"the {self.name} listener ended by itself")


async def _wait_for_database(services: Services) -> None:
    deadline = time.monotonic() + services.settings.startup_seconds_max
    while True:
        try:
            return await require_schema(services.context.database)
        except Problem as problem:
            if isinstance(problem, RestoreInProgress):
                log.warning("restore_in_progress", why=problem.detail)
                return None  # its listeners say so to every caller, and serve when the restore is closed
            pooler = pooler_behind(problem)
            if pooler is not None:
                raise CannotStart(str(pooler)) from problem
            if time.monotonic() > deadline:
                waited = f"waited {services.settings.startup_seconds_max:.0f} s for the database"
                raise CannotStart(f"{waited}: {problem.detail}") from problem
            log.info("waiting", for_what="database", why=problem.detail)
            await asyncio.sleep(0.5)


async def _run(settings: Settings, listen: str) -> None:
    services = application.build_services(settings)
    stop_tracing = start_tracing("orchestrator", settings.otlp_endpoint, settings.trace_sample_ratio)
    await _wait_for_database(services)
    listeners: list[_Listener] = []
    if listen in ("public", "both"):
        listeners.append(_Listener("public", public_server(application.public_listener(services), settings)))
    consoles = _console_listener(services, settings) if listen in ("public", "both") else None
    if listen in ("node", "both"):
        listeners.append(_Listener("node", node_server(application.node_listener(services), settings)))
    if settings.metrics_port is not None:
        metrics = metrics_server(application.metrics_listener(services), settings, settings.metrics_port)
        listeners.append(_Listener("metrics", metrics))

    servers = [listener.server for listener in listeners]
    stop = OrderlyStop(services, servers, consoles, settings.graceful_stop_seconds)
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Task[None]] = set()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, lambda: stopping.add(asyncio.create_task(stop.run())))
    settle_heap()
    collecting = asyncio.create_task(collect_when_due())
    collecting.add_done_callback(_end_if_died)
    log.info("serving", listen=listen, public_port=settings.public_port, node_port=settings.node_port)
    try:
        async with asyncio.TaskGroup() as group:
            for listener in listeners:
                group.create_task(listener.serve())
            if consoles is not None:
                group.create_task(consoles.serve())
    finally:
        collecting.cancel()
        await services.context.database.close()
        stop_tracing()


def _end_if_died(collecting: asyncio.Task[None]) -> None:
    if not collecting.cancelled() and collecting.exception() is not None:
        log.critical("full collections have ended; ending the process", exc_info=collecting.exception())
        raise SystemExit(1)


def _console_listener(services: Services, settings: Settings) -> ConsoleListener | None:
    if settings.console_port is None:
        return None
    return ConsoleListener(services.consoles, services.context.database, settings)


async def _run_issuer(settings: IssuerSettings) -> None:
    issuer, database = application.build_issuer(settings)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, issuer.stop)
    try:
        await run_issuer(settings, issuer)
    except (CannotListen, DatabaseUnavailable) as problem:
        raise CannotStart(str(pooler_behind(problem) or problem)) from problem
    finally:
        await database.close()


async def _start(listen: str) -> None:
    own = {"BERTH_NODE_CA_KEY_FILE", "BERTH_DEPLOY_CA_KEY_FILE"} if listen == "issuer" else set()
    for variable, why in KEYS_OF_OTHERS.items():
        if variable in os.environ and variable not in own:
            raise CannotStart(f"{variable} is set; {why}")
    if listen == "issuer":
        await _run_issuer(IssuerSettings())
        return
    await _run(Settings(), listen)


def main() -> int:
    """Parse, run, and say in one sentence why if it cannot."""
    parser = argparse.ArgumentParser(prog="python -m orchestrator", description=__doc__)
    parser.add_argument("--listen", choices=("public", "node", "both", "issuer"), default="both")
    options = parser.parse_args()
    configure_logging()
    raise_open_files()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # a second, unused series for each
    reasons: list[str] = []
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_start(options.listen))
    except* (CannotStart, OSError, ValueError) as group:
        reasons = [_sentence(error) for error in group.exceptions]
    for reason in reasons:
        sys.stderr.write(f"orchestrator: {reason}\n")
    return 1 if reasons else 0


def _sentence(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        prefix = "IDEMPOTENCY_" if error.title == GateSettings.__name__ else "BERTH_"
        wrong = "; ".join(f"{prefix}{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors())
        return f"these settings are missing or wrong: {wrong}"
    return str(error)


if __name__ == "__main__":
    sys.exit(main())
