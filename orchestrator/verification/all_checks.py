"""All checks, in one read-only snapshot that several connections share."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack

import psycopg
from psycopg.sql import SQL

from orchestrator.verification.archived import check_archived
from orchestrator.verification.audit_chain import check_audit_chain
from orchestrator.verification.billing import check_billing
from orchestrator.verification.counted import check_counts
from orchestrator.verification.deleted_tenants import check_deleted_tenants
from orchestrator.verification.derived import check_fit, check_quotas
from orchestrator.verification.fleet.leased_networks import check_leased_networks
from orchestrator.verification.maintenance import check_maintenance
from orchestrator.verification.p1_one_holder import check_one_holder
from orchestrator.verification.p2_reservations import check_reserved_together
from orchestrator.verification.p2_together import check_together
from orchestrator.verification.p3_one_order import check_one_order
from orchestrator.verification.p4_one_answer import check_one_answer
from orchestrator.verification.p5_late_never_early import check_late_never_early
from orchestrator.verification.p6_owned_claims import check_owned_claims
from orchestrator.verification.p6_proven_cleanup import check_proven_cleanup
from orchestrator.verification.p6_removed_login_data import check_removed_login_data
from orchestrator.verification.p7_newest_fence import check_newest_fence
from orchestrator.verification.p8_final_states import check_final_states
from orchestrator.verification.p8_reservation_paths import check_reservation_paths
from orchestrator.verification.p9_complete_waits import check_complete_waits
from orchestrator.verification.p13_bounds import check_bounds
from orchestrator.verification.units import check_units
from orchestrator.verification.verdict import Bounds, Connection, Verdict
from orchestrator.verification.wipe_certificates import check_wipe_certificates

TRANSACTION_SECONDS_MAX = 600
"""An old snapshot keeps dead rows alive in the hot tables, so even a checker may not look for ever."""

CONNECTIONS = 2
"""More would take from a busy database what its requests need."""

Check = Callable[[Connection, Bounds], Verdict]
CHECKS: tuple[Check, ...] = (
    check_one_holder,
    check_together,
    check_reserved_together,
    check_one_order,
    check_one_answer,
    check_late_never_early,
    check_proven_cleanup,
    check_removed_login_data,
    check_owned_claims,
    check_wipe_certificates,
    check_leased_networks,
    check_maintenance,
    check_newest_fence,
    check_final_states,
    check_reservation_paths,
    check_complete_waits,
    check_bounds,
    check_units,
    check_fit,
    check_quotas,
    check_counts,
    check_billing,
    check_deleted_tenants,
    check_archived,
    check_audit_chain,
)
COSTLIEST: tuple[Check, ...] = (
    check_together,
    check_newest_fence,
    check_one_order,
    check_final_states,
    check_audit_chain,
    check_one_holder,
    check_proven_cleanup,
    check_billing,
    check_one_answer,
)
"""By their time over 100,000 ended allocations (`python -m benchmarks.verify --each`)."""


def run_checks(database_url: str, bounds: Bounds | None = None) -> list[Verdict]:
    """Every verdict on one snapshot (REPEATABLE READ, read only), in the order of `CHECKS`.

    Several connections share the snapshot and take the checks that are left. Raises `psycopg.Error` if it cannot be read; then,
    and on an interrupt, what the other connections run is cancelled.
    """
    judged = bounds or Bounds()
    waiting = deque(sorted(CHECKS, key=_place_by_cost))
    verdicts: dict[Check, Verdict] = {}
    with ExitStack() as held:
        connections = _connect(database_url, held)
        # Last in, first out: the threads have ended before their connections are closed.
        threads = held.enter_context(ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="verify"))
        running = [threads.submit(_take_checks, connection, waiting, judged, verdicts) for connection in connections]
        try:
            for done in as_completed(running):
                done.result()
        except BaseException:
            waiting.clear()
            for connection in connections:
                connection.cancel_safe()
            raise
    return [verdicts[check] for check in CHECKS]


def _connect(database_url: str, held: ExitStack) -> list[Connection]:
    """Connections whose transactions share the snapshot of the first."""
    connections: list[Connection] = []
    snapshot = ""
    for _ in range(CONNECTIONS):
        connection = held.enter_context(psycopg.connect(database_url))
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        if connections:
            connection.execute(SQL("set transaction snapshot {}").format(snapshot))
        else:
            # Before the snapshot: a partition that is dropped after it is missing although the snapshot has it.
            connection.execute("lock table log in access share mode")
        # Each query runs once over all rows: compiling it costs more than it saves.
        connection.execute("set local jit = off")
        connection.execute("set local work_mem = '64MB'")
        connection.execute("select set_config('transaction_timeout', %s, true)", (f"{TRANSACTION_SECONDS_MAX}s",))
        if not connections:
            (snapshot,) = connection.execute("select pg_export_snapshot()").fetchone() or ("",)
        connections.append(connection)
    return connections


def _take_checks(connection: Connection, waiting: deque[Check], bounds: Bounds, verdicts: dict[Check, Verdict]) -> None:
    """Run checks that no other connection has taken, until none is left."""
    while True:
        try:
            check = waiting.popleft()
        except IndexError:
            return
        began = time.monotonic()
        verdict = check(connection, bounds)
        verdict.seconds = time.monotonic() - began
        verdicts[check] = verdict


def _place_by_cost(check: Check) -> int:
    """The costliest checks start first, so that the connections end together."""
    return COSTLIEST.index(check) if check in COSTLIEST else len(COSTLIEST)
