"""What the worker counts and measures."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from orchestrator.allocations.failures import Code

LATENCIES_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)

EVENTS = Counter("berth_worker_events_total", "Events taken from the log", ["type", "outcome"])
EVENT_AGE_SECONDS = Histogram(
    "berth_worker_event_age_seconds", "From an event's transaction to the end of its handling", ["type"],
    buckets=LATENCIES_SECONDS,
)  # fmt: skip
EVENTS_PENDING = Gauge("berth_worker_events_pending", "Events in the log that no worker has taken yet")
EVENTS_UNACKNOWLEDGED = Gauge("berth_worker_events_unacknowledged", "Events taken and not acknowledged yet")
POSITION = Gauge("berth_worker_position", "Every event of the log up to this version is handled")
EVENTS_GIVEN_UP = Counter("berth_worker_events_given_up_total", "Events that became dead letters", ["reason"])
DEAD_LETTERS = Gauge("berth_worker_dead_letters", "Dead letters about which nobody has decided yet")
PULL_RENEWALS = Counter("berth_worker_pull_renewals_total", "Pull subscriptions made anew", ["reason"])
COMMAND_SECONDS = Histogram(
    "berth_worker_command_seconds", "Time a command took", ["command"], buckets=LATENCIES_SECONDS
)
CONCLUSIONS = Counter("berth_worker_conclusions_total", "How parts of the lifecycle ended", ["state", "code"])
TOOK_SECONDS = {
    "active": Histogram(
        "berth_allocation_active_seconds", "From the request to `active`",
        buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900),
    ),
    "released": Histogram(
        "berth_allocation_release_seconds", "From `releasing` to `released`",
        buckets=(0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 900),
    ),
}  # fmt: skip
FAILURES = Counter("berth_allocation_failures_total", "What went wrong with allocations (docs/failures.md)", ["code"])
for code in Code:
    FAILURES.labels(code.value)
SWEPT = Counter("berth_worker_swept_total", "What sweepers acted upon", ["kind"])
RESCUED = Counter("berth_rescued_total", "Waits that nobody else would have ended, by what was wrong", ["why"])
for why in (
    "overdue_requested", "overdue_provisioning", "overdue_releasing", "overdue_failed", "workflow_lost",
    "workflow_closed", "end_not_told", "task_expired",
):  # fmt: skip
    RESCUED.labels(why)
ORPHANS = Gauge("berth_node_orphans", "Things on nodes that nothing explains, by what was decided", ["state"])
ORPHANS_FOUND = Counter("berth_node_orphans_found_total", "Orphans that this process found")
ALLOCATIONS_MISSING = Gauge(
    "berth_allocations_missing", "Active allocations that their nodes do not hold, by their own inventories"
)
LOG_KEPT = Gauge("berth_log_kept_versions", "Versions that the log keeps in Postgres")
LOG_BLOCKED = Gauge(
    "berth_log_truncation_blocked", "1 while a part of the log is old enough to go and somebody needs it"
)
LOG_CURSOR_LAG = Gauge(
    "berth_log_cursor_lag_versions",
    "Versions that a policy, a consumer, a webhook or dead letters keep in the log; the twenty that need most",
    ["kind", "name", "tenant"],
)
SWEEP_FAILURES = Counter("berth_worker_sweep_failures_total", "Sweeps that could not be done", ["sweeper"])
ALLOCATIONS = Gauge("berth_worker_allocations", "Allocations that are not over, by state", ["state"])
OLDEST_WAIT_SECONDS = Gauge(
    "berth_worker_oldest_wait_seconds", "Longest time an allocation has been waiting", ["state"]
)
TASKS = Gauge("berth_worker_tasks", "Tasks of nodes that are not over, by state", ["state"])
OLDEST_TASK_SECONDS = Gauge("berth_worker_oldest_task_seconds", "Longest time a task has been queued or out", ["state"])
CLAIMS_WAITING = Gauge(
    "berth_worker_claims_waiting", "Claims whose right has ended and whose units are not free yet", ["waits_for"]
)
NODES = Gauge("berth_worker_nodes", "Nodes by state and whether they answer", ["state", "online"])
GPUS = Gauge(
    "berth_worker_gpus",
    "GPUs by pool: in all, and by what their slots are now",
    ["region", "gpu_model", "shape", "kind"],
)
LEDGER_LINES = Counter("berth_metering_lines_total", "Lines that metering wrote into the ledger")
METERING_POSITION = Gauge("berth_metering_position", "The newest event that metering took account of")
METERING_LAG_VERSIONS = Gauge("berth_metering_lag_versions", "Versions of the log that metering has not come to yet")
METERING_LAG_SECONDS = Gauge("berth_metering_lag_seconds", "Age of the first of them")
METERING_STOPPED = Gauge(
    "berth_metering_stopped", "1 while metering cannot go on for a reason that does not pass by itself"
)
BALANCE_EVENTS = Counter("berth_balance_events_total", "Balances that this process found low or used up", ["kind"])
for kind in ("low", "depleted"):
    BALANCE_EVENTS.labels(kind)
BALANCES_LATE_SECONDS = Gauge(
    "berth_balances_late_seconds", "How long ago the balance that is most overdue was to be looked at"
)
WEBHOOK_ATTEMPTS = Counter("berth_webhook_attempts_total", "Attempts to deliver to webhooks", ["outcome"])
for outcome in ("succeeded", "failed"):
    WEBHOOK_ATTEMPTS.labels(outcome)
WEBHOOK_ATTEMPT_SECONDS = Histogram("berth_webhook_attempt_seconds", "Time an attempt took", buckets=LATENCIES_SECONDS)
WEBHOOK_ATTEMPTS_UNDER_WAY = Gauge("berth_webhook_attempts_under_way", "Attempts that this process has under way")
WEBHOOKS = Gauge(
    "berth_webhooks", "Webhooks by state; failing ones are enabled ones whose last attempt failed", ["state"]
)
WEBHOOK_DELIVERIES_PENDING = Gauge("berth_webhook_deliveries_pending", "Deliveries that wait for an attempt")
WEBHOOK_OLDEST_DUE_SECONDS = Gauge("berth_webhook_oldest_due_seconds", "How long the oldest of them has been due")
WEBHOOK_LAG_VERSIONS = Gauge("berth_webhook_lag_versions", "Versions of the log that the webhook furthest behind needs")
WEBHOOKS_DISABLED = Counter(
    "berth_webhooks_disabled_total", "Webhooks that were disabled by what their endpoint did", ["reason"]
)
for reason in ("gone", "failing"):
    WEBHOOKS_DISABLED.labels(reason)
WEBHOOKS_STOPPED = Gauge("berth_webhooks_stopped", "1 while the dispatcher cannot ask the database")
