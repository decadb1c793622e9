"""All checks, in one read-only snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from orchestrator.verification.archived import check_archived
from orchestrator.verification.audit_chain import check_audit_chain
from orchestrator.verification.billing import check_billing
from orchestrator.verification.counted import check_counts
from orchestrator.verification.deleted_tenants import check_deleted_tenants
from orchestrator.verification.derived import check_fit, check_quotas
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

TRANSACTION_SECONDS_MAX = 600
"""An old snapshot keeps dead rows alive in the hot tables, so even a checker may not look for ever."""

CHECKS: tuple[Callable[[Connection, Bounds], Verdict], ...] = (
    check_one_holder,
    check_together,
    check_reserved_together,
    check_one_order,
    check_one_answer,
    check_late_never_early,
    check_proven_cleanup,
    check_removed_login_data,
    check_owned_claims,
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


def run_checks(database_url: str, bounds: Bounds | None = None) -> list[Verdict]:
    """Every verdict on one snapshot (REPEATABLE READ, read only). Raises `psycopg.Error` if it cannot be read."""
    verdicts = []
    with psycopg.connect(database_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        # Each query runs once over all rows: compiling it costs more than it saves.
        connection.execute("set local jit = off")
        connection.execute("set local work_mem = '64MB'")
        connection.execute("select set_config('transaction_timeout', %s, true)", (f"{TRANSACTION_SECONDS_MAX}s",))
        for check in CHECKS:
            began = time.monotonic()
            verdict = check(connection, bounds or Bounds())
            verdict.seconds = time.monotonic() - began
            verdicts.append(verdict)
    return verdicts
