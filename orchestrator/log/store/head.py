"""The head of the log, and sequencing waiting events (DESIGN §7)."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.database.transactions import Transaction

_SEQUENCE = "select moved, version, leader_id, accepted_leader_id from log_sequence(:limit)"


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version, and the leader (PostgreSQL system identifier, timeline and epoch) that answers and that is accepted."""

    version: int
    leader_id: str
    accepted_leader_id: str

    @property
    def is_accepted(self) -> bool:
        """False from a failover until an operator accepts the timeline (docs/reference/events.md, "Making the stream anew").

        Until then versions may still change.
        """
        return self.leader_id == self.accepted_leader_id


async def sequence(tx: Transaction, limit: int) -> tuple[int, Head]:
    """Sequence up to `limit` waiting events; return how many, and the head, at least as new as every earlier commit.

    The one statement of `tx`, because it holds the lock of the head until the transaction ends.
    """
    row = (await tx.execute(_SEQUENCE, {"limit": limit})).one()
    return row.moved, Head(row.version, row.leader_id, row.accepted_leader_id)
