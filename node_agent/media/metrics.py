"""Metrics of the media server."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

PREFIX: Final = "berth_media"


class MediaMetrics:
    """Counters of one server, in the registry of its process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.answers = Counter(f"{PREFIX}_answers", "Answers to BMCs, by status.", ["status"], registry=registry)
        self.connections = Gauge(f"{PREFIX}_connections", "Connections of BMCs.", registry=registry)
        self.refused = Counter(f"{PREFIX}_refused_connections", "Connections beyond a bound.", registry=registry)
        self.sent_bytes = Counter(f"{PREFIX}_sent_bytes", "Bytes of media sent.", registry=registry)
