"""A small fleet, seeded by SQL, and allocations made the way the create command makes them: by `place_allocations`."""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from orchestrator.database.sqlstates import QUOTA_MOVED
from orchestrator.database.transactions import Database, connect_database
from orchestrator.operations.execution import Context, Limits
from orchestrator.tasks.signing import TaskSigner
from tests.kept_sessions import session

REGION = "north"
PRICE = 1_234_567
GPU_MODEL = "H200"
IMAGE = "ubuntu-24.04"
IMAGE_SHA256 = "ab" * 32
SLICE_SKU = "h200.slice"
METAL_SKU = "h200.metal"
SLOTS = 8
SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ7example seed@test"


@dataclass(frozen=True)
class SeededNode:
    """A node in service, online."""

    id: uuid.UUID
    name: str
    shape: str
    unit_base: int


@dataclass
class Seeded:
    """Ids of what `seed` made."""

    tenant_id: uuid.UUID
    ssh_key_id: uuid.UUID
    pools: dict[str, int] = field(default_factory=dict)
    nodes: list[SeededNode] = field(default_factory=list)


def connect(url: str) -> psycopg.Connection[Any]:
    """An autocommit connection, for looking and seeding; of one that was closed before, if there is one."""
    return session(url)


def make_context(url: str, *, pool_size: int = 4, reserve_size: int = 1, limits: Limits | None = None) -> Context:
    """A context with a new signing key. Close its database in the loop that used it."""
    database: Database = connect_database(
        url,
        pool_size=pool_size,
        reserve_size=reserve_size,
        lock_timeout_seconds=5,
        transaction_timeout_seconds=20,
        application="tests",
    )
    return Context(database, limits or Limits(), TaskSigner(Ed25519PrivateKey.generate()))


def write_signing_key(path: Path) -> Path:
    """A PEM Ed25519 key, as BERTH_TASK_SIGNING_KEY_FILE names one."""
    key = Ed25519PrivateKey.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return path


def write_symmetric_keys(path: Path, number: int = 1) -> Path:
    """Random keys, as BERTH_WEBHOOK_KEY_FILE and BERTH_TEMPORAL_PAYLOAD_KEY_FILE name them."""
    path.write_text("".join(base64.b64encode(os.urandom(32)).decode() + "\n" for _ in range(number)))
    return path


def add_tenant(connection: psycopg.Connection[Any], name: str, gpus_limit: int | None = None) -> Seeded:
    """A tenant with a quota and one SSH key."""
    tenant_id = _one(connection, "insert into tenants (name) values (%s) returning id", name)
    connection.execute("insert into tenant_quotas (tenant_id, gpus_limit) values (%s, %s)", (tenant_id, gpus_limit))
    key = _one(
        connection,
        "insert into ssh_keys (tenant_id, name, public_key, fingerprint) values (%s, 'seed', %s, %s) returning id",
        tenant_id,
        SSH_KEY,
        f"SHA256:{tenant_id}",
    )
    return Seeded(tenant_id, key)


def seed(url: str, *, slice_nodes: int = 1, metal_nodes: int = 0, gpus_limit: int | None = None) -> Seeded:
    """A tenant, one region, one image, a SKU of each shape, and nodes of eight slots in two halves, all online."""
    with connect(url) as connection:
        connection.execute("insert into regions (name, display_name) values (%s, 'North')", (REGION,))
        connection.execute(
            "insert into images (name, url, sha256, shapes) values (%s, 'file:///image', %s, %s)",
            (IMAGE, IMAGE_SHA256, ["baremetal", "gpu_slice"]),
        )
        for sku, shape, counts in ((SLICE_SKU, "gpu_slice", [1, 2, 4, 8]), (METAL_SKU, "baremetal", [SLOTS])):
            connection.execute(
                "insert into skus (name, shape, gpu_model, allowed_counts, default_image, price_micro_per_gpu_second)"
                " values (%s, %s, %s, %s, %s, %s)",
                (sku, shape, GPU_MODEL, counts, IMAGE, PRICE),
            )
        seeded = add_tenant(connection, "acme", gpus_limit)
        for shape, count in (("gpu_slice", slice_nodes), ("baremetal", metal_nodes)):
            seeded.pools[shape] = _one(
                connection,
                "insert into pools (region, gpu_model, shape) values (%s, %s, %s) returning id",
                REGION,
                GPU_MODEL,
                shape,
            )
            for number in range(count):
                node = add_node(connection, seeded.pools[shape], f"{shape.replace('_', '-')}-{number}", shape)
                seeded.nodes.append(node)
        return seeded


def add_node(connection: psycopg.Connection[Any], pool_id: int, name: str, shape: str) -> SeededNode:
    """A node of eight slots, enrolled once, active and online."""
    base: int = _one(connection, "select coalesce(max(unit) + 1, 1) from slots")
    node_id = _one(
        connection,
        """insert into nodes (name, pool_id, region, gpu_model, shape, slot_count, half_slots, unit_base, state, online,
               free_mask, fit_class, epoch, last_seen_at)
           values (%s, %s, %s, %s, %s, %s, %s, %s, 'active', true, %s, %s, 1, clock_timestamp()) returning id""",
        name,
        pool_id,
        REGION,
        GPU_MODEL,
        shape,
        SLOTS,
        SLOTS // 2,
        base,
        (1 << SLOTS) - 1,
        (SLOTS // 2) * 64 + SLOTS // 2,
    )
    for index in range(SLOTS):
        connection.execute(
            "insert into slots (unit, node_id, slot_index, numa_half) values (%s, %s, %s, %s)",
            (base + index, node_id, index, index * 2 // SLOTS),
        )
    return SeededNode(node_id, name, shape, base)


def create_many(url: str, seeded: Seeded, count: int, **options: Any) -> list[uuid.UUID]:
    """As `create_allocation`, several in one transaction."""
    with connect(url) as connection:
        items = [_item(seeded, n, **options) for n in range(count)]
        return _place(connection, items)


def create_allocation(url: str, seeded: Seeded, **options: Any) -> uuid.UUID:
    """A requested allocation. Options: gpus (1), shape ("gpu_slice"), start_seconds (300), key, name, labels, ends_at."""
    return create_many(url, seeded, 1, **options)[0]


def try_create(connection: psycopg.Connection[Any], seeded: Seeded, **options: Any) -> uuid.UUID | None:
    """A requested allocation, or None if there is no room or no quota."""
    answers = _answers(connection, [_item(seeded, 0, **options)])
    found = answers[0].get("allocation_id")
    return None if found is None else uuid.UUID(found)


def outcome_of_create(connection: psycopg.Connection[Any], seeded: Seeded, **options: Any) -> str:
    """What becomes of a create: `created`, or the word for why not."""
    (answer,) = _answers(connection, [_item(seeded, 0, **options)])
    return str(answer["outcome"])


def _item(
    seeded: Seeded,
    n: int,
    *,
    gpus: int = 1,
    shape: str = "gpu_slice",
    start_seconds: float = 300.0,
    key: str | None = None,
    name: str | None = None,
    labels: dict[str, str] | None = None,
    ends_at: datetime | None = None,
) -> dict[str, Any]:
    ends = {} if ends_at is None else {"ends_at": ends_at.isoformat(), "window_seconds_max": 86_400.0}
    metal = shape == "baremetal"
    gpus = SLOTS if metal else gpus
    fits = [(low, high) for low in range(SLOTS + 1) for high in range(SLOTS + 1 - low) if low + high >= gpus]
    takes = [(min(low, gpus), gpus - min(low, gpus)) for low, _ in fits]
    return ends | {
        "n": n,
        "tenant_id": str(seeded.tenant_id),
        "key": key or uuid.uuid4().hex,
        "fingerprint": "00" * 32,
        "retire_seconds": 86400,
        "correlation_id": str(uuid.uuid4()),
        "request_id": None,
        "actor_id": "seed",
        "sku": METAL_SKU if metal else SLICE_SKU,
        "sku_row_version": 1,
        "shape": shape,
        "gpu_model": GPU_MODEL,
        "gpus": gpus,
        "region": REGION,
        "pool_id": seeded.pools[shape],
        "image": IMAGE,
        "image_row_version": 1,
        "price_version": 1,
        "name": name,
        "labels": labels or {},
        "user_data": None,
        "ssh_key_ids": [str(seeded.ssh_key_id)],
        "classes": [low * 64 + high for low, high in fits],
        "lows": [low for low, _ in takes],
        "highs": [high for _, high in takes],
        "wait": True,
        "start_seconds": start_seconds,
    }


def _answers(connection: psycopg.Connection[Any], items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    statement, listed = "select place_allocations(%s::jsonb, %s)", json.dumps(items)
    try:
        row = connection.execute(statement, (listed, False)).fetchone()
    except psycopg.DatabaseError as error:
        # A rival had of the quota meanwhile: it is locked first then, as the command does.
        if error.sqlstate != QUOTA_MOVED:
            raise
        row = connection.execute(statement, (listed, True)).fetchone()
    assert row is not None
    answers: list[dict[str, Any]] = sorted(row[0], key=lambda answer: answer["n"])
    return answers


def _place(connection: psycopg.Connection[Any], items: Sequence[dict[str, Any]]) -> list[uuid.UUID]:
    answers = _answers(connection, items)
    refused = [answer for answer in answers if answer["outcome"] != "created"]
    assert not refused, refused
    return [uuid.UUID(answer["allocation_id"]) for answer in answers]


def _one(connection: psycopg.Connection[Any], statement: str, *values: Any) -> Any:
    row = connection.execute(statement, values).fetchone()
    assert row is not None
    return row[0]
