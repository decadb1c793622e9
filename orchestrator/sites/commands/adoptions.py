"""Adopt a machine that runs already: its tenant's allocation is recorded, and nothing is commanded or written on the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID, uuid4

from berth.process.json_objects import JsonMapping, JsonObject
from node_agent.wire.deploy_medium import MediumNetwork
from orchestrator.allocations.store import adopting
from orchestrator.allocations.store.adopting import Tenancy
from orchestrator.audit import store as audit
from orchestrator.billing.rules import BalanceDepleted
from orchestrator.catalogue.inventory_store import read_catalogue
from orchestrator.database.clock import read_clock
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_events
from orchestrator.nodes.deploy_systems import agentless_store
from orchestrator.nodes.deploy_systems import store as deploy_systems
from orchestrator.nodes.deploy_systems.rules import Addresses
from orchestrator.nodes.deploy_systems.uses import require_no_run
from orchestrator.nodes.store import nodes
from orchestrator.nodes.store.open_claims import require_no_open_claims
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.placement.admission import AdmittedUse, HeldUnits, admit_use
from orchestrator.placement.refusals import quota_exceeded
from orchestrator.problems import InvalidState, NotFound
from orchestrator.reservations.rules import judge_window
from orchestrator.sites.adopting.rules import (
    Candidate,
    Gap,
    Look,
    Stated,
    gaps_of,
    machine_uuid,
    require_candidate,
    require_fit,
    require_running,
)
from orchestrator.sites.documents import adoption_document
from orchestrator.sites.ports.store import has_ports
from orchestrator.sites.refusals import NotAdoptable
from orchestrator.sites.run_orders import require_idle
from orchestrator.sites.store import adoptions, bmcs
from orchestrator.sites.store.bmcs import Bmc
from orchestrator.tenants.principals import Actor
from orchestrator.tenants.store.ssh_keys import require_own_keys

SHOWN = ("manufacturer", "model", "serial", "uuid", "bios_version")
"""What is kept of the description by the BMC."""


@dataclass(frozen=True, slots=True)
class AdoptionOrder:
    """What an operator states of a machine and its tenant. `network`: of the deploy system that the release starts."""

    tenant_id: UUID
    sku: str
    image: str | None
    ssh_key_ids: Sequence[UUID]
    name: str | None
    labels: Mapping[str, str]
    ends_at: datetime | None
    connection: JsonMapping
    network: MediumNetwork
    macs: tuple[str, ...]
    require_tpm: bool
    smbios_uuid: UUID | None
    serial: str | None

    @property
    def stated(self) -> Stated:
        """What is compared with the description by the BMC."""
        return Stated(self.smbios_uuid, self.serial, self.network.mac)


async def adopt_machine(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, order: AdoptionOrder, addresses: Addresses
) -> Answer:
    """200 with the adoption: the tenant has an `active` allocation of the whole node, whose metering begins now.

    Refusals, which change nothing: `NotFound` (no node, no BMC, no tenant), `InvalidState` (the node is in service, something
    works on its machine, the tenant is suspended), `NodeInUse`, `NotAdoptable`, `SkuUnavailable`, `ImageUnavailable`,
    `SshKeyNotFound`, `WindowInvalid`, `BalanceDepleted`, `QuotaExceeded`.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        bmc = await bmcs.lock_bmc(tx, node_id)
        if bmc is None:
            raise NotFound(f"node {node_id} has no BMC: berth node bmc set")
        node, region = await adoptions.read_candidate(tx, node_id)
        require_candidate(node)
        if await has_ports(tx, node_id):
            raise NotAdoptable.because(
                "ports_set",
                "switch ports of the node are set, and none carries the segment of the tenant: berth node port remove",
            )
        await require_no_open_claims(tx, node_id)
        await require_no_run(tx, node_id)
        await require_idle(tx, node_id)
        admitted = await _admitted(tx, node, region, order)
        await _require_room(tx, order.tenant_id, node.slot_count)
        await require_own_keys(tx, order.tenant_id, order.ssh_key_ids)
        clock = await read_clock(tx)
        judge_window(None, order.ends_at, now=clock, seconds_max=context.limits.window_seconds_max)
        recorded = await _recorded(tx, bmc, order, addresses, clock, actor)
        tenancy = _tenancy(order, admitted, recorded)
        detail = f"the machine ran already; not seen: {', '.join(recorded['gaps'])}"
        allocation_id = await adopting.record_adopted(tx, node_id, tenancy, clock, operation, actor, detail)
        await _set_aside(tx, node_id)
        said = _said(allocation_id, tenancy)
        await audit.record(tx, actor, "node.adopt_machine", f"nodes/{node_id}", said, operation.request_id)
        stored = await adoptions.read_adoption_of(tx, node_id)
        assert stored is not None, "this transaction has written it"
        return Done(200, await adoption_document(tx, node_id, stored), allocation_id)

    return await run_once(context, operation, effect, None)


def _tenancy(order: AdoptionOrder, admitted: AdmittedUse, recorded: JsonMapping) -> Tenancy:
    return Tenancy(
        order.tenant_id, admitted, order.ssh_key_ids, order.name, order.labels, order.ends_at, order.connection, recorded
    )  # fmt: skip


def _said(allocation_id: UUID, tenancy: Tenancy) -> JsonObject:
    """What the audit has of an adoption."""
    recorded = tenancy.adoption
    return {
        "allocation_id": str(allocation_id), "tenant_id": str(tenancy.tenant_id), "sku": tenancy.admitted.sku.name,
        "connection": dict(tenancy.connection), "machine": recorded["machine"], "gaps": recorded["gaps"],
        "network": recorded["medium"]["network"],
    }  # fmt: skip


async def _admitted(tx: Transaction, node: Candidate, region: str, order: AdoptionOrder) -> AdmittedUse:
    """SKU and image of the whole node. Raises `SkuUnavailable`, `ImageUnavailable`, `NotAdoptable`."""
    catalogue = await read_catalogue(tx)
    sku = catalogue.skus.get(order.sku)
    if sku is not None:
        require_fit(node, sku)
    held = HeldUnits(node.slot_count, region, node.gpu_model, node.shape, node.slot_count)
    return admit_use(catalogue, order.sku, held, order.image, has_user_data=False, sold=True)


async def _require_room(tx: Transaction, tenant_id: UUID, gpus: int) -> None:
    """Return if the tenant may have so many more GPUs, as a create. Raises `NotFound`, `InvalidState`, `BalanceDepleted`,
    `QuotaExceeded`. Its quota stays locked."""
    quota = await adopting.lock_tenant_quota(tx, tenant_id)
    if quota is None:
        raise NotFound(f"there is no tenant {tenant_id}, or it is deleted")
    if quota.state != "active":
        raise InvalidState(f"the tenant is {quota.state}; resume it first", state=quota.state)
    if quota.is_depleted:
        raise BalanceDepleted.of_tenant()
    if quota.gpus_limit is not None and quota.gpus_used + gpus > quota.gpus_limit:
        raise quota_exceeded(quota.gpus_used, quota.gpus_limit)


async def _recorded(
    tx: Transaction, bmc: Bmc, order: AdoptionOrder, addresses: Addresses, clock: datetime, actor: Actor
) -> JsonObject:
    """What is stored with the allocation: the medium of its first run, and what was seen and not seen. Raises `NotAdoptable`."""
    look = Look(bmc.power_state, bmc.inventory, bmc.looked_at, bmc.silent_because)
    require_running(look, clock)
    assert look.inventory is not None, "required above"
    assert look.looked_at is not None, "required above"
    known = await deploy_systems.read_machine(tx, bmc.node_id)
    smbios_uuid = machine_uuid(look, order.stated, None if known is None else known.smbios_uuid)
    medium = {
        "network": order.network.model_dump(mode="json"), "smbios_uuid": str(smbios_uuid),
        "macs": sorted({order.network.mac, *order.macs}), "require_tpm": order.require_tpm, "addresses": asdict(addresses),
    }  # fmt: skip
    machine = {name: look.inventory.get(name) or None for name in SHOWN}
    gaps: list[Gap] = gaps_of(look, order.stated)
    return {
        "medium": medium, "machine": {**machine, "power_state": look.power_state, "looked_at": look.looked_at.isoformat()},
        "gaps": [gap.value for gap in gaps], "by": f"{actor.kind.value}:{actor.id}",
    }  # fmt: skip


async def _set_aside(tx: Transaction, node_id: UUID) -> None:
    """The node has no agent, and is cordoned: an operator puts it into service once a release has wiped it."""
    await agentless_store.note_machine_without_agent(tx, node_id)
    if await adoptions.cordon_registered(tx, node_id):
        changed = {"node_id": node_id, "from": "registered", "to": "cordoned"}
        await append_events(tx, [Event(EventType.NODE_CORDONED, f"nodes/{node_id}", uuid4(), None, changed)])
