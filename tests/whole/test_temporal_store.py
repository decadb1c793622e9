"""Temporal's database holds no id, name, label or key of a run: everything except ids of events is encrypted or a digest."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.allocations.driving import rows_of
from tests.support.whole_stack import Tenant, Whole
from worker.payloads import load_payload_keys


def stored_by_temporal(directory: Path) -> bytes:
    """Every byte of Temporal's SQLite database. Its log comes first: a checkpoint copies from there into the file."""
    files = [directory / "temporal.db-wal", directory / "temporal.db"]
    assert all(file.stat().st_size for file in files)
    return b"\0".join(file.read_bytes() for file in files)


def forms_of(value: object) -> Iterator[bytes]:
    """How a value may be stored: as text, and an id as 32 digits or 16 bytes too."""
    yield str(value).encode()
    if isinstance(value, uuid.UUID):
        yield value.hex.encode()
        yield value.bytes


# Long. tests/worker/test_payloads.py reads what Temporal stores in `make test`.
@pytest.mark.full
def test_temporal_stores_no_id_name_label_or_key_of_a_run(whole: Whole, tenant: Tenant) -> None:
    name, label, value, user_data = (f"x{secrets.token_hex(8)}" for _ in range(4))
    made = tenant.client.create_allocation(
        sku="h100.slice", gpus=1, region="eu-1", ssh_key_ids=[tenant.ssh_key_id], name=name, labels={label: value},
        user_data=f"#!/bin/sh\n# {user_data}",
    )  # fmt: skip
    tenant.wait(made, "active")
    tenant.client.release_allocation(made.allocation_id)
    tenant.wait(made, "released")

    url, id_text = whole.stack.endpoints.database_url, str(made.allocation_id)
    (row,) = rows_of(
        url,
        """select a.correlation_id, t.name, n.id, n.name from allocations a
           join tenants t on t.id = a.tenant_id join nodes n on n.id = a.node_id where a.id = %s""",
        id_text,
    )
    tasks = [row[0] for row in rows_of(url, "select id from node_tasks where allocation_id = %s", id_text)]
    events = rows_of(
        url,
        """select event_type, event_id from log where payload->>'allocation_id' = %s
           and event_type in ('provisioning.requested', 'provisioning.releasing.requested')""",
        id_text,
    )
    assert len(tasks) == len(events) == 2
    public_key = tenant.private_key.export_public_key().decode().split()[1]
    of_run = [
        made.allocation_id, tenant.id, tenant.ssh_key_id, tenant.api_key_id, *row, *tasks,
        name, label, value, user_data, public_key, tenant.api_key, "h100.slice",
    ]  # fmt: skip

    stored = stored_by_temporal(whole.server("temporal").directory)
    assert [found for found in of_run if any(form in stored for form in forms_of(found))] == []
    assert b"traceparent" not in stored, "headers are encrypted as well"
    # What stays readable: the event that started a workflow, and a digest in the place of its tenant.
    prefixes = {"provisioning.requested": "provisioning", "provisioning.releasing.requested": "releasing"}
    assert all(f"{prefixes[kind]}-{event_id}".encode() in stored for kind, event_id in events)
    keys = load_payload_keys(whole.stack.authority.payload_keys)
    assert keys.digest(str(tenant.id)).encode() in stored
