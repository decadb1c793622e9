"""A small catalogue and fleet, put straight into the database, and the context that commands run in."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import psycopg

from orchestrator.allocations.commands.create import create_allocations
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.database.transactions import connect_database
from orchestrator.operations.execution import Context, Limits, Result
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.placement.store.placing import Create
from orchestrator.problems import Problem

SEED = """
insert into regions values ('eu-1', 'Europe'), ('us-1', 'America');
insert into images (name, url, sha256, shapes) values ('ubuntu', 'file:///none', repeat('0', 64), '{gpu_slice,baremetal}');
insert into images (name, url, sha256, shapes) values ('metal-only', 'file:///none', repeat('0', 64), '{baremetal}');
insert into skus (name, shape, gpu_model, allowed_counts, default_image) values
    ('h100.slice', 'gpu_slice', 'H100', '{1,2,4,8,16}', 'ubuntu'), ('h100.metal', 'baremetal', 'H100', '{8}', 'ubuntu'),
    ('b200.slice', 'gpu_slice', 'B200', '{1}', 'ubuntu');
insert into pools (region, gpu_model, shape) values ('eu-1', 'H100', 'gpu_slice'), ('us-1', 'H100', 'baremetal');
"""
ADD_NODES = """
with made as (
    insert into nodes (name, pool_id, region, gpu_model, shape, slot_count, half_slots, unit_base, state, online,
                       free_mask, fit_class)
    select 'node-' || nextval('unit_numbers'), p.id, p.region, p.gpu_model, p.shape, 8, 4,
           (select coalesce(max(unit_base), 0) from nodes) + 8 * g, 'active', true, 255, 4 * 64 + 4
    from pools p, generate_series(1, %s) g where p.shape = %s returning *
) insert into slots select unit_base + i, id, i, (i >= 4)::int from made, generate_series(0, 7) i
"""


@dataclass(frozen=True)
class Tenant:
    """A tenant with one SSH key."""

    id: UUID
    ssh_key: UUID


class Fleet:
    """The seeded database. `seeded`: it is already, as a copy of one is."""

    def __init__(self, url: str, *, slice_nodes: int = 0, metal_nodes: int = 0, seeded: bool = False) -> None:
        self.url = url
        self.connection = psycopg.connect(url, autocommit=True)
        if not seeded:
            self.connection.execute(SEED)
        self.connection.execute(ADD_NODES, (slice_nodes, "gpu_slice"))
        self.connection.execute(ADD_NODES, (metal_nodes, "baremetal"))

    def tenant(self, gpus_limit: int | None = None) -> Tenant:
        """A new tenant."""
        own, key = uuid.uuid4(), uuid.uuid4()
        self.connection.execute("insert into tenants (id, name) values (%s, %s)", (own, str(own)))
        self.connection.execute("insert into tenant_quotas (tenant_id, gpus_limit) values (%s, %s)", (own, gpus_limit))
        self.connection.execute("insert into ssh_keys values (%s, %s, 'k', 'ssh-ed25519 AAAA', 'f')", (key, own))
        return Tenant(own, key)

    def one(self, sql: str, *parameters: object) -> object:
        """The first column of the first row."""
        row = self.connection.execute(sql, parameters or None).fetchone()
        assert row is not None
        return row[0]

    @staticmethod
    def watcher(url: str) -> psycopg.Connection[tuple[Any, ...]]:
        """Another session, which observes the first ones."""
        return psycopg.connect(url, autocommit=True)

    def overlaps(self) -> object:
        """How many pairs of claims share a unit, in right or in fact."""
        return self.one(
            "select count(*) from claims a join claims b on a.id < b.id and a.units && b.units"
            " where (a.booked and b.booked and a.during && b.during) or (a.occupied and b.occupied)"
        )


def create_of(tenant: Tenant, *, gpus: int = 1, sku: str = "h100.slice", region: str = "eu-1", key: str = "") -> Create:
    """A create as the API would hand it over; the same arguments give the same fingerprint."""
    key = key or str(uuid.uuid4())
    content = f"{sku} {gpus} {region}".encode().ljust(32)
    return Create(
        operation=Operation(tenant.id, key, content[:32], 86_400.0),
        tenant_id=tenant.id, actor_id="test", sku=sku, gpus=gpus, region=region, image=None,
        ssh_key_ids=(tenant.ssh_key,), name=None, labels={}, user_data=None, correlation_id=uuid.uuid4(),
    )  # fmt: skip


def with_image(create: Create, image: str) -> Create:
    """The same create with another image."""
    return replace(create, image=image)


def fresh_fingerprint(create: Create) -> Create:
    """The same key with other content."""
    return replace(create, operation=replace(create.operation, fingerprint=os.urandom(32)))


@asynccontextmanager
async def working(
    url: str, pool_size: int = 8, lock_timeout_seconds: float = 5.0
) -> AsyncIterator[tuple[Context, CatalogueCache]]:
    """A context with its own pool, and a catalogue cache."""
    database = connect_database(
        url,
        pool_size=pool_size,
        reserve_size=1,
        lock_timeout_seconds=lock_timeout_seconds,
        transaction_timeout_seconds=30,
        application="test",
    )
    try:
        yield Context(database, Limits()), CatalogueCache(database, 1.0)
    finally:
        await database.close()


async def create_all(context: Context, catalogue: CatalogueCache, creates: Sequence[Create]) -> list[Result]:
    """The results of all creates; deferred ones are retried alone."""
    results = await create_allocations(context, catalogue, creates)
    return [one if isinstance(one, Answer | Problem) else await one.retry_alone() for one in results]
