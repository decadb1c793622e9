"""The bare rows of placements by pgbench, over the present schema and over a frozen copy (DESIGN §10).

The frozen copy, `benchmarks/bare_rows_r1`, is the denominator of the budgets: it stays when the schema becomes faster.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import psycopg

from benchmarks.seeding import empty_tables
from berth.local.servers import LocalPostgres

PRESENT = Path(__file__).with_name("bare_rows.sql")
FROZEN = Path(__file__).with_name("bare_rows_r1")
FROZEN_TENANT = "00000000-0000-7000-8000-000000000001"
SESSIONS = {1: 3_000, 2: 5_000, 8: 9_600, 64: 12_800}
"""Session counts that rates are compared with, and placements of one round."""
THREADS = 2


def bare_rows_per_second(postgres: LocalPostgres, database_url: str, placements: int, sessions: int = 64) -> float:
    """Transactions per second of `placements` placements' rows over the present schema, one statement each.

    Raises RuntimeError if any of them failed.
    """
    with psycopg.connect(database_url) as connection:
        row = connection.execute("select min(id::text) from tenants").fetchone()
    assert row is not None
    return _pgbench(postgres, database_url, PRESENT, str(row[0]), placements, sessions)


class FrozenRows:
    """A database of the frozen schema."""

    def __init__(self, postgres: LocalPostgres, nodes: int) -> None:
        self._postgres = postgres
        with psycopg.connect(postgres.url("postgres"), autocommit=True) as connection:
            connection.execute("create database bare_rows_r1")
        self._url = postgres.url("bare_rows_r1")
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute((FROZEN / "schema.sql").read_bytes())
            # Several statements in one text: parameters are bound on the client's side.
            with psycopg.ClientCursor(connection) as cursor:
                cursor.execute((FROZEN / "fleet.sql").read_bytes(), {"nodes": nodes})
            connection.execute("vacuum (analyze)")

    def per_second(self, placements: int, sessions: int = 64) -> float:
        """Transactions per second of `placements` placements' rows, from an empty fleet. Raises RuntimeError on failure."""
        empty_tables(self._url)
        return _pgbench(self._postgres, self._url, FROZEN / "statement.sql", FROZEN_TENANT, placements, sessions)


def _pgbench(
    postgres: LocalPostgres, database_url: str, script: Path, tenant: str, placements: int, sessions: int
) -> float:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create sequence if not exists bench_numbers minvalue 0 start 0")
        connection.execute("alter sequence bench_numbers restart")
        row = connection.execute("select count(*) from nodes").fetchone()
    assert row is not None
    command = [
        LocalPostgres.program("pgbench"), "--no-vacuum", f"--client={sessions}", f"--jobs={min(THREADS, sessions)}",
        "--protocol=prepared", f"--file={script}", f"--define=tenant={tenant}", f"--define=nodes={row[0]}",
        f"--transactions={placements // sessions}", "--host=127.0.0.1", f"--port={postgres.port}", "--username=postgres",
        database_url.rpartition("/")[2],
    ]  # fmt: skip
    environment = {**os.environ, "PGPASSWORD": postgres.password}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    rate = re.search(r"tps = ([0-9.]+)", done.stdout)
    if done.returncode != 0 or rate is None or "failed transactions: 0 " not in done.stdout:
        raise RuntimeError(f"pgbench: {done.stderr.strip()[-500:]}")
    return float(rate[1])
