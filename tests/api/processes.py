"""The public listener as a separate process, and waiting for a condition to become true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx

from berth.local.authority import ensure_authority
from berth.local.processes import ChildProcess, Endpoints, orchestrator_plan
from berth.local.servers import free_port
from tests.databases import as_roles
from tests.metrics_ports import get
from tests.support.waiting import WAIT_SECONDS_MAX

AS_IN_PRODUCTION = {"BERTH_WEBHOOK_HTTP_ALLOWED": "false", "BERTH_WEBHOOK_PRIVATE_ADDRESSES_ALLOWED": "false",
                    "BERTH_WEBHOOK_PORTS": "[443, 8443]", "BERTH_CERTIFICATE_WAIT_SECONDS": "0"}  # fmt: skip
"""What a local stack would let through; and no issuer runs that a request could wait for."""


_metrics_ports: dict[int, int] = {}
"""The metrics port of a process by its public port."""


def metric_of(http: httpx.Client, prefix: str) -> float:
    """The sum of the series of a process of `public_process` whose lines begin so."""
    _, text = get(_metrics_ports[http.base_url.port or 0], "/metrics")
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(prefix))


@contextmanager
def public_process(
    database_url: str, directory: Path, settings: Mapping[str, str] | None = None, *, launcher: str | None = None
) -> Iterator[httpx.Client]:
    """A public listener over this database, as a separate process, ready; its log is `api.log` in the directory.

    `launcher`: a module that starts it (`ProcessPlan.launcher`).
    """
    with started_public_process(database_url, directory, settings, ready=True, launcher=launcher) as http:
        yield http


@contextmanager
def started_public_process(
    database_url: str,
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    ready: bool = False,
    launcher: str | None = None,
) -> Iterator[httpx.Client]:
    """As `public_process`, whether or not it is `ready`."""
    with stoppable_public_process(database_url, directory, settings, ready=ready, launcher=launcher) as (http, _):
        yield http


@contextmanager
def stoppable_public_process(
    database_url: str,
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    ready: bool = True,
    launcher: str | None = None,
) -> Iterator[tuple[httpx.Client, ChildProcess]]:
    """As `public_process`, with the process itself, which the test may end."""
    directory.mkdir(exist_ok=True)
    endpoints = Endpoints(database_url, "", "", free_port(), free_port(), as_roles(database_url))
    metrics_port = _metrics_ports[endpoints.public_port] = free_port()
    plan = orchestrator_plan("public", endpoints, ensure_authority(directory, "berth.local"), metrics_port)
    process = ChildProcess(replace(plan, launcher=launcher), directory / "api.log")
    process.spawn({**AS_IN_PRODUCTION, **(settings or {})})
    try:
        if ready:
            process.wait_ready()
        with httpx.Client(base_url=endpoints.api_url, timeout=WAIT_SECONDS_MAX) as http:
            yield http, process
    finally:
        process.terminate()
        process.wait_ended()
