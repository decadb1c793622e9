"""Requests that hold and confirm, made beforehand: path, body and API key of each."""

from __future__ import annotations

import json

import psycopg

from benchmarks.seeding import BenchTenant

HOLDER = "benchmark"


def list_slots(url: str) -> list[str]:
    """The names of all slots, in no order."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("select 'slot:' || node_id || ':' || slot_index from slots order by random()")
        return [row[0] for row in rows]


def make_holds(units: list[str], tenants: list[BenchTenant], ttl_seconds: int) -> list[list[str]]:
    """A hold of each."""
    return [
        [
            "/api/v1/reservations",
            json.dumps({"resources": [unit], "holder_id": HOLDER, "ttl_seconds": ttl_seconds}),
            tenants[number % len(tenants)].api_key,
        ]
        for number, unit in enumerate(units)
    ]


def make_confirms(url: str, tenants: list[BenchTenant]) -> list[list[str]]:
    """A confirm of each hold that there is."""
    keys = {tenant.tenant_id: tenant.api_key for tenant in tenants}
    body = json.dumps({"holder_id": HOLDER})
    with psycopg.connect(url) as connection:
        rows = connection.execute("select id, tenant_id from reservations where state = 'hold' order by random()")
        return [[f"/api/v1/reservations/{row[0]}/confirm", body, keys[str(row[1])]] for row in rows]
