"""The worker's Prometheus metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from orchestrator.allocations.failures import Code

LATENCIES_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

EVENTS = Counter("berth_worker_events_total", "Events consumed from the log, by outcome", ["type", "outcome"])
EVENT_AGE_SECONDS = Histogram(
    "berth_worker_event_age_seconds", "Time from an event's transaction to the end of its handling", ["type"],
    buckets=LATENCIES_SECONDS,
)  # fmt: skip
EVENTS_WAITING = Gauge("berth_worker_events_waiting", "Events that this process has read ahead and not begun to handle")
EVENTS_PENDING = Gauge("berth_worker_events_pending", "Events in the log that were not delivered to a worker yet")
EVENTS_UNACKNOWLEDGED = Gauge("berth_worker_events_unacknowledged", "Events delivered and not acknowledged yet")
POSITION = Gauge("berth_worker_position", "Version up to which every event of the log is handled")
EVENTS_GIVEN_UP = Counter("berth_worker_events_given_up_total", "Events that became dead letters", ["reason"])
DEAD_LETTERS = Gauge("berth_worker_dead_letters", "Dead letters that no operator has retried or discarded yet")
PULL_RENEWALS = Counter("berth_worker_pull_renewals_total", "Renewed pull subscriptions, by reason", ["reason"])
PAYLOADS_UNREADABLE = Counter(
    "berth_worker_payloads_unreadable_total", "Payloads of Temporal that could not be decrypted, by reason", ["reason"]
)
for reason in ("unknown_key", "altered", "earlier_version"):
    PAYLOADS_UNREADABLE.labels(reason)
TEMPORAL_CREDENTIALS_STALE = Gauge(
    "berth_worker_temporal_credentials_stale",
    "1 while changed files of the connection to Temporal cannot be used and the earlier ones are",
)
COMMAND_SECONDS = Histogram(
    "berth_worker_command_seconds", "Time a command took", ["command"], buckets=LATENCIES_SECONDS
)
CONCLUSIONS = Counter(
    "berth_worker_conclusions_total", "Concluded provisions and releases, by final state and code", ["state", "code"]
)
VERBS = Counter("berth_worker_verbs_total", "Concluded verbs of active allocations, by code of the failure", ["code"])
VERBS.labels("")
TOOK_SECONDS = {
    "active": Histogram(
        "berth_allocation_active_seconds", "Time from the request to `active`",
        buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900),
    ),
    "released": Histogram(
        "berth_allocation_release_seconds", "Time from `releasing` to `released`",
        buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900),
    ),
}  # fmt: skip
FAILURES = Counter(
    "berth_allocation_failures_total", "Failures of allocations, by code (docs/reference/failures.md)", ["code"]
)
for code in Code:
    FAILURES.labels(code.value)
RESCUED = Counter("berth_rescued_total", "Waits that only a sweeper ended, by cause", ["why"])
for why in (
    "overdue_requested", "overdue_provisioning", "overdue_active", "overdue_releasing", "overdue_failed", "workflow_lost",
    "workflow_closed", "signal_lost", "task_expired",
):  # fmt: skip
    RESCUED.labels(why)
STORES_REPLACED = Counter(
    "berth_temporal_stores_replaced_total", "Times that Temporal was found with another store than before"
)
APPROVALS_WAITING = Gauge("berth_approvals_waiting", "Requests that wait for a second operator, by action", ["action"])
OLDEST_APPROVAL_SECONDS = Gauge(
    "berth_approval_oldest_seconds",
    "How long the oldest request has waited for a second operator, by action",
    ["action"],
)
MAINTENANCE_WINDOWS = Gauge(
    "berth_maintenance_windows", "Maintenance windows that are scheduled or active, by state", ["state"]
)
MAINTENANCE_PLANNED = Gauge(
    "berth_maintenance_planned_units",
    "Units of maintenance windows that an allocation still holds, by state",
    ["state"],
)
ORPHANS = Gauge("berth_node_orphans", "Orphans on nodes, by state", ["state"])
ORPHANS_FOUND = Counter("berth_node_orphans_found_total", "Orphans that this process found")
NODE_TOPOLOGIES = Gauge(
    "berth_node_topologies", "Nodes whose topology is unapproved, drifted, or whose last discovery failed", ["state"]
)
NODE_HEALTH = Gauge(
    "berth_node_health", "Nodes whose health was never reported, is faulty, or whose last probe failed", ["state"]
)
HARDWARE = Gauge(
    "berth_hardware", "GPUs and disks that are contested between nodes, missing, or in repair, by state", ["state"]
)
ALLOCATIONS_MISSING = Gauge(
    "berth_allocations_missing", "Active allocations that are missing from their node's inventory"
)
INVENTORIES_AWAITED = Gauge(
    "berth_inventories_awaited", "Nodes whose slots are out of service until their inventory arrives after a restore"
)
LOG_KEPT = Gauge("berth_log_kept_versions", "Versions that the log keeps in PostgreSQL")
LOG_BLOCKED = Gauge(
    "berth_log_truncation_blocked", "1 while a cursor prevents the truncation of an old enough partition"
)
LOG_CURSOR_LAG = Gauge(
    "berth_log_cursor_lag_versions",
    "Versions of the log that a retention policy, consumer, webhook or dead letter still needs; the largest twenty",
    ["kind", "name", "tenant"],
)
ALLOCATIONS = Gauge("berth_worker_allocations", "Allocations in a state that is not final, by state", ["state"])
OLDEST_WAIT_SECONDS = Gauge(
    "berth_worker_oldest_wait_seconds", "Longest time that an allocation has been waiting, by state", ["state"]
)
TASKS = Gauge("berth_worker_tasks", "Unfinished tasks of nodes, by state", ["state"])
OLDEST_TASK_SECONDS = Gauge(
    "berth_worker_oldest_task_seconds", "Longest time that a task has been queued or dispatched", ["state"]
)
CLAIMS_WAITING = Gauge(
    "berth_worker_claims_waiting", "Ended claims whose units are not free yet, by what they wait for", ["waits_for"]
)
NODES = Gauge("berth_worker_nodes", "Nodes, by state and whether they are online", ["state", "online"])
GPUS = Gauge(
    "berth_worker_gpus",
    "GPUs by pool: total, and by the state of their slots",
    ["region", "gpu_model", "shape", "kind"],
)
LEDGER_LINES = Counter("berth_metering_lines_total", "Lines that metering wrote to the ledger")
METERING_POSITION = Gauge("berth_metering_position", "Version of the newest metered event")
METERING_LAG_VERSIONS = Gauge("berth_metering_lag_versions", "Versions of the log that are not metered yet")
METERING_LAG_SECONDS = Gauge("berth_metering_lag_seconds", "Age of the oldest version that is not metered yet")
METERING_STOPPED = Gauge("berth_metering_stopped", "1 while metering is stopped by an error that needs an operator")
BALANCE_EVENTS = Counter(
    "berth_balance_events_total", "Balances that this process found low or depleted, by kind", ["kind"]
)
for kind in ("low", "depleted"):
    BALANCE_EVENTS.labels(kind)
BALANCES_LATE_SECONDS = Gauge(
    "berth_balances_late_seconds", "How long the most overdue balance has been due for evaluation"
)
SITE_LEASES = Gauge("berth_site_lease_held", "Whether an agent holds the lease of the site", ["site"])
SITE_MACHINES = Gauge("berth_site_machines", "BMCs of the site", ["site"])
SITE_TASKS = Gauge("berth_site_tasks_open", "Open tasks about BMCs of the site", ["site"])
