"""Register, change and remove BMCs, and request tasks about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID, uuid4

from berth.process.json_objects import JsonObject
from node_agent.wire.sites import BmcTaskKind
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.deploy_systems import store as deploy_systems
from orchestrator.nodes.deploy_systems import task_store as deploy_tasks
from orchestrator.nodes.deploy_systems.refusals import DeployReason
from orchestrator.nodes.deploy_systems.uses import require_no_run, require_no_update
from orchestrator.nodes.states import NodeState
from orchestrator.nodes.store import nodes
from orchestrator.operations.execution import Context, Done, run_once
from orchestrator.operations.store.operations import Answer, Operation
from orchestrator.problems import Invalid, InvalidState, NodeInUse, NotFound
from orchestrator.sites.bmc_events import emit_password
from orchestrator.sites.documents import bmc_document
from orchestrator.sites.ports.store import has_ports
from orchestrator.sites.refusals import SealingOutdated
from orchestrator.sites.rules import POWERED, REQUEST_SECONDS_MAX, STOPPING, next_generation
from orchestrator.sites.store import agents, bmc_tasks, bmcs, sites
from orchestrator.sites.store.bmcs import Address, Bmc
from orchestrator.sites.store.liveness import set_offline_without_bmc
from orchestrator.tenants.principals import Actor


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A password that a client has sealed as this generation."""

    generation: int
    sealed: Mapping[UUID, str]


async def put_bmc(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, address: Address, password: NewPassword | None
) -> Answer:
    """200 with the BMC. Without a password the present one stays.

    Refusals: `NotFound`; `Invalid` without a password for a new BMC or another site; `SealingOutdated`; `InvalidState` if the
    node is retired, a task of the BMC or a run is open, or its site changes while switch ports of the machine are set.
    """

    async def effect(tx: Transaction) -> Done:
        if await nodes.lock_node(tx, node_id) is NodeState.RETIRED:
            raise InvalidState("the node is retired", state=NodeState.RETIRED.value)
        await sites.lock_site(tx, address.site_id)
        present = await bmcs.lock_bmc(tx, node_id)
        await require_no_run(tx, node_id)
        await require_no_update(tx, node_id)
        await _require_no_open_task(tx, node_id)
        if present is not None and present.site_id != address.site_id:
            await _require_no_ports(tx, node_id)
        generation = await _generation(tx, present, address, password)
        by = f"{actor.kind.value}:{actor.id}"
        await bmcs.put_bmc(tx, node_id, address, generation, by)
        if password is not None:
            await bmcs.forget_other_passwords(tx, node_id, generation)
            await bmcs.store_sealed(tx, node_id, generation, password.sealed)
            await emit_password(tx, address.site_id, node_id, generation, given=True)
        said = _said(present, address, generation, password)
        await audit.record(tx, actor, "node.put_bmc", f"nodes/{node_id}", said, operation.request_id)
        return await _shown(tx, node_id)

    return await run_once(context, operation, effect, None)


async def _generation(tx: Transaction, present: Bmc | None, address: Address, password: NewPassword | None) -> int:
    """The generation of the password that the BMC has from now on."""
    if password is None:
        if present is None or present.site_id != address.site_id:
            what = "a BMC of another site, and a new one, needs its password, sealed to the recipients of the site"
            raise Invalid(f"password: {what}", errors=[{"field": "password", "message": what}])
        return present.generation
    wanted = 1 if present is None else next_generation(present.generation, present.pending_generation)
    recipients = {address.site_id, *await agents.sealing_keys(tx, address.site_id)}
    if password.generation != wanted or set(password.sealed) != recipients:
        raise SealingOutdated.to(wanted, recipients)
    return wanted


def _said(present: Bmc | None, address: Address, generation: int, password: NewPassword | None) -> JsonObject:
    before = None if present is None else present.certificate_sha256.hex()
    pin = address.certificate_sha256.hex()
    return {
        "site_id": str(address.site_id), "url": address.url, "username": address.username, "system_id": address.system_id,
        "certificate_sha256": pin, "generation": generation, "password_changed": password is not None,
        **({} if before in (None, pin) else {"certificate_sha256_before": before}),
        **({} if address.rotates_at_release is None else {"rotates_at_release": address.rotates_at_release}),
        **({} if address.console_host_key is None else {"console_host_key": address.console_host_key}),
        **({} if address.console_shared is None else {"console_shared": address.console_shared}),
    }  # fmt: skip


async def remove_bmc(context: Context, operation: Operation, actor: Actor, node_id: UUID) -> Answer:
    """204: the BMC, its sealed passwords and its tasks are deleted; a node without an agent is offline.

    Refusals: `NotFound`; `InvalidState` if a task or a run is open, or a switch port is set; `NodeInUse`: an allocation can be
    released through it alone.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        if await bmcs.lock_bmc(tx, node_id) is None:
            raise NotFound(f"node {node_id} has no BMC")
        await require_no_run(tx, node_id)
        await require_no_update(tx, node_id)
        await _require_no_open_task(tx, node_id)
        await _require_no_ports(tx, node_id)
        claims = (await deploy_systems.read_use(tx, node_id, None)).claims
        renting = [{"claim_id": claim, "owner_kind": kind} for claim, kind in claims.items() if kind == "allocation"]
        if renting:
            raise NodeInUse(
                "an allocation is on the machine, which is wiped through its BMC; release it first", claims=renting
            )
        await bmcs.delete_bmc(tx, node_id)
        turned = await set_offline_without_bmc(tx, node_id)
        if turned is not None:
            payload = {"node_id": str(node_id), "name": turned.name, "last_seen_at": None}
            event = Event(
                EventType.NODE_OFFLINE, f"nodes/{node_id}", uuid4(), None, payload, operation.key, operation.request_id
            )
            await append_event(tx, event)
        await audit.record(tx, actor, "node.remove_bmc", f"nodes/{node_id}", {}, operation.request_id)
        return Done(204, None, node_id)

    return await run_once(context, operation, effect, None)


async def _require_no_ports(tx: Transaction, node_id: UUID) -> None:
    if await has_ports(tx, node_id):
        raise InvalidState("switch ports of the machine are set: berth node port remove", state="ports_set")


async def _require_no_open_task(tx: Transaction, node_id: UUID) -> None:
    task = await bmc_tasks.lock_open(tx, node_id)
    if task is not None:
        raise InvalidState(f"a task ({task.kind.value}) of this BMC is open; wait for its end", state="task_open")


async def request_bmc_task(
    context: Context, operation: Operation, actor: Actor, node_id: UUID, kind: BmcTaskKind
) -> Answer:
    """200 with the BMC and its open task; an open one of the same kind is the answer.

    Refusals: `NotFound`; `InvalidState` if a task of another kind or a run is open; for what ends a running system also
    `NodeInUse`, and `InvalidState` if the node is in service; for that and a reset of the BMC `InvalidState` if a deploy system
    performs a task: it reads its medium through the BMC.
    """

    async def effect(tx: Transaction) -> Done:
        await nodes.lock_node(tx, node_id)
        bmc = await bmcs.lock_bmc(tx, node_id)
        if bmc is None:
            raise NotFound(f"node {node_id} has no BMC")
        await require_no_run(tx, node_id)
        await require_no_update(tx, node_id)
        task = await bmc_tasks.lock_open(tx, node_id)
        if task is not None and task.kind is not kind:
            raise InvalidState(f"a task ({task.kind.value}) of this BMC is open; wait for its end", state="task_open")
        if kind in STOPPING:
            await require_stoppable(tx, node_id)
        elif kind is BmcTaskKind.RESET_BMC:
            await require_no_deploy_task(tx, node_id)
        if task is None:
            by = f"{actor.kind.value}:{actor.id}"
            task = await bmc_tasks.request_task(tx, node_id, bmc.site_id, kind, by, REQUEST_SECONDS_MAX)
        said = {"task_id": str(task.id), "kind": kind.value}
        action = "node.bmc_power" if kind in POWERED else f"node.bmc_{kind.value.removesuffix('_bmc')}"
        await audit.record(tx, actor, action, f"nodes/{node_id}", said, operation.request_id)
        return await _shown(tx, node_id)

    return await run_once(context, operation, effect, None)


async def require_stoppable(tx: Transaction, node_id: UUID) -> None:
    """Return if no system that must run on is on the locked node. Raises `NodeInUse`, `InvalidState`."""
    use = await deploy_systems.read_use(tx, node_id, None)
    obstacle = use.obstacle(writing=False)
    if obstacle is DeployReason.NODE_IN_USE:
        claims = [{"claim_id": claim, "owner_kind": kind} for claim, kind in use.claims.items()]
        raise NodeInUse("the machine is in use; it is not switched off before that has ended", claims=claims)
    if obstacle is not None:
        raise InvalidState("the node is in service, or retired; cordon it first", state=use.state.value)
    await require_no_deploy_task(tx, node_id)


async def require_no_deploy_task(tx: Transaction, node_id: UUID) -> None:
    """Return if no deploy system performs a task on the locked node. Raises `InvalidState`."""
    task = await deploy_tasks.read_open(tx, node_id)
    if task is not None and task.task_id is not None:
        raise InvalidState(
            f"the deploy system of the machine performs {task.type.value}; wait for its end", state="deploy_task"
        )


async def _shown(tx: Transaction, node_id: UUID) -> Done:
    found = await bmcs.read_bmc(tx, node_id)
    task = (await bmc_tasks.newest_tasks(tx, [node_id])).get(node_id)
    return Done(200, bmc_document(found, task), node_id)
