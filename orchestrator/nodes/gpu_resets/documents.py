"""Resets of GPUs as operators see them: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from typing import Any

from orchestrator.nodes.burn_ins.documents import slot_work_document
from orchestrator.nodes.store.gpu_resets import GpuReset


def gpu_reset_document(found: GpuReset) -> dict[str, Any]:
    """The JSON of a reset."""
    return slot_work_document(found, gpus=found.gpus)
