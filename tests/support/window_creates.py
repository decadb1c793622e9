"""Creates with an end, and the status of their results."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from orchestrator.operations.store.operations import Answer
from orchestrator.placement.store.placing import Create
from orchestrator.problems import Problem
from tests.allocations.seeding import REGION, SLICE_SKU
from tests.reservations.holding import ReservationClient


def create(client: ReservationClient, ends_at: datetime | None) -> Create:
    """A create of one GPU that ends."""
    return Create(
        operation=client.operation(client.seeded.tenant_id), tenant_id=client.seeded.tenant_id, actor_id="test", sku=SLICE_SKU,
        gpus=1, region=REGION, image=None, ssh_key_ids=(client.seeded.ssh_key_id,), name=None, labels={}, user_data=None,
        correlation_id=uuid.uuid4(), ends_at=ends_at,
    )  # fmt: skip


def status_of(result: Answer | Problem) -> Any:
    """The status, or the code of what left no record."""
    return result.status if isinstance(result, Answer) else result.code
