"""Prometheus metrics of sweepers, in the worker and in the webhook sender."""

from __future__ import annotations

from prometheus_client import Counter

SWEPT = Counter("berth_worker_swept_total", "Objects that sweepers changed or deleted, by kind", ["kind"])
SWEEP_FAILURES = Counter(
    "berth_worker_sweep_failures_total", "Failed runs of sweepers and failed items within a run", ["sweeper"]
)
