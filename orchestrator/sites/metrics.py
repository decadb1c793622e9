"""What the node listener counts of sites."""

from __future__ import annotations

from prometheus_client import Counter

TASKS_LEASED = Counter("berth_site_tasks_leased_total", "Tasks about BMCs handed to agents of sites")
LEASES_REFUSED = Counter(
    "berth_site_leases_refused_total", "Requests for the lease of a site that another process holds"
)
