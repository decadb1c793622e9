"""Firmware lists as operators see them: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from typing import Any

from orchestrator.nodes.firmware.store import FirmwareList
from orchestrator.times import rfc3339


def list_document(found: FirmwareList) -> dict[str, Any]:
    """The JSON of a list."""
    return {
        "id": str(found.id),
        "vendor": found.vendor,
        "product": found.product,
        "components": found.components,
        "changed_at": rfc3339(found.changed_at),
        "changed_by": found.changed_by,
    }
