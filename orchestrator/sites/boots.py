"""The permission of a run's deploy system, made when the task that starts it is signed: its token is then as young as can be.

The token is sealed to the agents of the site; the database has its hash alone.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Final
from uuid import UUID

from berth.process.sealed_passwords import DEPLOY_TOKEN_FORMAT, Purpose, seal_to_all
from node_agent.protocol import TaskType
from node_agent.wire.attestations import MetalAttestParameters
from node_agent.wire.deploy_tasks import (
    MetalDeployParameters,
    MetalInspectParameters,
    MetalParameters,
    MetalRescueParameters,
    MetalWipeParameters,
)
from node_agent.wire.sites import DeployBoot
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems import run_store, store, task_store
from orchestrator.nodes.deploy_systems.run_rules import RUN_SECONDS_MAX, RunKind, certificate_seconds
from orchestrator.sites.store.bmcs import Bmc

TOKEN_BYTES: Final = 32
TASKS: Final[Mapping[RunKind, tuple[TaskType, type[MetalParameters]]]] = {
    RunKind.INSPECT: (TaskType.METAL_INSPECT, MetalInspectParameters),
    RunKind.WIPE: (TaskType.METAL_WIPE, MetalWipeParameters),
    RunKind.DEPLOY: (TaskType.METAL_DEPLOY, MetalDeployParameters),
    RunKind.RESCUE: (TaskType.METAL_RESCUE, MetalRescueParameters),
    RunKind.ATTEST: (TaskType.METAL_ATTEST, MetalAttestParameters),
}
"""The task of the deploy system of each kind of run that has one."""


async def permit_boot(tx: Transaction, bmc: Bmc, recipients: Mapping[UUID, bytes]) -> DeployBoot:
    """Permit the deploy system of the open run of a locked node, and request its task; what its medium is made of."""
    run = await run_store.read_open(tx, bmc.node_id)
    assert run is not None, "only a run requests the start of a deploy system"
    token = f"deploy1.{secrets.token_urlsafe(TOKEN_BYTES)}"
    await store.end_permission(tx, bmc.node_id, "superseded")
    new = store.NewPermission(
        token_hash=hashlib.sha256(token.encode()).digest(), smbios_uuid=UUID(run.medium["smbios_uuid"]),
        macs=run.medium["macs"], tpm_required=run.medium["require_tpm"], claim_id=run.claim_id,
        certificate_seconds=certificate_seconds(run.work_seconds), valid_seconds=RUN_SECONDS_MAX, by=run.requested_by,
    )  # fmt: skip
    deploy_epoch, expires_at = await store.insert_permission(tx, bmc.node_id, new)
    kind, model = TASKS[run.kind]
    then = "hand_over" if run.kind is RunKind.RESCUE else "power_off"
    parameters = model.model_validate({**run.parameters, "deploy_epoch": deploy_epoch, "then": then})
    task = await task_store.insert_task(
        tx, bmc.node_id, task_store.NewTask(
            deploy_epoch=deploy_epoch, type=kind, claim_id=run.claim_id, notify=None,
            parameters=parameters.model_dump_json(exclude_none=True), seconds_max=run.work_seconds,
            hello_seconds_max=RUN_SECONDS_MAX, by=run.requested_by,
        ),
    )  # fmt: skip
    await run_store.set_permitted(tx, run.id, deploy_epoch, task)
    purpose = Purpose(bmc.site_id, bmc.node_id, deploy_epoch, DEPLOY_TOKEN_FORMAT)
    return DeployBoot.model_validate(
        {
            **run.medium["addresses"], "network": run.medium["network"], "deploy_epoch": deploy_epoch,
            "expires_at": expires_at, "token": seal_to_all(token, purpose, recipients),
        }
    )  # fmt: skip
