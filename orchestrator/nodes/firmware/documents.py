"""Firmware lists as operators see them: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from berth.process.json_objects import JsonObject
from orchestrator.nodes.firmware.store import FirmwareList
from orchestrator.times import rfc3339


def list_document(found: FirmwareList) -> JsonObject:
    """The JSON of a list."""
    return {
        "id": str(found.id),
        "vendor": found.vendor,
        "product": found.product,
        "components": found.components,
        "changed_at": rfc3339(found.changed_at),
        "changed_by": found.changed_by,
    }
