"""Open, sign, attach, keep and end console sessions: one transaction per verb."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.consoles import site_store, store
from orchestrator.consoles.refusals import (
    ConsoleBusy,
    ConsoleLogAbsent,
    ConsoleNotSetUp,
    ConsoleUnsupported,
    TooManyConsoles,
)
from orchestrator.consoles.rules import Counts, EndReason, Mode, Target, refusal
from orchestrator.consoles.store import NewSession, Opened
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.sites.store.bmc_tasks import Leased
from orchestrator.tasks.store.site_tasks import is_of_site
from orchestrator.tenants.principals import Actor, ActorKind, Principal

OPENED = "allocation.console"
ENDED = "allocation.console_end"
SWEEPER = Actor(ActorKind.WORKER, "consoles")


async def open_session(
    context: Context, principal: Principal, new: NewSession, *, tenant_sessions_max: int, request_id: str | None
) -> Opened:
    """Open a session with an active allocation of the principal's tenant; the worker then issues its task.

    Raises `NotFound`, `InvalidState`, `ConsoleUnsupported`, `ConsoleNotSetUp`, `ConsoleLogAbsent`, `ConsoleBusy`,
    `TooManyConsoles`; nothing is recorded then.
    """

    async def work(tx: Transaction) -> Opened:
        target = await _require_target(tx, principal, new.allocation_id, new.mode)
        count, attached = await store.read_open(tx, target.tenant_id, new.allocation_id)
        if attached and new.mode == "attach":
            raise ConsoleBusy.now()
        if count >= tenant_sessions_max:
            raise TooManyConsoles.of_tenant(tenant_sessions_max)
        actor = principal.actor
        opened = await store.insert_session(tx, new, target, f"{actor.kind.value}:{actor.id}")
        said = {"session_id": str(opened.id), "mode": new.mode, "node_id": str(opened.node_id)}
        await audit.record(tx, actor, OPENED, f"allocations/{new.allocation_id}", said, request_id)
        return opened

    return await transact(context, work)


async def require_console(context: Context, principal: Principal, allocation_id: UUID, mode: Mode) -> None:
    """Raise what `open_session` raises for an allocation that has no console for the principal, or is not its own."""

    async def work(tx: Transaction) -> None:
        await _require_target(tx, principal, allocation_id, mode)

    await transact(context, work)


async def _require_target(tx: Transaction, principal: Principal, allocation_id: UUID, mode: Mode) -> Target:
    """The locked allocation, whose console the principal may have. Raises as `open_session` does, but for bounds."""
    target = await store.lock_target(tx, allocation_id)
    if (
        target is not None
        and target.tenant_id == principal.tenant_id
        and await is_of_site(tx, allocation_id, target.node_id)
    ):
        target = replace(target, machine=await store.read_machine(tx, target.node_id))
    refused = refusal(target, principal.tenant_id, allocation_id)
    if refused is not None:
        raise refused
    assert target is not None, "it would be refused"
    if target.machine is not None and mode == "log":
        raise ConsoleLogAbsent.of_machine()
    if target.machine is not None and not target.machine.is_pinned:
        raise ConsoleNotSetUp.now()
    if target.machine is None and not target.supported:
        raise ConsoleUnsupported.by(target.agent_version)
    return target


async def issue_task(context: Context, session_id: UUID, dial_seconds: float) -> bool:
    """Sign and queue the task of an open session that has none; False if there is nothing to do any more."""

    async def work(tx: Transaction) -> bool:
        assert context.signer is not None, "only processes with a signing key issue tasks"
        found = await store.lock_unsigned(tx, session_id)
        if found is None:
            return False
        node_id, session = found
        if session.waits_until <= session.clock:
            return False  # its process ends it, or the sweeper
        if session.site_id is not None:
            if await site_store.is_run_open(tx, node_id):
                return False
            return await site_store.issue(tx, context.signer, node_id, session.site_id, session, dial_seconds)
        await store.issue(tx, context.signer, node_id, session, dial_seconds)
        return True

    return await transact(context, work)


async def attach_session(context: Context, session_id: UUID, node_id: UUID, process_id: UUID) -> bool:
    """Record that the agent of this node connected for the session; False unless it waits for that, so once."""
    return await transact(context, lambda tx: store.note_attached(tx, session_id, node_id, process_id))


async def attach_machine_session(context: Context, session_id: UUID, agent_id: UUID, process_id: UUID) -> bool:
    """Record that this agent of a site connected for the session of a machine; False unless it holds the lease under which it was
    handed out, and the session waits for that, so once."""
    return await transact(context, lambda tx: site_store.note_attached(tx, session_id, agent_id, process_id))


async def lease_machine_sessions(
    context: Context, agent_id: UUID, serial: str, run_id: UUID, lease_fence: int, limit: int
) -> list[Leased]:
    """Tasks of sessions for the holder of this lease, each handed out once; none if the caller does not hold it."""
    async with context.database.autocommit() as tx:
        return await site_store.lease(tx, agent_id, serial, run_id, lease_fence, limit)


async def keep_sessions(context: Context, process_id: UUID, session_ids: list[UUID]) -> dict[UUID, EndReason | None]:
    """Say that a process still has these sessions; those that are open, each with a reason to end it."""
    return await transact(context, lambda tx: store.keep_sessions(tx, process_id, session_ids))


async def end_session(
    context: Context, session_id: UUID, reason: EndReason, counts: Counts, actor: Actor, request_id: str | None = None
) -> bool:
    """End an open session, withdraw its task and record it; False if it has ended."""
    return await transact(context, lambda tx: _end(tx, session_id, reason, counts, actor, request_id))


async def end_lost_session(context: Context, session_id: UUID, silent_seconds: float) -> EndReason | None:
    """End an open session whose process is silent, or that nothing ended in time; why, or None if neither holds."""

    async def work(tx: Transaction) -> EndReason | None:
        found = await store.lock_lost(tx, session_id, silent_seconds)
        if found is None:
            return None
        silent, late, waits_for = found
        if not silent and not late:
            return None
        reason = EndReason.PROCESS_LOST
        if not silent:
            reason = EndReason.DEADLINE if waits_for == "end" else EndReason.AGENT_ABSENT
        await _end(tx, session_id, reason, Counts(), SWEEPER, None)
        return reason

    return await transact(context, work)


async def forget_sessions(context: Context, retention_seconds: float, limit: int) -> int:
    """Delete at most `limit` ended sessions past their retention; how many."""
    return await transact(context, lambda tx: store.forget_ended(tx, retention_seconds, limit))


async def _end(
    tx: Transaction, session_id: UUID, reason: EndReason, counts: Counts, actor: Actor, request_id: str | None
) -> bool:
    ended = await store.end_session(tx, session_id, reason.value, counts)
    if ended is None:
        return False
    said: JsonObject = {
        "session_id": str(session_id), "mode": ended.mode, "opened_by": ended.opened_by, "reason": reason.value,
        "seconds": round(ended.seconds, 3), "bytes_to_guest": counts.to_guest, "bytes_to_tenant": counts.to_tenant,
        "bytes_dropped": counts.dropped,
    }  # fmt: skip
    await audit.record(tx, actor, ENDED, f"allocations/{ended.allocation_id}", said, request_id)
    return True
