"""The audit streamer's Prometheus metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

POSITION = Gauge("berth_audit_stream_position", "Sequence of the newest audit row that the target has", ["target"])
BACKLOG_ROWS = Gauge("berth_audit_stream_backlog_rows", "Chained audit rows that the target does not have", ["target"])
BACKLOG_SECONDS = Gauge(
    "berth_audit_stream_backlog_seconds",
    "Age of the oldest chained audit row that the target does not have",
    ["target"],
)
SENT = Counter(
    "berth_audit_stream_sent_total", "Audit rows that the target acknowledged; repetitions count again", ["target"]
)
FAILURES = Counter(
    "berth_audit_stream_failures_total", "Connections to the target that failed, by reason", ["target", "reason"]
)
SENDING = Gauge(
    "berth_audit_stream_sending", "1 if this process has a connection to the target and sends, else 0", ["target"]
)
