"""The agent's Prometheus metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from node_agent.wire.fields import UNKNOWN_MEMBERS

if TYPE_CHECKING:  # the deploy system has these metrics, and no driver
    from node_agent.drivers.contract import DiskSpace

_PHASE_BUCKETS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_SYNC_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3)


class AgentMetrics:
    """All metrics of the agent, in a separate registry. Durations are seconds, sizes bytes."""

    def __init__(self) -> None:
        self.registry = _registry()
        self.tasks = Counter(
            "berth_agent_tasks", "Tasks that ended, by type and outcome", ["type", "outcome"], registry=self.registry
        )
        self.rejected = Counter(
            "berth_agent_envelopes_rejected",
            "Envelopes rejected as untrusted, by reason",
            ["reason"],
            registry=self.registry,
        )
        self.key_sets_refused, self.key_set_serial = _key_set_metrics(self.registry)
        self.running, self.consoles = _load_metrics(self.registry)
        self.unreported = Gauge(
            "berth_agent_tasks_unreported", "Tasks journaled and not yet reported", registry=self.registry
        )
        self.phases = Histogram(
            "berth_agent_phase_seconds",
            "Duration of task phases",
            ["phase"],
            registry=self.registry,
            buckets=_PHASE_BUCKETS,
        )
        self.report_retries = Counter(
            "berth_agent_report_retries", "Failed attempts to deliver a result", registry=self.registry
        )
        self.progress_lost = Counter(
            "berth_agent_progress_lost", "Progress reports dropped after a failed request", registry=self.registry
        )
        self.requests_failed = Counter(
            "berth_agent_requests_failed",
            "Requests to the server that got no response, by path",
            ["path"],
            registry=self.registry,
        )
        self.journal_bytes = Gauge(
            "berth_agent_journal_bytes", "Size of the journal and its WAL", registry=self.registry
        )
        self.journal_sync = Histogram(
            "berth_agent_journal_sync_seconds",
            "Duration of a journal commit (write and fsync)",
            registry=self.registry,
            buckets=_SYNC_BUCKETS,
        )
        self.journal_damaged = Counter(
            "berth_agent_journal_damaged_records", "Journal records found damaged at start", registry=self.registry
        )
        self.contact_age = Gauge(
            "berth_agent_last_contact_age_seconds", "Time since the last response of the server", registry=self.registry
        )
        self.certificate_left = Gauge(
            "berth_agent_certificate_left_seconds", "Time until the certificate expires", registry=self.registry
        )
        self.restarts, self._disk_space = _restart_metric(self.registry), _disk_metrics(self.registry)
        self.guests = Gauge("berth_agent_guests", "Allocations that the driver holds", registry=self.registry)
        self.leases_cleared = Counter(
            "berth_agent_leases_cleared",
            "Slot leases cleared because their allocation was not in use",
            registry=self.registry,
        )

    def note_disk_space(self, space: DiskSpace | None) -> None:
        """Take over what a driver said; without it the gauges keep what they have, which is nothing at first."""
        if space is None:
            return
        sizes, used = self._disk_space
        sizes.labels("size").set(space.size_bytes)
        sizes.labels("promised").set(space.promised_bytes)
        for kind, share in (("data", space.data_used), ("metadata", space.metadata_used)):
            if share is not None:
                used.labels(kind).set(share)


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(UNKNOWN_MEMBERS)
    return registry


def _disk_metrics(registry: CollectorRegistry) -> tuple[Gauge, Gauge]:
    text = "Thin pool of guests' disks: its size, and what all its volumes may grow to (promised)"
    sizes = Gauge("berth_agent_disk_pool_bytes", text, ["kind"], registry=registry)
    text = "Used share of the thin pool's data and of its metadata, 0 to 1"
    return sizes, Gauge("berth_agent_disk_pool_used_ratio", text, ["kind"], registry=registry)


def _load_metrics(registry: CollectorRegistry) -> tuple[Gauge, Gauge]:
    running = Gauge("berth_agent_tasks_running", "Tasks running", registry=registry)
    consoles = Gauge("berth_agent_consoles_open", "Sessions of serial consoles", registry=registry)
    return running, consoles


def _key_set_metrics(registry: CollectorRegistry) -> tuple[Counter, Gauge]:
    refused = Counter("berth_agent_key_sets_refused", "Key sets refused, by reason", ["reason"], registry=registry)
    serial = Gauge("berth_agent_key_set_serial", "Serial of the key set in use; 0 before the first", registry=registry)
    return refused, serial


def _restart_metric(registry: CollectorRegistry) -> Counter:
    text = "Attempts to start a guest again that ended, by outcome"
    return Counter("berth_agent_guest_restarts", text, ["outcome"], registry=registry)
