"""Metrics of deploy systems."""

from __future__ import annotations

from prometheus_client import Counter

ENROLMENTS = Counter(
    "berth_api_deploy_enrolments_total",
    "Requests of deploy systems for a certificate, by result: `issued`, or the reason of the refusal",
    ["result"],
)
STATEMENTS_DROPPED = Counter(
    "berth_api_wipe_statements_dropped_total",
    "Wipe statements of deploy systems that were dropped, by reason; the wipe of the report counts all the same",
    ["reason"],
)
