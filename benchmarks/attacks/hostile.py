"""A tenant that creates and releases over TLS beside 2,000 hostile connections from other addresses: its p99, and the memory."""

from __future__ import annotations

from benchmarks.attacks.attacking import attacking
from benchmarks.attacks.hostile_connections import Plan
from benchmarks.attacks.loopback import HOSTILE_SOURCES, raise_files_max
from benchmarks.attacks.quiet_tenant import create_and_release, p99_ms, statuses
from benchmarks.figures import Figure
from benchmarks.running import bench, memory_megabytes, with_environment
from berth.local.processes import orchestrator_plan
from berth.local.servers import free_port

NODES = 2_000
CONNECTIONS = 2_000
CYCLES = 250
ATTACK_SECONDS_MAX = 240.0
P99_MS_MAX = 1_000.0
MEGABYTES_MAX = 400.0


def run(quick: bool) -> list[Figure]:
    """Half of the tenant's requests keep their connection, the other half open one each."""
    cycles = CYCLES // 10 if quick else CYCLES
    raise_files_max(8 * CONNECTIONS)
    with bench() as servers:
        url, (quiet, hostile, *_) = servers.fleet(NODES)
        endpoints, authority = servers.endpoints(url), servers.authority
        api = servers.start(
            with_environment(
                orchestrator_plan("public", endpoints, authority, free_port()),
                BERTH_PUBLIC_TLS_CERTIFICATE_FILE=str(authority.listener_certificate),
                BERTH_PUBLIC_TLS_KEY_FILE=str(authority.listener_key),
            )
        )
        port = endpoints.public_port
        alone = create_and_release(port, authority.ca_certificate, quiet, cycles)
        plan = Plan(port, CONNECTIONS, HOSTILE_SOURCES, hostile.api_key, ATTACK_SECONDS_MAX)
        with attacking("benchmarks.attacks.hostile_connections", plan) as attack:
            beside = create_and_release(port, authority.ca_certificate, quiet, cycles)
            megabytes = memory_megabytes(api)
            if not attack.runs:
                raise RuntimeError("the attack ended before the tenant's last request")
    if set(statuses(beside)) != {201, 202}:
        raise RuntimeError(f"not every request of the tenant succeeded: {statuses(beside)}")
    note = f"{p99_ms(alone):.1f} ms alone, {len(beside)} requests beside {CONNECTIONS:,} connections"
    return [
        Figure("hostile_tenant_p99", p99_ms(beside), "ms", P99_MS_MAX, note=note),
        Figure("hostile_memory_api", megabytes, "MB", MEGABYTES_MAX),
    ]
