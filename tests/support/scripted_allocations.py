"""Responses about one allocation, for a scripted server."""

from __future__ import annotations

import uuid
from typing import Any

from berth import client as berth
from berth.client import Client

ID = uuid.UUID(int=7)


TIME = "2026-01-01T00:00:00.000000Z"


CREATED = {
    "allocation_id": str(ID), "status": "requested", "sku": "s", "shape": "gpu_slice", "gpus": 1, "region": "eu-1",
    "image": "i", "name": None, "labels": {}, "correlation_id": str(ID), "requested_at": TIME, "added_later": [1],
}  # fmt: skip


def allocation(status: str, **more: object) -> dict[str, object]:
    return {**CREATED, "tenant_id": str(ID), "gpu_model": "H100", "row_version": 1, "status": status, **more}


def create(to: Client, **more: Any) -> berth.CreatedAllocation:
    return to.create_allocation(sku="s", gpus=1, region="eu-1", ssh_key_ids=[ID], **more)
