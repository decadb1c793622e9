"""Resets of GPUs as operators see them: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from berth.process.json_objects import JsonObject
from orchestrator.nodes.burn_ins.documents import slot_work_document
from orchestrator.nodes.store.gpu_resets import GpuReset


def gpu_reset_document(found: GpuReset) -> JsonObject:
    """The JSON of a reset."""
    return slot_work_document(found, gpus=found.gpus)
