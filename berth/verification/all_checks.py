"""All checks, in one read-only snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg

from berth.verification.derived import check_fit, check_quotas
from berth.verification.p1_one_holder import check_one_holder
from berth.verification.p2_together import check_together
from berth.verification.p3_one_order import check_one_order
from berth.verification.p6_proven_cleanup import check_proven_cleanup
from berth.verification.p8_final_states import check_final_states
from berth.verification.verdict import Connection, Verdict

RETENTION_SECONDS = 86_400.0

CHECKS: tuple[Callable[[Connection], Verdict], ...] = (
    check_one_holder,
    lambda connection: check_together(connection, RETENTION_SECONDS),
    check_one_order,
    check_proven_cleanup,
    check_final_states,
    check_fit,
    check_quotas,
)


def run_checks(database_url: str) -> list[Verdict]:
    """Every verdict on one snapshot (REPEATABLE READ, read only). Raises `psycopg.Error` if it cannot be read."""
    verdicts = []
    with psycopg.connect(database_url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        connection.execute("set local work_mem = '64MB'")
        for check in CHECKS:
            began = time.monotonic()
            verdict = check(connection)
            verdict.seconds = time.monotonic() - began
            verdicts.append(verdict)
    return verdicts
