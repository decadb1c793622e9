"""Hardware by serial number as operators see it: the JSON of docs/reference/http-api.md."""

from __future__ import annotations

from collections.abc import Sequence

from berth.process.json_objects import JsonObject
from orchestrator.nodes.store.hardware import Entry, Place, Repair
from orchestrator.times import rfc3339


def place_document(place: Place) -> JsonObject:
    """The JSON of a place."""
    return {
        "serial": place.serial,
        "kind": place.kind,
        "model": place.model,
        "node_id": str(place.node_id),
        "slots": place.slots,
        "positions": place.positions,
        "since": rfc3339(place.since),
        "missing_since": rfc3339(place.missing_since),
        "contested_since": rfc3339(place.contested_since),
    }


def hardware_document(serial: str, kind: str, places: Sequence[Place], repair: Repair | None) -> JsonObject:
    """The JSON of a piece of hardware."""
    return {
        "serial": serial,
        "kind": kind,
        "contested": any(place.contested_since is not None for place in places),
        "places": [place_document(place) for place in places],
        "open_repair": None if repair is None else repair_document(repair),
    }


def entry_document(entry: Entry) -> JsonObject:
    """The JSON of an entry of the history."""
    return {
        "id": str(entry.id),
        "serial": entry.serial,
        "kind": entry.kind,
        "happened": entry.happened,
        "happened_at": rfc3339(entry.happened_at),
        "node_id": None if entry.node_id is None else str(entry.node_id),
        "slots": entry.slots,
        "actor": entry.actor,
        "detail": entry.detail,
        "evidence": entry.evidence,
        "reference": None if entry.reference is None else str(entry.reference),
        "contested": entry.contested,
    }


def repair_document(repair: Repair) -> JsonObject:
    """The JSON of a repair."""
    return {
        "id": str(repair.id),
        "serial": repair.serial,
        "kind": repair.kind,
        "reason": repair.reason,
        "opened_at": rfc3339(repair.opened_at),
        "opened_by": repair.opened_by,
        "closed_at": rfc3339(repair.closed_at),
        "closed_by": repair.closed_by,
        "result": repair.result,
    }
