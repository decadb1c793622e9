"""The firmware of a machine: what its inspection recorded, and what is wrong with it at a release or an attestation."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from pydantic import TypeAdapter, ValidationError

from berth.process.json_objects import JsonObject
from node_agent.wire.deploy_tasks import FirmwareVersion, MetalInspectReport, MetalWipeReport
from node_agent.wire.firmware import FirmwareResult
from node_agent.wire.sites import BmcInventory
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems import store, task_store
from orchestrator.nodes.deploy_systems.run_store import DeployRun
from orchestrator.nodes.firmware import store as firmware_lists
from orchestrator.nodes.firmware.rules import BMC, INVENTORY, Objection, Reading, objections, of_bmc, of_report
from orchestrator.sites.findings import Finding
from orchestrator.sites.store import bmcs
from orchestrator.sites.updating.rules import carried_over

_VERSIONS = TypeAdapter(list[FirmwareVersion])


async def note_inspected(tx: Transaction, run: DeployRun) -> None:
    """Record what the BMC named at the end of a run that has inspected its machine."""
    named = await _named_by_bmc(tx, run.node_id, run.requested_at)
    if named is not None:
        await store.note_bmc_firmware(tx, run.node_id, named)


async def note_updated(tx: Transaction, node_id: UUID, result: FirmwareResult) -> None:
    """A proven update of the locked node: the next release compares with the versions that were read back."""
    machine = await store.read_machine(tx, node_id)
    if machine is None:
        return
    known = _read(machine.firmware)
    if known is None:
        try:
            known = of_report(MetalInspectReport.model_validate(machine.report))
        except ValidationError:  # of another version
            return
    after = carried_over(Reading(known, _read(machine.bmc_firmware)), result)
    if after.machine != known:
        await store.note_machine_firmware(tx, node_id, after.machine or ())
    if after.bmc is not None:
        await store.note_bmc_firmware(tx, node_id, after.bmc)


async def objected(tx: Transaction, run: DeployRun) -> list[Finding]:
    """What is wrong with the firmware after the tenancy that the completed run has ended."""
    machine = await store.read_machine(tx, run.node_id)
    if machine is None:
        return []
    inspection = MetalInspectReport.model_validate(machine.report)
    known = _read(machine.firmware)
    before = Reading(of_report(inspection) if known is None else known, _read(machine.bmc_firmware))
    _, result = await task_store.read_result(tx, run.deploy_task_id)
    after = Reading(
        MetalWipeReport.model_validate(result).firmware, await _named_by_bmc(tx, run.node_id, run.requested_at)
    )
    model = inspection.topology.firmware
    accepted = await firmware_lists.accepted_of(tx, model.vendor, model.product)
    return [{"code": code.value, "detail": detail} for code, detail in objections(before, after, accepted)]


async def _named_by_bmc(tx: Transaction, node_id: UUID, since: datetime) -> list[FirmwareVersion] | None:
    """What the BMC has named since the run began; None if it did not, the agent is of the version before, or it is unreadable."""
    found = await bmcs.read_bmc(tx, node_id)
    if found.inventory is None or found.looked_at is None or found.looked_at < since:
        return None
    try:
        return of_bmc(BmcInventory.model_validate(found.inventory))
    except ValidationError:
        return None


def _read(stored: list[JsonObject] | None) -> list[FirmwareVersion] | None:
    """What was stored; None too for what a later version has stored and this one cannot read."""
    try:
        return None if stored is None else _VERSIONS.validate_python(stored)
    except ValidationError:
        return None


async def objected_when_attested(
    tx: Transaction, node_id: UUID, since: datetime, read: list[FirmwareVersion] | None
) -> tuple[list[tuple[Objection, str]], list[str]]:
    """What is wrong with what a deploy system has read of its machine, and what it was compared with."""
    machine = await store.read_machine(tx, node_id)
    if machine is None:
        return [], []
    try:
        inspection = MetalInspectReport.model_validate(machine.report)
    except ValidationError:  # of another version
        return [], []
    known = _read(machine.firmware)
    before = Reading(of_report(inspection) if known is None else known, _read(machine.bmc_firmware))
    after = Reading(read, await _named_by_bmc(tx, node_id, since))
    model = inspection.topology.firmware
    accepted = await firmware_lists.accepted_of(tx, model.vendor, model.product)
    return objections(before, after, accepted), ["inspection", *([] if accepted is None else ["firmware_list"])]


async def objected_by_list(
    tx: Transaction, vendor: str | None, product: str | None, read: list[FirmwareVersion] | None
) -> tuple[list[tuple[Objection, str]], list[str]]:
    """What the list of the model has against what an agent has read, which does not reach the BMC: its entries do not count."""
    accepted = await firmware_lists.accepted_of(tx, vendor, product)
    if accepted is None:
        return [], []
    readable = [one for one in accepted if one.component not in (BMC, INVENTORY)]
    return objections(Reading(None, None), Reading(read, None), readable), ["firmware_list"]
