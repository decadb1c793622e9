"""Findings of `berth doctor` in Postgres: the server, the schema, the fleet, and what waits."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg

import migrations
from berth.cli.deployment.archive.finding import archive_finding
from berth.cli.deployment.attestation_finding import attestation_finding
from berth.cli.deployment.backup.site_keys import site_key_finding
from berth.cli.deployment.findings import Finding, clock_finding
from berth.cli.deployment.hardware_finding import hardware_finding
from berth.cli.deployment.isolation_finding import isolation_finding
from berth.cli.deployment.maintenance_finding import maintenance_finding
from berth.cli.deployment.node_trust import node_trust_findings
from berth.cli.deployment.operator_findings import operator_findings
from berth.cli.deployment.readings import (
    BillingReadings,
    FleetReadings,
    LogHolder,
    LogReadings,
    WebhookReadings,
    read_database,
    read_fleet,
    read_security,
)
from berth.cli.deployment.release_finding import release_finding
from berth.cli.deployment.restore.machines import machine_finding
from berth.cli.deployment.security_findings import stored_findings
from berth.cli.deployment.site_finding import site_finding
from berth.cli.deployment.standby.finding import standby_finding
from berth.cli.deployment.standby.reading import read_standby_finding
from berth.cli.settings import Settings

POSTGRES_VERSION_LEAST = 180000
OUTBOX_SECONDS_MAX = 10
METERING_SECONDS_MAX = 30
BALANCE_SECONDS_MAX = 60
CERTIFICATE_REQUEST_SECONDS_MAX = 5.0
CERTIFICATE_HOURS_LEAST = 2
NODES_NAMED_MAX = 10
WEBHOOK_DUE_SECONDS_MAX = 300


def database_findings(url: str, settings: Settings) -> Iterator[Finding]:
    """The server first; of a schema that is not the newest, nothing is read."""
    try:
        readings = read_database(url)
    except psycopg.OperationalError as error:
        yield Finding("postgres", "bad", f"cannot be reached: {str(error).strip().splitlines()[0]}")
        return
    version = f"version {readings.server_version // 10000}.{readings.server_version % 10000}"
    if readings.server_version < POSTGRES_VERSION_LEAST:
        yield Finding("postgres", "bad", f"{version}; Berth needs 18 or newer")
    elif readings.fsync != "on" or readings.synchronous_commit == "off":
        durability = f"fsync={readings.fsync}, synchronous_commit={readings.synchronous_commit}"
        yield Finding("postgres", "bad", f"{version}, but commits are not durable ({durability})")
    else:
        yield Finding(
            "postgres", "ok", f"{version}, {readings.max_connections} connections at most, commits are durable"
        )
    yield clock_finding("postgres", readings.seconds_ahead)
    yield standby_finding(url)
    try:
        revision, newest = migrations.current_revision(url), migrations.head_revision()
    except migrations.SchemaProblem as problem:
        yield Finding("schema", "bad", str(problem))
        return
    if revision != newest:
        yield Finding("schema", "bad", f"at {revision or 'nothing'}, newest is {newest}; run `berth migrate`")
        return
    yield Finding("schema", "ok", f"at {revision}, the newest")
    if settings.read_database_url is not None:
        yield read_standby_finding(url, settings.read_database_url)
    yield from _fleet(read_fleet(url))
    yield maintenance_finding(url)
    yield hardware_finding(url)
    yield site_finding(url)
    yield release_finding(url)
    yield isolation_finding(url)
    yield attestation_finding(url)
    yield machine_finding(url)
    yield site_key_finding(url, settings.backup_dir)
    yield from node_trust_findings(url)
    yield from stored_findings(read_security(url), settings.sandbox_allowed)
    yield from operator_findings(url, settings)
    yield archive_finding(url)


def _fleet(readings: FleetReadings) -> Iterator[Finding]:
    slow = readings.outbox_oldest_seconds > OUTBOX_SECONDS_MAX
    waiting = f"{readings.outbox_events} events wait, the oldest for {readings.outbox_oldest_seconds:.1f} s"
    advice = "; is a relay running?" if slow else ""
    yield Finding("relay", "bad" if slow else "ok", f"{waiting}; the log is at {readings.head_version}{advice}")
    if readings.offline_nodes:
        shown = ", ".join(readings.offline_nodes[:NODES_NAMED_MAX])
        yield Finding("nodes", "warning", f"{len(readings.offline_nodes)} of {readings.nodes} are offline: {shown}")
    else:
        yield Finding("nodes", "ok", f"{readings.nodes}, none offline")
    yield _slots(readings)
    if readings.conflicted_nodes:
        shown = ", ".join(readings.conflicted_nodes[:NODES_NAMED_MAX])
        advice = "revoke their certificates and enrol them again"
        yield Finding("node identities", "bad", f"two keys were used as the identity of {shown}; {advice}")
    unsigned = readings.certificate_request_oldest_seconds
    late = f"a request for a certificate waits for {unsigned:.1f} s; is an issuer running?"
    is_late = unsigned > CERTIFICATE_REQUEST_SECONDS_MAX
    yield Finding("issuer", "bad" if is_late else "ok", late if is_late else "no request for a certificate waits")
    hours = readings.node_certificate_hours_least
    if hours is not None:
        soon = hours < CERTIFICATE_HOURS_LEAST
        yield Finding("node certificates", "warning" if soon else "ok", f"the first ends in {hours:.1f} h")
    overdue = {what: count for what, count in readings.overdue.items() if count}
    named = ", ".join(f"{count} {what}" for what, count in overdue.items())
    detail = (
        f"past what they wait for: {named}; is a worker running?" if overdue else "nothing is past what it waits for"
    )
    yield Finding("deadlines", "warning" if overdue else "ok", detail)
    yield _log(readings.log)
    yield from _billing(readings.billing)
    yield _webhooks(readings.webhooks)
    dead = readings.dead_letters
    advice = "; look with `berth events dead-letters list`" if dead else ""
    yield Finding("dead letters", "warning" if dead else "ok", f"{dead} events wait for a person{advice}")


def _billing(readings: BillingReadings) -> Iterator[Finding]:
    """Whether metering follows the log, and balances are evaluated in time."""
    behind = readings.lag_seconds > METERING_SECONDS_MAX
    detail = f"{readings.lag_versions} versions behind the log, the first {readings.lag_seconds:.1f} s old"
    advice = "; is a worker running, and does it say metering_stopped?" if behind else ""
    yield Finding("metering", "warning" if behind else "ok", detail + advice)
    late = readings.late_seconds > BALANCE_SECONDS_MAX
    detail = f"{readings.prepaid} are prepaid, {readings.depleted} are used up"
    advice = f"; one is overdue for evaluation by {readings.late_seconds:.0f} s: is a worker running?" if late else ""
    yield Finding("balances", "warning" if late else "ok", detail + advice)


def _log(readings: LogReadings) -> Finding:
    """The stored versions, and what delays truncation."""
    kept = f"versions {readings.first_version} to {readings.head_version} are kept"
    if readings.blocked_since is None or not readings.holders:
        return Finding("log", "ok", kept)
    detail = "; ".join(
        f"{_holder(holder)} needs version {holder.needs_from} and later since {holder.since:%Y-%m-%d %H:%M}Z,"
        f" {readings.head_version + 1 - holder.needs_from} versions"
        for holder in readings.holders
    )
    since = f"{readings.blocked_since:%Y-%m-%d %H:%M}Z"
    return Finding("log", "warning", f"{kept}; it cannot be truncated since {since}: {detail}")


def _webhooks(readings: WebhookReadings) -> Finding:
    """Whether what is due is sent, and whose endpoints do not take it."""
    detail = f"{readings.enabled} enabled, {readings.pending} messages wait"
    if readings.oldest_due_seconds > WEBHOOK_DUE_SECONDS_MAX:
        late = f"the oldest has been due for {readings.oldest_due_seconds:.0f} s; is a webhook sender running?"
        return Finding("webhooks", "warning", f"{detail}, {late}")
    if readings.failing or readings.disabled:
        trouble = f"{readings.failing} fail now, {readings.disabled} were disabled by what their endpoints did"
        return Finding("webhooks", "warning", f"{detail}; {trouble}")
    return Finding("webhooks", "ok", detail)


def _holder(holder: LogHolder) -> str:
    of = "" if holder.tenant_id is None else f" of tenant {holder.tenant_id}"
    kinds = {
        "policy": "retention policy",
        "consumer": "consumer",
        "subscription": "subscription",
        "webhook": "webhook",
        "dead_letters": "a dead letter of",
    }
    return f"{kinds[holder.kind]} {holder.name}{of}"


def _slots(readings: FleetReadings) -> Finding:
    """Slots that stay unavailable until an operator acts."""
    reasons = []
    if readings.blocked_slots:
        reasons.append(f"{readings.blocked_slots} are blocked by a cleanup that failed; `berth node list` shows where")
    if readings.orphaned_slots:
        nodes = ", ".join(readings.orphaned_nodes[:NODES_NAMED_MAX])
        reasons.append(
            f"{readings.orphaned_slots} are kept by orphans on {nodes}; `berth node orphans NODE` lists them"
        )
    return Finding("slots", "warning" if reasons else "ok", "; ".join(reasons) or "none waits for a person")
