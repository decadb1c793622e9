"""Judges a locked balance and tells its tenant what is news (docs/reference/billing.md)."""

from __future__ import annotations

from uuid import UUID

from orchestrator.billing.rules import Judgement, Standing, judge, judged
from orchestrator.billing.store.balances import note_judgement, read_standing
from orchestrator.database.transactions import Transaction
from orchestrator.log.events import Event, EventType
from orchestrator.log.store.outbox import append_event
from orchestrator.times import rfc3339


async def judge_balance(tx: Transaction, tenant_id: UUID) -> tuple[Standing, Judgement]:
    """What a balance that the caller has locked comes to now, written down; `balance.low` and `balance.depleted` where new.

    Both are told where it sank through both at once. From the commit on a depleted tenant begins nothing.
    """
    standing = await read_standing(tx, tenant_id)
    judgement = judge(standing)
    await note_judgement(tx, standing, judgement)
    if judgement.tell_low:
        await append_event(tx, _event(EventType.BALANCE_LOW, standing))
    if judgement.tell_depleted:
        await append_event(tx, _event(EventType.BALANCE_DEPLETED, standing))
    return judged(standing, judgement), judgement


def _event(event_type: EventType, standing: Standing) -> Event:
    payload = {
        "settled_micro_units": standing.settled,
        "accruing_micro_units": standing.accruing,
        "available_micro_units": standing.available,
        "low_threshold_micro_units": standing.low_threshold,
        "rate_micro_units_per_second": standing.rate,
        "runs_out_at": rfc3339(standing.runs_out_at),
        "judged_at": rfc3339(standing.at),
    }
    return Event(event_type, f"tenants/{standing.tenant_id}", standing.tenant_id, standing.tenant_id, payload)
