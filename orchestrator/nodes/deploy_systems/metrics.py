"""Metrics of deploy systems."""

from __future__ import annotations

from prometheus_client import Counter

ENROLMENTS = Counter(
    "berth_api_deploy_enrolments_total",
    "Requests of deploy systems for a certificate, by result: `issued`, or the reason of the refusal",
    ["result"],
)
