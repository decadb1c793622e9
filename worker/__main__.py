"""`python -m worker`: reads the settings, runs until SIGTERM or SIGINT, and shuts down in order.

Exit status: 0 after an orderly shutdown, otherwise 1 with one sentence on standard error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback

import structlog
from prometheus_client import disable_created_metrics
from pydantic import ValidationError

from berth.process.health_server import CannotListen
from berth.process.logs import configure_logging
from orchestrator.tracing import start_tracing
from worker.app import run_worker
from worker.health import Health, served
from worker.problems import CannotRun
from worker.settings import Settings

log = structlog.get_logger()


STOP_SECONDS_MAX = 5.0
"""How long everything except the running commands may take to end."""


async def work(settings: Settings) -> None:
    """Run until a signal arrives; work that does not end in time is abandoned, as a kill would."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def begin_shutdown() -> None:
        if not stop.is_set():
            stop.set()
            loop.call_later(settings.worker_graceful_stop_seconds + STOP_SECONDS_MAX, _exit_at_once)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin_shutdown)
    health = Health()
    stop_tracing = start_tracing("worker", settings.otlp_endpoint, settings.trace_sample_ratio)
    with served(settings.metrics_host, settings.metrics_port, health):
        try:
            await run_worker(settings, health, stop)
        finally:
            stop_tracing()
    log.info("worker_stopped")


def _exit_at_once() -> None:
    """Print the stacks of the remaining tasks and exit; unacknowledged work is delivered again (P14)."""
    sys.stderr.write("worker: these tasks did not end in time and are abandoned:\n")
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()
    os._exit(1)


def main() -> int:
    """Run the process and return its exit status."""
    configure_logging()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # unused series
    try:
        settings = Settings()
    except ValidationError as error:
        wrong = "; ".join(f"BERTH_{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors())
        sys.stderr.write(f"worker: these settings are missing or wrong: {wrong}\n")
        return 1
    try:
        asyncio.run(work(settings))
    except (CannotListen, CannotRun) as problem:
        sys.stderr.write(f"worker: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    try:
        status = main()
    except BaseException:  # noqa: BLE001 - every exception must reach the exit below
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # temporalio 1.35 can crash during interpreter shutdown; everything is closed, so exit at once.
    os._exit(status)
