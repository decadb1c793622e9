"""The virtual devices of a guest as operators see them: the JSON of docs/reference/http-paths.md."""

from __future__ import annotations

from uuid import UUID

from pydantic import ValidationError

from berth.process.json_objects import JsonObject
from node_agent.wire.devices import GuestDevices, unknown
from node_agent.wire.fields import first_error
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.devices import StoredDevices
from orchestrator.times import rfc3339


def devices_document(allocation_id: UUID, state: AllocationState, stored: StoredDevices | None) -> JsonObject:
    """The JSON of an allocation's devices. Without any there is a reason."""
    found = _devices(stored)
    return {
        "allocation_id": str(allocation_id),
        "status": state,
        "devices": None if found.devices is None else [device.model_dump(mode="json") for device in found.devices],
        "reason": found.reason,
        "task_id": None if stored is None else str(stored.task_id),
        "read_at": None if stored is None else rfc3339(stored.read_at),
    }


def _devices(stored: StoredDevices | None) -> GuestDevices:
    if stored is None:
        return unknown("no guest of this allocation was started")
    if stored.reported is None:
        if stored.left_out is not None:
            return unknown("the agent left the evidence out: it was too large for one message")
        return unknown("the agent reported no devices: it is of an earlier version, or its driver has none")
    try:
        return GuestDevices.model_validate(stored.reported)
    except ValidationError as error:
        # Stored by a control plane of the version before, which did not validate it.
        return unknown(f"what the agent reported is not valid: {first_error(error, 'guest_devices')}")
