"""The bare rows of placements by pgbench: the ceiling that the create path is compared with (DESIGN §10)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import psycopg

from berth.local.servers import LocalPostgres

SCRIPT = Path(__file__).with_name("bare_rows.sql")
CLIENTS = 64
THREADS = 2


def bare_rows_per_second(postgres: LocalPostgres, database_url: str, placements: int) -> float:
    """Transactions per second of `placements` placements' rows, one statement each, over 64 connections.

    Raises RuntimeError if any of them failed.
    """
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("create sequence if not exists bench_numbers minvalue 0 start 0")
        connection.execute("alter sequence bench_numbers restart")
        found = connection.execute(
            "select (select count(*) from nodes), (select min(id::text) from tenants)"
        ).fetchone()
        assert found is not None
        nodes, tenant = found
    command = [
        LocalPostgres.program("pgbench"), "--no-vacuum", f"--client={CLIENTS}", f"--jobs={THREADS}", "--protocol=prepared",
        f"--file={SCRIPT}", f"--define=tenant={tenant}", f"--define=nodes={nodes}",
        f"--transactions={placements // CLIENTS}", "--host=127.0.0.1", f"--port={postgres.port}", "--username=postgres",
        database_url.rpartition("/")[2],
    ]  # fmt: skip
    environment = {**os.environ, "PGPASSWORD": postgres.password}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    rate = re.search(r"tps = ([0-9.]+)", done.stdout)
    if done.returncode != 0 or rate is None or "failed transactions: 0 " not in done.stdout:
        raise RuntimeError(f"pgbench: {done.stderr.strip()[-500:]}")
    return float(rate[1])
