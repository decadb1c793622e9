"""Go on with what was decided about an orphan: issue its task, conclude on proof, or ask the operator again."""

from __future__ import annotations

from uuid import UUID, uuid4

from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.nodes.orphan_states import DestroyStep, OrphanState, next_step
from orchestrator.nodes.store import orphans
from orchestrator.nodes.store.orphans import LockedOrphan
from orchestrator.operations.execution import Context, transact
from orchestrator.tasks.states import TaskState

CODE_DESTROY_EXHAUSTED = "destroy_exhausted"


async def advance_orphan(context: Context, orphan_id: UUID) -> OrphanState | None:
    """One step, judged after the locks; the state it led to, None if there was nothing to do. Repeating it is harmless.

    Each attempt is a release task under a new fence, for at most `release_seconds_max`; after `release_attempts_max`
    the orphan is `reported` again, with the reason.
    """
    return await transact(context, lambda tx: _advance(context, tx, orphan_id))


async def _advance(context: Context, tx: Transaction, orphan_id: UUID) -> OrphanState | None:
    locked = await orphans.lock_orphan(tx, orphan_id)
    if locked is None:
        return None
    match OrphanState(locked.orphan.state):
        case OrphanState.ADOPTED:
            return await _ask_again(tx, locked)
        case OrphanState.DESTROYING:
            return await _destroy(context, tx, locked)
        case _:
            return None


async def _ask_again(tx: Transaction, locked: LockedOrphan) -> OrphanState | None:
    orphan = locked.orphan
    if orphan.adopted_for is None or await orphans.lives_on(tx, orphan.adopted_for, orphan.node_id):
        return None
    detail = f"the allocation {orphan.adopted_for} that it was adopted for is over"
    await orphans.go_on(
        tx, orphan, OrphanState.REPORTED, attempts=0, waits_for=Wait.OPERATOR, code="adopter_over", detail=detail
    )
    return OrphanState.REPORTED


async def _destroy(context: Context, tx: Transaction, locked: LockedOrphan) -> OrphanState | None:
    orphan, limits = locked.orphan, context.limits
    latest = await orphans.latest_task(tx, orphan)
    task, code, detail = latest or (None, None, None)
    disturbs = await orphans.disturbs_others(tx, orphan)
    match next_step(task, orphan.attempts, limits.release_attempts_max, disturbs=disturbs):
        case DestroyStep.WAIT:
            return None
        case DestroyStep.EXPIRE:
            await orphans.end_task(tx, orphan.id, TaskState.EXPIRED)
            await orphans.go_on(
                tx, orphan, OrphanState.DESTROYING, attempts=orphan.attempts, waits_for=Wait.WORKER,
                wait_seconds=limits.requested_seconds_max, code="agent_silent", detail="no report in time",
            )  # fmt: skip
            return OrphanState.DESTROYING
        case DestroyStep.ISSUE:
            assert context.signer is not None, "only processes with a signing key begin tasks"
            await orphans.issue_destruction(tx, context.signer, locked, limits.release_seconds_max)
            await orphans.go_on(
                tx, orphan, OrphanState.DESTROYING, attempts=orphan.attempts + 1, waits_for=Wait.NODE,
                wait_seconds=limits.release_seconds_max, code=code, detail=detail,
            )  # fmt: skip
            return OrphanState.DESTROYING
        case DestroyStep.CONCLUDE:
            assert task is not None, "the proof is the task's"
            await orphans.go_on(
                tx, orphan, OrphanState.DESTROYED, attempts=orphan.attempts, waits_for=None, proof=task.result
            )
            await _tell(tx, locked)
            return OrphanState.DESTROYED
        case DestroyStep.GIVE_UP:
            why = f"{orphan.attempts} attempts failed; the last: {detail or orphan.failure_detail or 'not proven'}"
            await orphans.go_on(
                tx, orphan, OrphanState.REPORTED, attempts=0, waits_for=Wait.OPERATOR, code=CODE_DESTROY_EXHAUSTED,
                detail=why,
            )  # fmt: skip
            return OrphanState.REPORTED


async def _tell(tx: Transaction, locked: LockedOrphan) -> None:
    orphan = locked.orphan
    described = {
        "orphan_id": orphan.id, "node_id": orphan.node_id, "name": locked.node_name,
        "allocation_id": orphan.allocation_id, "slots": orphan.slots, "decided_by": orphan.decided_by,
    }  # fmt: skip
    await append_event(tx, Event(EventType.NODE_ORPHAN_DESTROYED, f"nodes/{orphan.node_id}", uuid4(), None, described))
