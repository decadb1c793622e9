"""What the API counts. Labels come from small fixed sets, never from input."""

from __future__ import annotations

from prometheus_client import REGISTRY, Counter, Gauge, Histogram

from node_agent.wire.fields import UNKNOWN_MEMBERS

LATENCIES_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)

REQUESTS = Counter("berth_api_requests_total", "HTTP responses sent", ["zone", "method", "status"])
REQUEST_SECONDS = Histogram(
    "berth_api_request_seconds", "Duration of a request in seconds", ["zone"], buckets=LATENCIES_SECONDS
)
IN_FLIGHT = Gauge(
    "berth_api_requests_in_flight", "Requests in flight, without those that wait or that end something", ["zone"]
)
WAITING = Gauge(
    "berth_api_requests_waiting", "Requests that wait for a turn of their principal or a version of the log"
)
CONNECTIONS_MAX = Gauge(
    "berth_api_connections_max",
    "Connections that a listener accepts: the setting, or what open files allow",
    ["listener"],
)
CONNECTIONS_REFUSED = Counter(
    "berth_api_connections_refused_total", "Connections ended before a request, by reason", ["reason"]
)
FAILED_ATTEMPTS = Counter(
    "berth_api_failed_attempts_total", "Requests with a wrong credential, by whether it was looked up", ["result"]
)
AUDIT_LOST = Counter("berth_api_audit_lost_total", "Refusals and reads whose audit row was not written")
PROBLEMS = Counter("berth_api_problems_total", "Problem documents sent", ["code"])
COMBINED = Counter("berth_api_combined_total", "Creates, holds and confirms by outcome", ["kind", "outcome"])
COMBINED_LIST_SIZE = Histogram(
    "berth_api_combined_list_size",
    "Requests per combined transaction",
    ["kind"],
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
)
COMBINED_LIGHT = Counter(
    "berth_api_combined_light_total", "Requests combined in batches of light requests alone", ["kind"]
)
COMBINING_QUEUE = Gauge("berth_api_combining_queue", "Requests queued for a combined transaction", ["kind"])
LIMITED = Counter("berth_api_limited_total", "Requests refused by a limit of their principal", ["limit"])
COALESCED = Counter(
    "berth_api_coalesced_total",
    "Repetitions that waited for the transaction of an identical request, by outcome",
    ["end"],
)
RESERVE_CLAIMS = Counter(
    "berth_api_reserve_claims_total",
    "Requests that needed the reserve of connections, by what the caller is",
    ["caller"],
)
GATE_HITS = Counter("berth_api_gate_hits_total", "Duplicate requests answered from the gate's cache", ["answer"])
GATE_WAITS = Counter("berth_api_gate_waits_total", "Duplicate requests that waited for the first, by outcome", ["end"])
GATE_EVICTIONS = Counter("berth_api_gate_evictions_total", "Responses evicted from the full gate before expiry")
GATE_OVERFLOWS = Counter("berth_api_gate_overflows_total", "Operations that bypassed the full gate")
GATE_ENTRIES = Gauge("berth_api_gate_entries", "Operations in the gate, by state", ["state"])
GATE_BYTES = Gauge("berth_api_gate_bytes", "Memory of the responses in the gate")
TASKS_DISPATCHED = Counter("berth_api_tasks_dispatched_total", "Tasks leased to nodes, by kind", ["kind"])
TASK_WAIT_SECONDS = Histogram(
    "berth_api_task_queued_seconds", "Seconds from queued to dispatched", buckets=LATENCIES_SECONDS
)
TOKENS = Counter("berth_api_tokens_total", "Requests with an OIDC token, by result", ["result"])
ISSUER_FETCHES = Counter("berth_api_issuer_fetches_total", "Fetches of the issuer's keys, by result", ["result"])
ISSUER_KEYS_FETCHED_AT = Gauge(
    "berth_api_issuer_keys_fetched_timestamp_seconds", "Unix time of the last fetch of the issuer's keys"
)
KEY_SET_SERIAL = Gauge("berth_api_key_set_serial", "Serial of the key set that agents get")
NODES_WAITING = Gauge("berth_api_nodes_waiting", "Nodes with an open long poll")
FEED_SUBSCRIBERS = Gauge("berth_api_feed_subscribers", "Open streams of the log")
FEED_EVENTS = Counter("berth_api_feed_events_total", "Events that the tail of the log has read")
FEED_ENDED = Counter("berth_api_feed_ended_total", "Streams of the log that ended, by reason", ["reason"])
NOTIFICATION_SOCKETS = Gauge("berth_api_notification_sockets", "Open sockets of notifications")
NOTIFICATIONS_ENDED = Counter(
    "berth_api_notifications_ended_total", "Sockets of notifications that ended, by reason", ["reason"]
)
NOTIFICATION_POSITIONS = Counter(
    "berth_api_notification_positions_total", "Subscription positions stored, by result", ["result"]
)
REGISTRY.register(UNKNOWN_MEMBERS)
