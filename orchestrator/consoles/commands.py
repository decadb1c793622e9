"""Open, sign, attach, keep and end console sessions: one transaction per verb."""

from __future__ import annotations

from uuid import UUID

from berth.process.json_objects import JsonObject
from orchestrator.audit import store as audit
from orchestrator.consoles import store
from orchestrator.consoles.refusals import ConsoleBusy, ConsoleUnsupported, TooManyConsoles
from orchestrator.consoles.rules import Counts, EndReason, refusal
from orchestrator.consoles.store import NewSession, Opened
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.tenants.principals import Actor, ActorKind, Principal

OPENED = "allocation.console"
ENDED = "allocation.console_end"
SWEEPER = Actor(ActorKind.WORKER, "consoles")


async def open_session(
    context: Context, principal: Principal, new: NewSession, *, tenant_sessions_max: int, request_id: str | None
) -> Opened:
    """Open a session with an active allocation of the principal's tenant; the worker then issues its task.

    Raises `NotFound`, `InvalidState`, `ConsoleUnsupported`, `ConsoleBusy`, `TooManyConsoles`; nothing is recorded then.
    """

    async def work(tx: Transaction) -> Opened:
        target = await store.lock_target(tx, new.allocation_id)
        refused = refusal(target, principal.tenant_id, new.allocation_id)
        if refused is not None:
            raise refused
        assert target is not None, "it would be refused"
        if not target.supported:
            raise ConsoleUnsupported.by(target.agent_version)
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


async def require_console(context: Context, principal: Principal, allocation_id: UUID) -> None:
    """Raise what `open_session` raises for an allocation that has no console for the principal, or is not its own."""

    async def work(tx: Transaction) -> None:
        refused = refusal(await store.lock_target(tx, allocation_id), principal.tenant_id, allocation_id)
        if refused is not None:
            raise refused

    await transact(context, work)


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
        await store.issue(tx, context.signer, node_id, session, dial_seconds)
        return True

    return await transact(context, work)


async def attach_session(context: Context, session_id: UUID, node_id: UUID, process_id: UUID) -> bool:
    """Record that the agent of this node connected for the session; False unless it waits for that, so once."""
    return await transact(context, lambda tx: store.note_attached(tx, session_id, node_id, process_id))


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
