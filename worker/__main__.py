"""`python -m worker [--webhooks | --audit-stream]`: reads the settings, runs until SIGTERM or SIGINT, and shuts down in order.

With `--webhooks` the process is the webhook sender, which needs the database alone; with `--audit-stream` it sends the audit to
NATS and syslog. Exit status: 0 after an orderly shutdown, otherwise 1 with one sentence on standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import traceback

import structlog
from prometheus_client import disable_created_metrics
from pydantic import ValidationError

from berth.process.health_server import CannotListen
from berth.process.limits.open_files import raise_open_files
from berth.process.logs import configure_logging
from worker.health import Health, served
from worker.problems import CannotRun

KEYS_OF_OTHERS = {
    "BERTH_NODE_CA_KEY_FILE": "only the issuer may have the key of the node CA",
    "BERTH_DEPLOY_CA_KEY_FILE": "only the issuer may have the key of the CA of deploy systems",
    "BERTH_TASK_SIGNING_KEY_FILE": "only the worker may have the key that signs tasks",
}
"""Variables with which the webhook sender and the audit streamer, which connect to other systems, do not start, and why."""

STOP_SECONDS_MAX = 5.0
"""How long everything except the running commands may take to end."""

log = structlog.get_logger()


async def _work() -> None:
    from orchestrator.tracing import start_tracing
    from worker.app import run_worker
    from worker.health import WorkerHealth
    from worker.settings import Settings

    settings, health = Settings(), WorkerHealth()
    stop_tracing = start_tracing("worker", settings.otlp_endpoint, settings.trace_sample_ratio)
    with served(settings.metrics_host, settings.metrics_port, health):
        try:
            stop = _stop_on_signals(settings.worker_graceful_stop_seconds + STOP_SECONDS_MAX)
            await run_worker(settings, health, stop)
        finally:
            stop_tracing()
    log.info("worker_stopped")


async def _send_webhooks() -> None:
    # Imports neither Temporal's library nor NATS's, nor the settings with the signing key.
    from worker.webhooks.app import run_webhooks
    from worker.webhooks.settings import WebhookSettings

    _require_no_keys_of_others()
    settings, health = WebhookSettings(), Health()
    with served(settings.metrics_host, settings.metrics_port, health):
        await run_webhooks(settings, health, _stop_on_signals(STOP_SECONDS_MAX))
    log.info("webhooks_stopped")


async def _stream_audit() -> None:
    # Imports neither Temporal's library nor the settings with the signing key.
    from worker.audit_stream.app import run_audit_stream
    from worker.audit_stream.settings import AuditStreamSettings

    _require_no_keys_of_others()
    settings, health = AuditStreamSettings(), Health()
    with served(settings.metrics_host, settings.metrics_port, health):
        await run_audit_stream(settings, health, _stop_on_signals(STOP_SECONDS_MAX))
    log.info("audit_stream_stopped")


def _require_no_keys_of_others() -> None:
    for variable, why in KEYS_OF_OTHERS.items():
        if variable in os.environ:
            raise CannotRun(f"{variable} is set; {why}")


def _stop_on_signals(seconds_max: float) -> asyncio.Event:
    """An event that a signal sets. Work that does not end within `seconds_max` is abandoned, as a kill would."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def begin_shutdown() -> None:
        if not stop.is_set():
            stop.set()
            loop.call_later(seconds_max, _exit_at_once)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin_shutdown)
    return stop


def _exit_at_once() -> None:
    """Print the stacks of the remaining tasks and exit; unacknowledged work is delivered again (P14)."""
    sys.stderr.write("worker: these tasks did not end in time and are abandoned:\n")
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()
    os._exit(1)


def main() -> int:
    """Run the process and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m worker", description=__doc__)
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--webhooks", action="store_true", help="send webhooks, and do nothing else")
    only.add_argument(
        "--audit-stream", action="store_true", help="send the audit to other systems, and do nothing else"
    )
    given = parser.parse_args()
    run = _send_webhooks if given.webhooks else _stream_audit if given.audit_stream else _work
    configure_logging()
    raise_open_files()
    disable_created_metrics()  # type: ignore[no-untyped-call]  # unused series
    try:
        asyncio.run(run())
    except ValidationError as error:
        wrong = "; ".join(_name_wrong(e["loc"]) + e["msg"] for e in error.errors())
        sys.stderr.write(f"worker: these settings are missing or wrong: {wrong}\n")
        return 1
    except (CannotListen, CannotRun) as problem:
        sys.stderr.write(f"worker: {problem}\n")
        return 1
    return 0


def _name_wrong(place: tuple[int | str, ...]) -> str:
    """The variable at fault; nothing where several do not fit together."""
    return f"BERTH_{'_'.join(map(str, place)).upper()}: " if place else ""


if __name__ == "__main__":
    try:
        status = main()
    except SystemExit as ended:  # argparse has said why, or printed the help
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - every exception must reach the exit below
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    # temporalio 1.35 can crash during interpreter shutdown; everything is closed, so exit at once.
    os._exit(status)
