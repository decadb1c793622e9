"""Deploy systems as operators see them."""

from __future__ import annotations

from berth.process.json_objects import JsonObject
from orchestrator.nodes.deploy_systems.rules import Permission
from orchestrator.nodes.deploy_systems.store import Machine
from orchestrator.nodes.deploy_systems.task_store import DeployTask
from orchestrator.times import rfc3339, wait_document


def permission_document(found: Permission) -> JsonObject:
    """The JSON of a permission, without what authenticates."""
    return {
        "id": str(found.id),
        "node_id": str(found.node_id),
        "deploy_epoch": found.deploy_epoch,
        "state": found.state.value,
        "smbios_uuid": str(found.smbios_uuid),
        "macs": found.macs,
        "tpm_required": found.tpm_required,
        "expires_at": rfc3339(found.expires_at),
        "used_at": rfc3339(found.used_at),
        "serial": found.serial,
        "not_after": rfc3339(found.not_after),
        "hello_at": rfc3339(found.hello_at),
        "refusal": found.refusal,
    }


def standing_document(found: Permission, machine: Machine | None) -> JsonObject:
    """The JSON of a node's newest permission, with what the last inspection found of its machine."""
    inspected = None
    if machine is not None:
        inspected = {
            "smbios_uuid": str(machine.smbios_uuid), "macs": machine.macs, "report": machine.report,
            "inspected_at": rfc3339(machine.inspected_at), "firmware": machine.firmware, "bmc_firmware": machine.bmc_firmware,
        }  # fmt: skip
    return {**permission_document(found), "machine": inspected}


def task_document(found: DeployTask) -> JsonObject:
    """The JSON of a task."""
    return {
        "id": str(found.id),
        "node_id": str(found.node_id),
        "deploy_epoch": found.deploy_epoch,
        "type": found.type,
        "requested_at": rfc3339(found.requested_at),
        "requested_by": found.requested_by,
        "issued_at": rfc3339(found.issued_at),
        "ended_at": rfc3339(found.ended_at),
        "outcome": found.outcome,
        "failure": found.failure,
        "result": found.result,
        "waits": wait_document(found.waits_for, found.waits_since, found.waits_until),
    }
