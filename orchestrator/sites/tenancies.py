"""Runs that perform the tasks of allocations: opened when nothing else works on the machine, concluded at their end.

The task of the allocation is the one that its workflow waits for; the run is how the site performs it.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from pydantic import ValidationError

from berth.process.json_objects import JsonObject
from node_agent.protocol import ProvisionParameters, RebuildParameters, TaskType
from node_agent.wiping.machine_reports import device_name, devices_of
from node_agent.wire.deploy_medium import MediumNetwork
from node_agent.wire.deploy_tasks import MetalDeployReport, MetalInspectReport, MetalRescueReport, MetalWipeReport
from node_agent.wire.fields import first_error
from node_agent.wire.images import LOGIN_USER
from node_agent.wire.sites import BmcTaskKind, SshServer
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems import run_store, store, task_store
from orchestrator.nodes.deploy_systems.deploy_orders import NotDeployable, deploy_of, rescue_of
from orchestrator.nodes.deploy_systems.refusals import NotWipeable
from orchestrator.nodes.deploy_systems.root_disks import MEMBER, RootDiskHint
from orchestrator.nodes.deploy_systems.run_rules import (
    RUN_SECONDS_MAX,
    SITE_STEP_SECONDS_MAX,
    SWITCHING,
    Move,
    RunKind,
    RunOutcome,
    RunStep,
    first_step,
)
from orchestrator.nodes.deploy_systems.run_store import DeployRun, RunOwner, RunWork
from orchestrator.nodes.deploy_systems.store import Machine
from orchestrator.nodes.deploy_systems.wipe_orders import wipe_of
from orchestrator.nodes.store.inventories import is_awaited
from orchestrator.problems import InvalidState
from orchestrator.sites.ports.store import has_ports, is_outside
from orchestrator.sites.rules import REQUEST_SECONDS_MAX
from orchestrator.sites.run_orders import kept_root_disk
from orchestrator.sites.store import adoptions, bmc_tasks
from orchestrator.sites.store.bmcs import Bmc
from orchestrator.tasks.store import site_tasks
from orchestrator.tasks.store.site_tasks import SiteTask

SSH_PORT: Final = 22
RESCUE_USER: Final = "root"
"""The login name of a rescue system (deploy/metal/deploy-init)."""
CLEANUP_FAILED: Final = "cleanup_failed"
RUN_FAILED: Final = "machine_run_failed"
CODES: Final = {
    "image_download_failed": "image_download_failed", "image_checksum_mismatch": "image_checksum_mismatch",
    "image_does_not_fit": "image_does_not_fit", "not_reached": "ssh_readiness_timeout",
}  # fmt: skip
"""Failures of runs that are failures of allocations too; of the others the detail has the code."""
TASK_REFUSED: Final = "task_refused"
SWITCHES: Final = {TaskType.STOP: RunKind.STOP, TaskType.START: RunKind.START, TaskType.REBOOT: RunKind.REBOOT}
"""Verbs that need no deploy system."""
DEPLOYS: Final = {TaskType.PROVISION_USER: ProvisionParameters, TaskType.REBUILD: RebuildParameters}
"""What writes the image of the allocation, and the parameters of its task."""
INSPECTED_BEFORE: Final = frozenset({TaskType.DEPROVISION_USER, TaskType.REBUILD})
"""What writes to the disks of an adopted machine: a run inspects it first."""
INSPECTION: Final = RunWork(RunKind.INSPECT, {}, RUN_SECONDS_MAX)
NOT_INSPECTED: Final = "not_inspected: no run has completed on the machine: berth node inspect"
FIRST_TASKS: Final = {
    RunStep.POWER_OFF: BmcTaskKind.POWER_OFF, RunStep.POWER_ON: BmcTaskKind.POWER_ON, RunStep.END: BmcTaskKind.END_DEPLOY,
}  # fmt: skip
"""What the site does in the first step of a run."""


async def open_waiting(tx: Transaction, node_id: UUID, bmc: Bmc | None) -> Move | None:
    """Open the run of the task that waits on a locked node without one; None if there is none. A task that no run can perform has
    failed, and nothing was done on the machine.

    None too after a restore, until the machine's content is known: another tenant's may be on it.
    """
    if await is_awaited(tx, node_id):
        return None
    task = await site_tasks.read_waiting(tx, node_id)
    if task is None:
        return None
    try:
        if bmc is None:
            raise NotDeployable(RUN_FAILED, "no_bmc: the node has no BMC any more; set it again: berth node bmc set")
        work, medium = await _prepared(tx, node_id, task)
    except ValidationError as error:
        detail = f"not_usable: inspection, network or task cannot be read: {first_error(error)[:300]}"
        return await _refuse(tx, task, TASK_REFUSED, detail)
    except NotWipeable as refusal:
        return await _refuse(tx, task, CLEANUP_FAILED, f"{refusal.extra['reason']}: {refusal.detail}")
    except NotDeployable as refusal:
        return await _refuse(tx, task, refusal.code, refusal.detail)
    by = f"allocation:{task.allocation_id}"
    begun = await bmc_tasks.request_task(
        tx, node_id, bmc.site_id, FIRST_TASKS[first_step(work.kind, work.ends_first)], by, REQUEST_SECONDS_MAX
    )  # fmt: skip
    owner = RunOwner(task.id, task.allocation_id, task.claim_id)
    await run_store.insert_run(
        tx, node_id, bmc.site_id, work, medium, by, begun.id, SITE_STEP_SECONDS_MAX, owner
    )  # fmt: skip
    return Move.OPEN


async def _refuse(tx: Transaction, task: SiteTask, code: str, detail: str) -> Move:
    """End a task before anything was done: a release as a cleanup that failed, a verb as one that has changed nothing."""
    if task.type is TaskType.DEPROVISION_USER:
        code = CLEANUP_FAILED
    elif task.type is not TaskType.PROVISION_USER:
        code, detail = TASK_REFUSED, detail if code == TASK_REFUSED else f"{code}: {detail}"
    await site_tasks.finish_if_live(tx, task.id, None, (code, detail))
    return Move.REFUSE


async def released_unseen(tx: Transaction, node_id: UUID) -> RunOwner | None:
    """For a wipe by an operator: the release that waits for it, as the locked node is awaited after a restore; None if none does,
    as where an active allocation waits for a verb.

    Raises `InvalidState` if an allocation waits for its deployment there: the lost interval may have deployed it.
    """
    task = await site_tasks.read_waiting(tx, node_id) if await is_awaited(tx, node_id) else None
    if task is None:
        return None
    if task.type is TaskType.PROVISION_USER:
        raise InvalidState(
            f"allocation {task.allocation_id} waits for its deployment, and may be on the machine since the lost interval of a"
            f" restore: berth force-release {task.allocation_id}, then wipe",
            state="awaited",
        )
    return RunOwner(task.id, task.allocation_id, task.claim_id) if task.type is TaskType.DEPROVISION_USER else None


async def needs_inspection(tx: Transaction, allocation_id: UUID) -> bool:
    """Whether a run must inspect the machine before one that writes: it was adopted, and no run has inspected it since."""
    adopted = await adoptions.read_adoption(tx, allocation_id)
    return adopted is not None and not adopted.is_inspected


async def _prepared(tx: Transaction, node_id: UUID, task: SiteTask) -> tuple[RunWork, JsonObject]:
    """Work and medium of the run: network and addresses are those of the newest run of the node that completed; of an adopted
    machine those that were stated with it. The hint for the root disk is the one that the node's newest run has."""
    adopted = await adoptions.read_adoption(tx, task.allocation_id)
    known = await store.read_machine(tx, node_id)
    before = await _medium_before(tx, node_id, known) if adopted is None else adopted.medium
    others = {name: value for name, value in before.items() if name != MEMBER}
    medium = {**others, **await kept_root_disk(tx, node_id)}
    if adopted is not None and not adopted.is_inspected and task.type in INSPECTED_BEFORE:
        return INSPECTION, medium
    if task.type in SWITCHES:
        ends_first = await run_store.leaves_rescue(tx, node_id) or (
            task.type is not TaskType.STOP and await is_outside(tx, node_id)
        )
        return RunWork(SWITCHES[task.type], {}, RUN_SECONDS_MAX, ends_first), medium
    if task.type is TaskType.RESCUE and await has_ports(tx, node_id):
        # It is prepared in the provisioning segment, and cannot learn in the tenant's that it was handed over.
        raise NotDeployable(TASK_REFUSED, "port_isolated: a machine whose switch ports are moved has no rescue system")
    if task.type is TaskType.RESCUE:
        return rescue_of(await site_tasks.read_login_keys(tx, task.allocation_id)), medium
    if known is None:
        raise NotDeployable(RUN_FAILED, NOT_INSPECTED)
    report = MetalInspectReport.model_validate(known.report)
    if task.type is TaskType.DEPROVISION_USER:
        return wipe_of(report, is_baseline=adopted is None), medium
    network = MediumNetwork.model_validate(medium["network"])
    wanted = DEPLOYS[task.type].model_validate(task.parameters)
    return deploy_of(report, wanted, task.allocation_id, network, RootDiskHint.of(medium)), medium


async def _medium_before(tx: Transaction, node_id: UUID, known: Machine | None) -> JsonObject:
    """What the newest completed run of an inspected machine was permitted with. Raises `NotDeployable`."""
    before = await run_store.read_completed_medium(tx, node_id)
    if known is None or before is None:
        raise NotDeployable(RUN_FAILED, NOT_INSPECTED)
    return {**before, "smbios_uuid": str(known.smbios_uuid)}


async def server_of(tx: Transaction, run: DeployRun) -> SshServer:
    """The SSH server of the deployed machine, or of its rescue system, with the host key that its deploy system has reported."""
    _, report = await task_store.read_result(tx, run.deploy_task_id)
    model = MetalRescueReport if run.kind is RunKind.RESCUE else MetalDeployReport
    found: MetalRescueReport | MetalDeployReport = model.model_validate(report)
    network = MediumNetwork.model_validate(run.medium["network"])
    return SshServer(host=network.address.ip, port=SSH_PORT, host_key=found.host_key)


async def conclude(tx: Transaction, run: DeployRun, outcome: RunOutcome, failure: str | None) -> None:
    """End the task of the allocation that the run has performed, unless it does not count any more. After the inspection of an
    adopted machine the task waits for its next run."""
    if run.task_id is None or (run.kind is RunKind.INSPECT and outcome is RunOutcome.COMPLETED):
        return
    if outcome is RunOutcome.COMPLETED:
        await site_tasks.finish_if_live(tx, run.task_id, await _result(tx, run), None)
        return
    why = failure or "stopped: the run was stopped"
    is_cleanup = run.kind is RunKind.WIPE or await site_tasks.is_release(tx, run.task_id)
    code = CLEANUP_FAILED if is_cleanup else CODES.get(why.partition(":")[0], RUN_FAILED)
    await site_tasks.finish_if_live(tx, run.task_id, None, (code, why))


async def _result(tx: Transaction, run: DeployRun) -> JsonObject:
    """What the task of the allocation has achieved by the completed run."""
    if run.kind in SWITCHING or run.kind is RunKind.RESCUE:
        assert run.allocation_id is not None, "only a verb of an allocation switches or rescues its machine"
        connection = await site_tasks.read_connection(tx, run.allocation_id)
        found = {"connection": connection, "evidence": {"deploy_run": str(run.id)}}
        if run.kind is RunKind.RESCUE:
            server = await server_of(tx, run)
            login = {"host": str(server.host), "port": server.port, "user": RESCUE_USER, "host_key": server.host_key}
            found["rescue"] = login
        return found
    return await (_released(tx, run) if run.kind is RunKind.WIPE else _provisioned(tx, run))


async def _provisioned(tx: Transaction, run: DeployRun) -> JsonObject:
    """The result of a deployment. Its devices are the disks: the release must prove each."""
    _, found = await task_store.read_result(tx, run.deploy_task_id)
    report = MetalDeployReport.model_validate(found)
    server = await server_of(tx, run)
    machine = await store.read_machine(tx, run.node_id)
    disks = [] if machine is None else MetalInspectReport.model_validate(machine.report).topology.disks or []
    user = run.parameters["image"].get("login_user", LOGIN_USER)
    return {
        "connection": {"host": str(server.host), "port": server.port, "user": user, "host_key": server.host_key},
        "image_sha256": report.image_sha256,
        "evidence": {
            "devices": [device_name(disk.serial) for disk in disks if disk.serial is not None],
            "deploy_run": str(run.id), "root_disk": report.root_disk.model_dump(), "boot_entry": report.boot_entry,
            "isolation": run.isolation,
        },
    }  # fmt: skip


async def _released(tx: Transaction, run: DeployRun) -> JsonObject:
    """The result of `allocation.deprovision_user`: a completed wipe has proven each disk of its order."""
    _, found = await task_store.read_result(tx, run.deploy_task_id)
    report = MetalWipeReport.model_validate(found)
    devices = [device.model_dump(mode="json") for device in devices_of(report)]
    released = {
        "released": True, "hard_stopped": False, "wiped": True, "leases_released": True,
        "evidence": {"devices": devices, "deploy_run": str(run.id), "tpm": report.tpm, "by": "deploy_system"},
    }  # fmt: skip
    signed = await store.read_wipe_statement(tx, run.node_id, run.deploy_epoch)
    return released if signed is None else {**released, "wipe_statement": signed}
