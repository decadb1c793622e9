"""What the API counts of reads that a standby may serve."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

READS = Counter(
    "berth_api_replicated_reads_total", "Reads that a standby may serve, by the server that did", ["source"]
)
FALLBACKS = Counter(
    "berth_api_replica_fallbacks_total", "Reads that the primary served although a standby may, by cause", ["cause"]
)
CONNECTIONS = Gauge("berth_api_replica_connections", "Connections to standbys that may serve now")
LAG_SECONDS = Gauge(
    "berth_api_replica_lag_seconds",
    "How far the standby that was examined last was behind; the bound where it may not serve",
)
