"""2,000 hostile connections from one address: a tenant at another one is served, and the process's memory stays bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.attacked import ATTACKER, CONNECTIONS, MEGABYTES_MAX, create_and_release
from benchmarks.hostile_connections import attacked
from benchmarks.seeding import seed_fleet, seed_tenants
from berth.local.authority import ensure_authority
from tests.api.processes import metric_of, public_process

PAIRS = 40


# Each kind of connection alone: test_connections.py, test_tls.py, test_unknown_keys.py, test_failed_attempts.py.
@pytest.mark.full
def test_a_tenant_is_served_beside_an_attack(database_url: str, tmp_path: Path) -> None:
    seed_fleet(database_url, 100)
    (tenant,) = seed_tenants(database_url, 1)
    authority = ensure_authority(tmp_path, "berth.local")
    tls = {
        "BERTH_PUBLIC_TLS_CERTIFICATE_FILE": str(authority.listener_certificate),
        "BERTH_PUBLIC_TLS_KEY_FILE": str(authority.listener_key),
    }
    memory: list[float] = []
    served: list[int] = []
    with public_process(database_url, tmp_path / "api", tls) as http:
        port = http.base_url.port or 0
        with attacked(port, CONNECTIONS, ATTACKER):
            for one in create_and_release(port, authority.ca_certificate, tenant, PAIRS):
                served.append(one.status)
                memory.append(metric_of(http, "process_resident_memory_bytes") / 1e6)
        refused = metric_of(http, 'berth_api_problems_total{code="too_many_failures"}')
        handshakes = metric_of(http, 'berth_api_connections_refused_total{reason="handshake"}')
    assert set(served) <= {200, 201, 202}, "no 5xx for the tenant, and no other refusal"
    assert len(served) == 2 * PAIRS
    assert max(memory) < MEGABYTES_MAX
    assert refused > 0, "the random keys were slowed down"
    assert handshakes > 0, "the half-open handshakes were ended"
