"""What an operator's run of a deploy system is ordered with: its medium, and its first task. Within the caller's transaction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from uuid import UUID

from berth.process.json_objects import JsonMapping, JsonObject
from node_agent.wire.deploy_medium import MediumNetwork
from node_agent.wire.sites import BmcTaskKind
from orchestrator.database.transactions import Transaction
from orchestrator.nodes.deploy_systems import run_store, store, task_store
from orchestrator.nodes.deploy_systems.refusals import MachineUnknown
from orchestrator.nodes.deploy_systems.root_disks import MEMBER, RootDiskHint
from orchestrator.nodes.deploy_systems.rules import Addresses
from orchestrator.nodes.deploy_systems.run_rules import SITE_STEP_SECONDS_MAX, RunKind
from orchestrator.nodes.deploy_systems.run_store import RunOwner, RunWork
from orchestrator.nodes.deploy_systems.uses import require_no_update
from orchestrator.problems import Invalid, InvalidState
from orchestrator.sites.rules import REQUEST_SECONDS_MAX
from orchestrator.sites.store import bmc_tasks
from orchestrator.sites.store.bmcs import Bmc


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What an operator requests. `network` and `root_disk` None: as the newest run of the node had them. `smbios_uuid` None: of
    the inspected machine, else as the BMC reports it."""

    kind: RunKind
    network: MediumNetwork | None
    smbios_uuid: UUID | None
    macs: tuple[str, ...]
    require_tpm: bool
    root_disk: RootDiskHint | None = None


async def require_idle(tx: Transaction, node_id: UUID) -> None:
    """Return if no task of the machine's BMC or deploy system is open, and no window updates it. Raises `InvalidState`."""
    await require_no_update(tx, node_id)
    task = await bmc_tasks.lock_open(tx, node_id)
    if task is not None:
        raise InvalidState(f"a task ({task.kind.value}) of the BMC is open; wait for its end", state="task_open")
    deploying = await task_store.find_open_of(tx, node_id)
    if deploying is not None:
        raise InvalidState(f"task {deploying} of the deploy system is open; wait for its end", state="deploy_task")


async def medium_of(tx: Transaction, bmc: Bmc, order: RunOrder) -> JsonObject:
    """Machine and network of the deploy system, and the hint for the root disk. Raises `MachineUnknown`, `Invalid`."""
    known = await store.read_machine(tx, bmc.node_id)
    before = await run_store.read_newest(tx, bmc.node_id)
    network = None if order.network is None else order.network.model_dump(mode="json")
    if network is None and before is not None:
        network = before.medium["network"]
    if network is None:
        message = "give the network of the deploy system; later runs of the node use it again"
        raise Invalid(f"network: {message}", errors=[{"field": "network", "message": message}])
    smbios_uuid = order.smbios_uuid or (known and known.smbios_uuid) or _reported(bmc)
    if smbios_uuid is None:
        raise MachineUnknown(
            "neither inspection nor BMC has named the machine: request a look, or give its smbios_uuid"
        )
    macs = sorted({network["mac"], *order.macs})
    strange = [] if known is None or order.smbios_uuid is not None else [mac for mac in macs if mac not in known.macs]
    if strange:
        message = f"{', '.join(strange)}: the inspection found no such port; give smbios_uuid if a port was replaced"
        raise Invalid(message, errors=[{"field": "network.mac", "message": message}])
    medium = {"network": network, "smbios_uuid": str(smbios_uuid), "macs": macs, "require_tpm": order.require_tpm}
    if order.root_disk is None:
        return {**medium, **await kept_root_disk(tx, bmc.node_id)}
    hint = order.root_disk.document()
    return {**medium, MEMBER: hint} if hint else medium


async def kept_root_disk(tx: Transaction, node_id: UUID) -> JsonObject:
    """The hint for the root disk of the node's newest run, whatever its outcome, as what a run is permitted with has it; empty
    without one. Each run of the node is opened with it, or with another one that was given: it is the hint that counts."""
    before = await run_store.read_newest(tx, node_id)
    return {} if before is None or MEMBER not in before.medium else {MEMBER: before.medium[MEMBER]}


def _reported(bmc: Bmc) -> UUID | None:
    """The SMBIOS UUID that the BMC reported at the last look."""
    try:
        return None if bmc.inventory is None else UUID(bmc.inventory["uuid"])
    except ValueError:
        return None


async def insert_ordered(
    tx: Transaction, bmc: Bmc, work: RunWork, medium: JsonMapping, addresses: Addresses, by: str,
    owner: RunOwner | None = None,
) -> None:  # fmt: skip
    """Open the run on a locked node without one, and request its first task of the site."""
    task = await bmc_tasks.request_task(
        tx, bmc.node_id, bmc.site_id, BmcTaskKind.POWER_OFF, by, REQUEST_SECONDS_MAX
    )  # fmt: skip
    await run_store.insert_run(
        tx, bmc.node_id, bmc.site_id, work, {**medium, "addresses": asdict(addresses)}, by, task.id,
        SITE_STEP_SECONDS_MAX, owner,
    )  # fmt: skip
