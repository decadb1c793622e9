"""The Prometheus metrics of the agent of a site."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class SiteMetrics:
    """Beside those of every agent (node_agent/metrics.py), in the same registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.held = Gauge(
            "berth_site_agent_lease_held", "Whether this process holds the lease of its site", registry=registry
        )
        self.fence = Gauge(
            "berth_site_agent_lease_fence", "Fence of the lease that this process held last", registry=registry
        )
        self.answering = Gauge(
            "berth_site_agent_bmcs_answering", "BMCs that answered in the last round", registry=registry
        )
        self.silent = Gauge(
            "berth_site_agent_bmcs_silent", "BMCs that did not answer in the last round", registry=registry
        )
        self.running = Gauge("berth_site_agent_tasks_running", "Tasks about BMCs running", registry=registry)
        self.tasks = Counter(
            "berth_site_agent_tasks", "Tasks about BMCs that ended, by type and outcome", ["type", "outcome"],
            registry=registry,
        )  # fmt: skip
        self.rejected = Counter(
            "berth_site_agent_envelopes_rejected", "Envelopes rejected as untrusted, by reason", ["reason"],
            registry=registry,
        )  # fmt: skip
        self.consoles = Counter(
            "berth_site_agent_consoles", "Sessions of serial consoles that ended, by reason", ["reason"],
            registry=registry,
        )  # fmt: skip
