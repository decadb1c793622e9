"""Hostile connections beside a tenant: each of its requests succeeds, and the process keeps its memory.

Its times are a figure of `python -m benchmarks --only hostile`, because machines that run tests are shared.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.attacks.attacking import attacking
from benchmarks.attacks.hostile_connections import ATTACKS, Plan
from benchmarks.attacks.loopback import HOSTILE_SOURCES, raise_files_max
from benchmarks.attacks.quiet_tenant import create_and_release, statuses
from benchmarks.running import memory_megabytes
from benchmarks.seeding import seed_fleet, seed_tenants
from berth.local.authority import ensure_authority
from berth.local.processes import ChildProcess, Endpoints, orchestrator_plan
from berth.local.servers import free_port
from tests.databases import as_roles

MEGABYTES_MAX = 400.0
ATTACK_SECONDS_MAX = 240.0


# `make test` has every kind of attack with 400 connections; 2,000 take half a minute of a processor.
@pytest.mark.parametrize(("connections", "cycles"), [(400, 5), pytest.param(2_000, 15, marks=pytest.mark.full)])
def test_a_tenant_creates_and_releases_beside_hostile_connections(
    database_url: str, tmp_path: Path, connections: int, cycles: int
) -> None:
    """Slow heads and bodies, huge heads, trailers, half handshakes, random keys and unread documents, from eight addresses."""
    seed_fleet(database_url, 50)
    quiet, hostile = seed_tenants(database_url, 2)
    raise_files_max(8 * connections)
    authority = ensure_authority(tmp_path, "berth.local")
    endpoints = Endpoints(database_url, "", "", free_port(), free_port(), as_roles(database_url))
    process = ChildProcess(orchestrator_plan("public", endpoints, authority, free_port()), tmp_path / "api.log")
    process.spawn(
        {
            "BERTH_PUBLIC_TLS_CERTIFICATE_FILE": str(authority.listener_certificate),
            "BERTH_PUBLIC_TLS_KEY_FILE": str(authority.listener_key),
        }
    )
    try:
        process.wait_ready()
        plan = Plan(endpoints.public_port, connections, HOSTILE_SOURCES, hostile.api_key, ATTACK_SECONDS_MAX)
        megabytes = []
        with attacking("benchmarks.attacks.hostile_connections", plan) as attack:
            megabytes.append(memory_megabytes(process))
            done = create_and_release(endpoints.public_port, authority.ca_certificate, quiet, cycles)
            megabytes.append(memory_megabytes(process))
            assert attack.runs, "the attack lasts as long as the tenant"
        assert statuses(done) == {201: 2 * cycles, 202: 2 * cycles}
        assert max(megabytes) < MEGABYTES_MAX
        opened = attack.report["opened"]
        assert opened.keys() == ATTACKS.keys()
        assert sum(opened.values()) >= connections
        assert "500" not in attack.report["statuses"]
    finally:
        process.terminate()
        process.wait_ended()
    assert process.log.read_text().count('"level":"error"') == 0
