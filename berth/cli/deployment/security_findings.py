"""Findings of `berth doctor` about how the deployment is protected: passwords, TLS, roles, drivers, quotas."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from berth.cli.deployment.findings import Finding
from berth.cli.deployment.readings import SecurityReadings
from berth.cli.settings import Settings
from berth.process.server_addresses import DATABASE_SCHEMES, database_hosts, is_here
from berth.process.temporal_connections import uses_tls

DEFAULT_PASSWORDS = frozenset(
    {"admin", "berth", "changeme", "nats", "password", "postgres", "root", "secret", "temporal"}
)
"""Passwords of examples and of images, and names that are tried first."""
VERIFIED_MODES = frozenset({"verify-ca", "verify-full"})
ISOLATING_NOTHING = "sandbox or noop"
NAMED_MAX = 10


def address_findings(settings: Settings, addresses: dict[str, str | None]) -> Iterator[Finding]:
    """How the servers at these addresses are reached; by name (api, postgres, nats, temporal), None: not known."""
    for name, address in addresses.items():
        if address is None:
            continue
        if name == "temporal":
            address = f"{'tls' if uses_tls(address, settings) else 'temporal'}://{address}"
        parts = urlsplit(address)
        yield from _password(name, parts)
        yield _transport(name, parts)


def _password(name: str, parts: SplitResult) -> Iterator[Finding]:
    """A finding for an address that names a user."""
    if parts.username is None:
        return
    password = unquote(parts.password or "")
    if password.lower() in DEFAULT_PASSWORDS or (password and password == unquote(parts.username)):
        yield Finding(f"{name} password", "bad", "is one of those that are tried first; set another")
    elif not password and not _is_on_this_machine(parts):
        yield Finding(f"{name} password", "warning", "none is set, and the server is on another machine")
    else:
        yield Finding(f"{name} password", "ok", "is none of the usual ones")


def _transport(name: str, parts: SplitResult) -> Finding:
    subject = f"{name} transport"
    if _is_on_this_machine(parts):
        return Finding(subject, "ok", "the server is on this machine")
    if _is_verified(parts):
        return Finding(subject, "ok", "TLS, and the certificate of the server is verified")
    advice = {
        "api": "keys and enrolment tokens can be read on the way; use https://",
        "postgres": "remove sslmode from the address, or set verify-full",
        "nats": "use tls://",
        "temporal": "remove BERTH_TEMPORAL_TLS=false",
    }[name]
    return Finding(subject, "warning", f"no verified TLS to another machine: {advice}")


def _is_on_this_machine(parts: SplitResult) -> bool:
    if parts.scheme in DATABASE_SCHEMES:
        return all(map(is_here, database_hosts(parts)))
    return is_here(parts.hostname)


def _is_verified(parts: SplitResult) -> bool:
    if parts.scheme in DATABASE_SCHEMES:
        return parse_qs(parts.query).get("sslmode", ["prefer"])[-1] in VERIFIED_MODES
    return parts.scheme in ("https", "tls", "wss")


def stored_findings(readings: SecurityReadings, sandbox_allowed: bool) -> Iterator[Finding]:
    """What the database says of its role, of nodes and of tenants; `sandbox_allowed` by the environment."""
    role = f"{readings.role} is a superuser" if readings.superuser else f"{readings.role} is no superuser"
    advice = "; nothing in the database is protected from the processes: use a role that owns no more than it needs"
    yield Finding(
        "postgres role", "warning" if readings.superuser else "ok", role + (advice if readings.superuser else "")
    )
    count = len(readings.sandbox_nodes)
    shown = ", ".join(readings.sandbox_nodes[:NAMED_MAX])
    detail = f"{count} run {ISOLATING_NOTHING}, which isolate nothing: {shown}" if count else "all are for real guests"
    if sandbox_allowed:
        detail += f"; BERTH_SANDBOX_ALLOWED lets nodes enrol with {ISOLATING_NOTHING}"
    yield Finding("node drivers", "warning" if count or sandbox_allowed else "ok", detail)
    count = len(readings.unlimited_tenants)
    shown = ", ".join(readings.unlimited_tenants[:NAMED_MAX])
    detail = f"{count} have no limit of GPUs: {shown}" if count else "each tenant has a limit of GPUs"
    yield Finding("gpu quotas", "warning" if count else "ok", detail)
