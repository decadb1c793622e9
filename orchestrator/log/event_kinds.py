"""What the document of events states of each type: its readers, its meaning, and the members of its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from berth.process.json_objects import JsonObject
from orchestrator.log.event_members import Schema


class Visibility(StrEnum):
    """The readers of an event; operators read every event."""

    TENANT = "tenant"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class EventKind:
    """An event type: its visibility, its meaning, and the required and optional members of its data."""

    visibility: Visibility
    summary: str
    required: Mapping[str, Schema]
    optional: Mapping[str, Schema] = field(default_factory=dict)

    def schema(self) -> JsonObject:
        """Return the JSON Schema of the data."""
        return {
            "type": "object",
            "properties": {name: dict(schema) for name, schema in {**self.required, **self.optional}.items()},
            "required": list(self.required),
        }
