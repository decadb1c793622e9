"""The one door through which slots leave service and return: for a quarantine, an orphan, or drift of the topology."""

from __future__ import annotations

from uuid import UUID

from orchestrator.database.transactions import Transaction
from orchestrator.nodes.orphan_states import SLOT_REASON

DRIFT_REASON = "its hardware differs from the approved topology; see berth node topology"

QUARANTINE_PREFIX = "quarantined: "

# A slot that is out for several reasons names the first, and serves again when none keeps it. One with another reason was
# taken out by hand, and is left as it is.
_KEEP_SLOTS = """
with kept as (
    select s.unit, coalesce(
        (select :quarantine || q.reason from slot_quarantines q where q.unit = s.unit and q.returned_at is null),
        case when exists (select from node_orphans o where o.node_id = s.node_id and o.state <> 'destroyed'
                                                       and s.slot_index = any (o.slots)) then :orphan
             when exists (select from node_topologies t where t.node_id = s.node_id
                                                          and s.slot_index = any (t.drifted_slots)) then :drift
        end) as reason
    from slots s where s.node_id = :node_id
)
update slots s set state = case when k.reason is null then 'in_service' else 'out_of_service' end, reason = k.reason
from kept k
where s.unit = k.unit and k.reason is distinct from s.reason
  and (s.state = 'in_service' or s.reason in (:orphan, :drift) or starts_with(s.reason, :quarantine))
"""


async def keep_slots(tx: Transaction, node_id: UUID) -> None:
    """Slots with a quarantine, an orphan or a drift are out of service, others that were so for one of these serve again.

    The caller has locked the node.
    """
    reasons = {"quarantine": QUARANTINE_PREFIX, "orphan": SLOT_REASON, "drift": DRIFT_REASON}
    await tx.execute(_KEEP_SLOTS, {"node_id": node_id, **reasons})
    await tx.execute("select refresh_node_fit(:node_id)", {"node_id": node_id})
