"""Releases again what was released in the lost interval of a restore (P9): its end was acknowledged."""

from __future__ import annotations

from orchestrator.allocations.health import OutageCause
from orchestrator.allocations.states import AllocationState
from orchestrator.allocations.store.advance import lock_allocation
from orchestrator.allocations.store.releasing import ReleaseOrder, order_release
from orchestrator.allocations.subject import Subject
from orchestrator.audit import store as audit
from orchestrator.database.transactions import Transaction
from orchestrator.operations.execution import Context, transact
from orchestrator.restores.store import DONE, NOOP, Replay, conclude_replay
from orchestrator.tenants.principals import Actor, ActorKind
from orchestrator.times import rfc3339

REASON = "released_before_restore"
POLICY = Actor(ActorKind.ADMIN, f"policy:{REASON}")
_NOT_ENDED = frozenset(
    {
        AllocationState.REQUESTED, AllocationState.PROVISIONING, AllocationState.ACTIVE, AllocationState.RELEASE_FAILED,
    }
)  # fmt: skip


async def replay_release(context: Context, replay: Replay) -> bool:
    """Release the allocation unless it has ended, evaluated after its locks; return whether. A repetition changes nothing.

    Metered time ends now; what was metered since the release in the lost interval is credited by the operator's rule.
    """

    async def work(tx: Transaction) -> bool:
        subject = await lock_allocation(tx, replay.subject_id)
        ends = subject is not None and subject.state in _NOT_ENDED
        if not await conclude_replay(tx, replay, DONE if ends else NOOP) or subject is None or not ends:
            return False
        order = ReleaseOrder(REASON, context.limits.requested_seconds_max, added=_outage_since(subject, replay))
        await order_release(tx, subject, order, POLICY)
        await audit.record(tx, POLICY, "allocation.release", subject.name, {"reason": REASON}, None)
        return True

    return await transact(context, work)


def _outage_since(subject: Subject, replay: Replay) -> dict[str, str | None]:
    """What its event says of the time since its end, in which it was metered without a guest."""
    if subject.state is not AllocationState.ACTIVE or subject.active_at is None:
        return {}
    since = rfc3339(max(replay.ended_at, subject.active_at))
    return {
        "last_proof_of_life_at": since, "outage_since": since, "outage_cause": OutageCause.GUEST_GONE, "outage_lost_at": None,
    }  # fmt: skip
