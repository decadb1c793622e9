"""The hardware of nodes and guests: topologies, health, burn-ins, resets, quarantines of slots, virtual devices.

One function per path (docs/reference/http-api.md). All raise `Forbidden` for tenant keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from berth.client.calls.call import Call, read, read_page, remove, write
from berth.client.hardware.deploy_systems import DeploySystem, DeployTask, PermittedDeploySystem
from berth.client.hardware.devices import AllocationDevices
from berth.client.health import BurnIn, GpuReset, HealthReport, NodeHealth
from berth.client.models import Page
from berth.client.node_models import Node, Quarantine
from berth.client.topologies import NodeTopology
from berth.process.json_objects import JsonMapping

NODES = "/api/v1/admin/nodes"


def get_node_topology(node_id: UUID) -> Call[NodeTopology]:
    """What a node is made of: found last, approved, and what differs. Raises `NotFound`."""
    return read(f"{NODES}/{node_id}/topology", NodeTopology)


def approve_node(node_id: UUID, *, digest: str, idempotency_key: str | None = None) -> Call[NodeTopology]:
    """Approve the topology that was found last. Raises `NotFound`, `TopologyChanged`, `TopologyMisfit`."""
    return write("POST", f"{NODES}/{node_id}/approve", NodeTopology, {"digest": digest}, idempotency_key)


def update_node(
    node_id: UUID,
    *,
    address: str | None = None,
    no_address: bool = False,
    half_slots: int | None = None,
    idempotency_key: str | None = None,
) -> Call[Node]:
    """Change the address of a node, or how many of its slots lie in the first NUMA half; None leaves a member as it is.

    `no_address` removes the address. Raises `NotFound`, `InvalidState` for a retired node, `Invalid` for a half larger than
    the node, and `TopologyMisfit` for one that the approved topology contradicts.
    """
    call = write("PATCH", f"{NODES}/{node_id}", Node, {"address": address, "half_slots": half_slots}, idempotency_key)
    return replace(call, body={**(call.body or {}), "address": None}) if no_address else call


def get_node_health(node_id: UUID) -> Call[NodeHealth]:
    """How the hardware of a node is by its last health probe, and what of it is a fault. Raises `NotFound`."""
    return read(f"{NODES}/{node_id}/health", NodeHealth)


def get_allocation_devices(allocation_id: UUID) -> Call[AllocationDevices]:
    """The virtual devices of an allocation's guest. Raises `NotFound`, `Archived`."""
    return read(f"/api/v1/admin/allocations/{allocation_id}/devices", AllocationDevices)


def list_health_reports(
    node_id: UUID, *, limit: int | None = None, cursor: str | None = None
) -> Call[Page[HealthReport]]:
    """The reports of a node's health probes that are kept, newest first. Raises `NotFound`."""
    return read_page(f"{NODES}/{node_id}/health/reports", HealthReport, limit=limit, cursor=cursor)


def list_quarantines(
    node_id: UUID, *, every: bool | None = None, limit: int | None = None, cursor: str | None = None
) -> Call[Page[Quarantine]]:
    """The slots of a node that are in quarantine; with `every`, also ended quarantines. Raises `NotFound`."""
    wanted = "true" if every else None
    return read_page(f"{NODES}/{node_id}/quarantines", Quarantine, every=wanted, limit=limit, cursor=cursor)


def quarantine_slot(
    node_id: UUID, slot_index: int, *, reason: str, evidence: str | None = None, idempotency_key: str | None = None
) -> Call[Quarantine]:
    """Take a slot out of service; an allocation on it stays until its release. Raises `NotFound`, `InvalidState`."""
    path = f"{NODES}/{node_id}/slots/{slot_index}/quarantine"
    return write("POST", path, Quarantine, {"reason": reason, "evidence": evidence}, idempotency_key)


def return_slot(
    node_id: UUID,
    slot_index: int,
    *,
    note: str,
    without_burn_in: bool | None = None,
    idempotency_key: str | None = None,
) -> Call[Quarantine]:
    """Return a slot into service; `without_burn_in`: although none has passed since its last fault, for the reason in `note`.

    Raises `NotFound`, `InvalidState` if it is not in quarantine or is under test, and `BurnInRequired`.
    """
    path = f"{NODES}/{node_id}/slots/{slot_index}/return"
    return write("POST", path, Quarantine, {"note": note, "without_burn_in": without_burn_in}, idempotency_key)


def request_burn_in(node_id: UUID, *, slot: int | None = None, idempotency_key: str | None = None) -> Call[BurnIn]:
    """Test a slot in quarantine, or every one of the node without an allocation; an open one is the answer.

    Raises `NotFound`, `InvalidState`, `BurnInUnsupported`.
    """
    return write("POST", f"{NODES}/{node_id}/burn-in", BurnIn, {"slot": slot}, idempotency_key)


def list_burn_ins(node_id: UUID, *, limit: int | None = None, cursor: str | None = None) -> Call[Page[BurnIn]]:
    """The burn-ins of a node that are kept, newest first. Raises `NotFound`."""
    return read_page(f"{NODES}/{node_id}/burn-ins", BurnIn, limit=limit, cursor=cursor)


def request_gpu_reset(node_id: UUID, slot_index: int, *, idempotency_key: str | None = None) -> Call[GpuReset]:
    """Reset the GPU of a slot that is out of service, with those that NVLink connects to it; an open one is the answer.

    Raises `NotFound`, `InvalidState`, `GpusInService`, `GpuResetUnsupported`.
    """
    return write("POST", f"{NODES}/{node_id}/slots/{slot_index}/gpu-reset", GpuReset, {}, idempotency_key)


def list_gpu_resets(node_id: UUID, *, limit: int | None = None, cursor: str | None = None) -> Call[Page[GpuReset]]:
    """The resets of a node's GPUs that are kept, newest first. Raises `NotFound`."""
    return read_page(f"{NODES}/{node_id}/gpu-resets", GpuReset, limit=limit, cursor=cursor)


def permit_deploy_system(
    node_id: UUID,
    *,
    network: JsonMapping,
    smbios_uuid: UUID | None = None,
    macs: Sequence[str] | None = None,
    require_tpm: bool | None = None,
    valid_seconds: int | None = None,
    certificate_seconds: int | None = None,
    idempotency_key: str | None = None,
) -> Call[PermittedDeploySystem]:
    """Permit one start of a deploy system on the machine of a node, which ends the permission before it.

    `network`: `mac` and `address` (with its prefix length), and where they are needed `gateway`, `vlan` and `mtu`. Raises
    `NotFound`, `InvalidState`, `NodeInUse`, `MachineUnknown`, `DeployNotConfigured`.
    """
    body = {
        "network": dict(network), "smbios_uuid": None if smbios_uuid is None else str(smbios_uuid),
        "macs": None if macs is None else list(macs), "require_tpm": require_tpm, "valid_seconds": valid_seconds,
        "certificate_seconds": certificate_seconds,
    }  # fmt: skip
    return write("POST", f"{NODES}/{node_id}/deploy-system", PermittedDeploySystem, body, idempotency_key)


def revoke_deploy_system(node_id: UUID, *, idempotency_key: str | None = None) -> Call[None]:
    """End the permission of a node's deploy system, with token, certificate and tasks. Raises `NotFound`, `NoDeploySystem`."""
    return remove(f"{NODES}/{node_id}/deploy-system", idempotency_key)


def get_deploy_system(node_id: UUID) -> Call[DeploySystem]:
    """The newest permission of a deploy system of a node, and its machine as inspected. Raises `NotFound`."""
    return read(f"{NODES}/{node_id}/deploy-system", DeploySystem)


def inspect_machine(
    node_id: UUID, *, power_off: bool | None = None, idempotency_key: str | None = None
) -> Call[DeployTask]:
    """Have the deploy system of a node inspect its machine. Raises `NotFound`, `NoDeploySystem`, `InvalidState`, `NodeInUse`."""
    path = f"{NODES}/{node_id}/deploy-system/inspect"
    return write("POST", path, DeployTask, {"power_off": power_off}, idempotency_key)


def list_deploy_tasks(node_id: UUID, *, limit: int | None = None, cursor: str | None = None) -> Call[Page[DeployTask]]:
    """The tasks of a node's deploy systems that are kept, newest first. Raises `NotFound`."""
    return read_page(f"{NODES}/{node_id}/deploy-system/tasks", DeployTask, limit=limit, cursor=cursor)
