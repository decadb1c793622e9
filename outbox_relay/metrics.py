"""What the relay counts, for Prometheus. Names begin with `berth_relay_`; durations are seconds."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
LATENCY_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class Metrics:
    """One process's metrics, in a separate registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        prefix = "berth_relay_"
        self.outbox_depth = Gauge(
            prefix + "outbox_depth", "Events waiting for their version (counted up to 100,000)", registry=registry
        )
        self.outbox_oldest_seconds = Gauge(
            prefix + "outbox_oldest_seconds", "Age of the first event waiting for its version", registry=registry
        )
        self.head_version = Gauge(prefix + "head_version", "Newest version of the log", registry=registry)
        self.published_version = Gauge(
            prefix + "published_version", "Newest version known to be stored by NATS", registry=registry
        )
        self.lag_versions = Gauge(
            prefix + "lag_versions", "Versions in the log that NATS is not known to have", registry=registry
        )
        self.lag_versions.set_function(self._lag)
        self._head = self._published = 0
        self.publishing = Gauge(
            prefix + "publishing", "1 if this relay is the publisher, 0 if it is a standby", registry=registry
        )
        self.stores_nothing = Gauge(
            prefix + "nats_stores_nothing",
            "1 while NATS answers and stores nothing (docs/reference/events.md, When NATS stores nothing)",
            registry=registry,
        )
        self.sequenced = Counter(prefix + "sequenced", "Events given a version by this relay", registry=registry)
        self.published = Counter(prefix + "published", "Events stored by NATS for this relay", registry=registry)
        self.sequence_batch_events = Histogram(
            prefix + "sequence_batch_events", "Events per sequenced batch", buckets=BATCH_BUCKETS, registry=registry
        )
        self.publish_batch_events = Histogram(
            prefix + "publish_batch_events", "Events per published batch", buckets=BATCH_BUCKETS, registry=registry
        )
        self.sequence_seconds = Histogram(
            prefix + "sequence_seconds", "Seconds to sequence a batch", buckets=LATENCY_BUCKETS, registry=registry
        )
        self.publish_seconds = Histogram(
            prefix + "publish_seconds",
            "Seconds until NATS has stored a batch",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self.event_age_seconds = Histogram(
            prefix + "event_age_seconds",
            "Age of a batch's first event when NATS has stored it (two clocks: Postgres's and the relay's)",
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        self._add_troubles(registry)

    def _add_troubles(self, registry: CollectorRegistry) -> None:
        prefix = "berth_relay_"
        self.refused_batches = Counter(
            prefix + "refused_batches", "Batches that NATS refused", ["reason"], registry=registry
        )
        self.stubs = Counter(prefix + "stubs", "Events published as a stub", ["reason"], registry=registry)
        self.reconnects = Counter(
            prefix + "reconnects", "Lost or failed connections", ["server", "step"], registry=registry
        )
        self.stops = Counter(
            prefix + "publishing_stopped", "Times that publishing has stopped", ["reason"], registry=registry
        )
        self.stopped = Gauge(
            prefix + "stopped",
            "1 while publishing is stopped for this reason (docs/reference/events.md, When publishing stops)",
            ["reason"],
            registry=registry,
        )
        self.timelines_resumed = Counter(
            prefix + "timelines_resumed", "New timelines of Postgres on which publishing went on", registry=registry
        )

    def stub_count(self) -> int:
        """How many events went out as a stub."""
        return int(sum(s.value for f in self.stubs.collect() for s in f.samples if s.name.endswith("_total")))

    def published_count(self) -> int:
        """How many events NATS stored for this process."""
        return int(sum(s.value for f in self.published.collect() for s in f.samples if s.name.endswith("_total")))

    def note_head(self, version: int) -> None:
        """The log's newest version is at least this."""
        self._head = max(self._head, version)
        self.head_version.set(self._head)

    def note_published(self, version: int) -> None:
        """The stream ends at this version; a rebuilt stream may end lower than before."""
        self._published = version
        self.published_version.set(version)

    def _lag(self) -> float:
        return float(max(0, self._head - self._published))
