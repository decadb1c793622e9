"""Permit a deploy system on the machine of a node, and request its tasks. Beside it, runs make permissions alone."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from node_agent.protocol import TaskType
from node_agent.wire.deploy_medium import MEDIUM_BYTES_MAX, DeployMedium, MediumNetwork
from node_agent.wire.deploy_tasks import MetalInspectParameters, MetalParameters
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems import store, task_store
from orchestrator.nodes.deploy_systems.documents import permission_document, task_document
from orchestrator.nodes.deploy_systems.refusals import MachineUnknown, NoDeploySystem
from orchestrator.nodes.deploy_systems.rules import WRITING, Addresses, PermissionState
from orchestrator.nodes.deploy_systems.uses import require_no_run, require_no_update, require_unused
from orchestrator.nodes.states import AttestationPolicy
from orchestrator.nodes.store import attestation, nodes
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.sealing import Sealer
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import Invalid, InvalidState
from orchestrator.tenants.principals import Actor

TOKEN_BYTES: Final = 32
INSPECT_SECONDS: Final = 900


@dataclass(frozen=True, slots=True)
class DeployOrder:
    """What is permitted. `smbios_uuid`: of the machine; None: the one that inspection recorded. `claim_id`: the claim that the
    deploy system runs for; None: it runs for an operator, between tenants."""

    network: MediumNetwork
    smbios_uuid: UUID | None
    macs: tuple[str, ...]
    require_tpm: bool
    valid_seconds: int
    certificate_seconds: int
    claim_id: int | None = None


async def permit_deploy_system(
    context: Context,
    operation: Operation,
    actor: Actor,
    sealer: Sealer,
    node_id: UUID,
    order: DeployOrder,
    addresses: Addresses,
) -> Answer:
    """201 with the permission and the configuration of its medium, sealed for the caller. It ends the node's older one at once,
    with its tasks and its certificate.

    Refusals, which change nothing: `NotFound`, `InvalidState` (the node is in service, retired, or not of the shape `baremetal`;
    a run is open), `NodeInUse`, `MachineUnknown`, `Invalid` for a configuration that does not fit its file.
    """  # fmt: skip
    token = f"deploy1.{secrets.token_urlsafe(TOKEN_BYTES)}"

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        await require_no_run(tx, node_id)
        await require_no_update(tx, node_id)
        await require_unused(tx, node_id, order.claim_id, writing=False)
        if order.require_tpm and (await attestation.read_tpm(tx, node_id)).policy is AttestationPolicy.OFF:
            raise InvalidState(
                "the attestation policy of the node is `off`; set it before you require a TPM", state="off"
            )
        smbios_uuid, macs = await _machine(tx, node_id, order)
        ended = await store.end_permission(tx, node_id, "superseded")
        new = store.NewPermission(
            token_hash=hashlib.sha256(token.encode()).digest(), smbios_uuid=smbios_uuid, macs=macs,
            tpm_required=order.require_tpm, claim_id=order.claim_id, certificate_seconds=order.certificate_seconds,
            valid_seconds=order.valid_seconds, by=f"{actor.kind.value}:{actor.id}",
        )  # fmt: skip
        deploy_epoch, expires_at = await store.insert_permission(tx, node_id, new)
        medium = DeployMedium(
            node_id=node_id, deploy_epoch=deploy_epoch, token=token, expires_at=expires_at, network=order.network,
            api_url=addresses.api_url, ca_pem=addresses.ca_pem, node_api_url=addresses.node_api_url,
            key_set_serial=addresses.key_set_serial,
        )  # fmt: skip
        sealed = sealer.seal(_written(medium))
        said = {
            "deploy_epoch": deploy_epoch, "superseded_epoch": ended, "smbios_uuid": str(smbios_uuid), "macs": macs,
            "tpm_required": order.require_tpm, "claim_id": order.claim_id,
        }  # fmt: skip
        await audit.record(tx, actor, "node.permit_deploy_system", f"nodes/{node_id}", said, operation.request_id)
        made = await store.read_newest(tx, node_id)
        assert made is not None, "it was inserted"
        return Done(201, {**permission_document(made), "medium": sealed}, made.id)

    return await run_once(context, operation, effect, None)


async def revoke_deploy_system(context: Context, operation: Operation, actor: Actor, node_id: UUID) -> Answer:
    """204: the open permission of the node is ended, with its token, its certificate and its tasks.

    Refusals, which change nothing: `NotFound`, `NoDeploySystem` if no permission is open.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        ended = await store.end_permission(tx, node_id, "revoked")
        if ended is None:
            raise NoDeploySystem("no permission of a deploy system of this node is open")
        said = {"deploy_epoch": ended}
        await audit.record(tx, actor, "node.revoke_deploy_system", f"nodes/{node_id}", said, operation.request_id)
        return Done(204, None, node_id)

    return await run_once(context, operation, effect, None)


def _written(medium: DeployMedium) -> str:
    """The configuration as text. Raises `Invalid` if it does not fit its file."""
    try:
        return medium.written().rstrip().decode()
    except ValueError as error:
        message = f"the configuration does not fit the {MEDIUM_BYTES_MAX} bytes of its file"
        raise Invalid(f"network: {message}", errors=[{"field": "network", "message": message}]) from error


async def _machine(tx: Transaction, node_id: UUID, order: DeployOrder) -> tuple[UUID, list[str]]:
    """SMBIOS UUID and MACs of the machine: as ordered, else as inspected. Raises `MachineUnknown`, `Invalid`."""
    macs = sorted({order.network.mac, *order.macs})
    if order.smbios_uuid is not None:
        return order.smbios_uuid, macs
    known = await store.read_machine(tx, node_id)
    if known is None:
        raise MachineUnknown("the machine was not inspected yet: give the smbios_uuid that its BMC reports")
    strange = [mac for mac in macs if mac not in known.macs]
    if strange:
        message = f"{', '.join(strange)}: the inspection found no such port; give smbios_uuid if a port was replaced"
        raise Invalid(message, errors=[{"field": "network.mac", "message": message}])
    return known.smbios_uuid, macs


@dataclass(frozen=True, slots=True)
class TaskOrder:
    """A task to request. `claim_id`: the claim that it is done for; None: an operator's. `notify`: the workflow to wake."""

    type: TaskType
    parameters: MetalParameters
    seconds_max: int
    claim_id: int | None = None
    notify: str | None = None


OrderFor = Callable[[int], TaskOrder]
"""The task for a deploy epoch, which is known under the lock of the node."""


async def request_inspection(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, *, power_off: bool
) -> Answer:
    """200 with the task: the deploy system of the node inspects its machine, and writes nothing."""
    return await request_deploy_task(
        context, operation, actor, node_id, lambda epoch: TaskOrder(
            TaskType.METAL_INSPECT,
            MetalInspectParameters(deploy_epoch=epoch, then="power_off" if power_off else "wait"),
            INSPECT_SECONDS,
        ),
    )  # fmt: skip


async def request_deploy_task(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, order_for: OrderFor
) -> Answer:
    """200 with the requested task of the node's deploy system, which a worker signs once the system has said hello.

    Refusals, which change nothing: `NotFound`, `NoDeploySystem` (none is permitted, or it is over), `InvalidState` while a task
    is open, and for what the node is in use for, as `require_unused`: a task that writes needs the claim it is done for.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        await require_no_run(tx, node_id)
        permission = await store.read_newest(tx, node_id)
        live = (PermissionState.PERMITTED, PermissionState.ENROLLING, PermissionState.ENROLLED, PermissionState.STARTED)
        if permission is None or permission.state not in live:
            raise NoDeploySystem("permit a deploy system and boot its medium first: berth node deploy-system")
        order = order_for(permission.deploy_epoch)
        await require_unused(tx, node_id, order.claim_id, writing=order.type in WRITING)
        open_task = await task_store.find_open_of(tx, node_id)
        if open_task is not None:
            raise InvalidState(
                f"task {open_task} of the deploy system is open; request this one after its end", state="open"
            )
        new = task_store.NewTask(
            deploy_epoch=permission.deploy_epoch, type=order.type,
            parameters=order.parameters.model_dump_json(exclude_none=True), claim_id=order.claim_id,
            notify=order.notify, seconds_max=order.seconds_max, hello_seconds_max=order.seconds_max,
            by=f"{actor.kind.value}:{actor.id}",
        )  # fmt: skip
        made = await task_store.insert_task(tx, node_id, new)
        said = {"task": str(made), "type": order.type.value, "deploy_epoch": permission.deploy_epoch}
        await audit.record(tx, actor, "node.request_deploy_task", f"nodes/{node_id}", said, operation.request_id)
        return Done(200, task_document(await task_store.read_task(tx, made)), made)

    return await run_once(context, operation, effect, None)
