"""Prometheus metrics of sweepers, in the worker and in the webhook sender."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

SWEPT = Counter("berth_worker_swept_total", "Objects that sweepers changed or deleted, by kind", ["kind"])
SWEEP_FAILURES = Counter(
    "berth_worker_sweep_failures_total", "Failed runs of sweepers and failed items within a run", ["sweeper"]
)
SWEEP_SECONDS = Histogram(
    "berth_worker_sweep_seconds", "Time that one run of a sweeper took, failed runs included", ["sweeper"],
    buckets=(0.01, 0.05, 0.2, 1, 5, 30),
)  # fmt: skip
