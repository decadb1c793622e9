"""Settings of the processes of a campaign's stage: deadlines of seconds, and bounds that its load reaches."""

from __future__ import annotations

import json

from tests.campaign.clients.accounts.crowding import READS_PER_SECOND, TENANT_ID, WRITES_PER_SECOND
from tests.campaign.clients.accounts.receiving import TIMEOUT_SECONDS

DEADLINES = {
    "BERTH_REQUESTED_SECONDS_MAX": "20",
    "BERTH_PROVISION_SECONDS_MAX": "10",
    "BERTH_RELEASE_SECONDS_MAX": "6",
    "BERTH_RELEASE_ATTEMPTS_MAX": "3",
    "BERTH_LOCK_TIMEOUT_SECONDS": "2",
    "BERTH_TRANSACTION_TIMEOUT_SECONDS": "10",
    "BERTH_UNITS_SECONDS_MAX": "12",
    "BERTH_RESERVATION_RETENTION_SECONDS": "20",
}
WORKER = {
    **DEADLINES,
    "BERTH_SWEEP_SECONDS": "1",
    "BERTH_SWEEP_GRACE_SECONDS": "2",
    "BERTH_NODE_SILENT_SECONDS": "6",
    "BERTH_ENDING_NOTICE_SECONDS": "2",
    "BERTH_WORKER_ACK_WAIT_SECONDS": "4",
    "BERTH_WORKER_STEP_SECONDS": "2",
    "BERTH_WORKER_STICKY_SECONDS": "1",
    "BERTH_WORKER_POSITION_SECONDS": "1",
    "BERTH_WORKER_PULL_HEARTBEAT_SECONDS": "1",
}
LOG_PARTITION_VERSIONS = 100
LOG_AGE_SECONDS_MIN = 5.0
TRUNCATION = {
    "BERTH_LOG_TRUNCATION_SECONDS": "1",
    "BERTH_LOG_AGE_SECONDS_MIN": str(LOG_AGE_SECONDS_MIN),
    "BERTH_LOG_VERSIONS_MIN": "50",
}
"""The workers drop a partition of the log as soon as it is that old and no reader needs it."""
KEPT = {"BERTH_NOTIFICATIONS_KEPT_VERSIONS_MAX": "300"}
"""A subscription that is further behind does not delay that."""
RATES = {
    "BERTH_RATES_OF_TENANTS": json.dumps({str(TENANT_ID): {"write": WRITES_PER_SECOND, "read": READS_PER_SECOND}}),
}
WEBHOOKS = {
    **{name: DEADLINES[name] for name in ("BERTH_LOCK_TIMEOUT_SECONDS", "BERTH_TRANSACTION_TIMEOUT_SECONDS")},
    "BERTH_WEBHOOK_TIMEOUT_SECONDS": str(TIMEOUT_SECONDS), "BERTH_WEBHOOK_TICK_SECONDS": "0.2",
}  # fmt: skip
ISSUER = {"BERTH_NODE_CERTIFICATE_SECONDS": "100"}
"""A certificate is valid from a minute before its issue, so that it is renewed after 20 s."""
RELAY = {"BERTH_RELAY_STEP_BACK_SECONDS": "0.3", "BERTH_RELAY_PUBLISH_TIMEOUT_SECONDS": "2"}
AGENT = {
    "BERTH_AGENT_HEARTBEAT_SECONDS": "1",
    "BERTH_AGENT_WAIT_SECONDS": "5",
    "BERTH_AGENT_READINESS_SECONDS": "6",
}
SITES = {"BERTH_SITE_LEASE_SECONDS": "6", "BERTH_BMC_SILENT_SECONDS": "15"}
SITE_AGENT = {"BERTH_AGENT_WAIT_SECONDS": "5", "BERTH_SITE_BMC_CHECK_SECONDS": "2"}
