"""Where the log ends, and giving what waits its place in it (DESIGN §7)."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.database.transactions import Transaction

_SEQUENCE = "select moved, version, leader_id, accepted_leader_id from log_sequence(:limit)"


@dataclass(frozen=True, slots=True)
class Head:
    """The newest version; which Postgres answers (system identifier and timeline), and which the log is accepted to be
    written by.
    """

    version: int
    leader_id: str
    accepted_leader_id: str

    @property
    def is_accepted(self) -> bool:
        """False from a failover until an operator accepts the new leader (docs/reference/events.md): until then versions may
        still change.
        """
        return self.leader_id == self.accepted_leader_id


async def sequence(tx: Transaction, limit: int) -> tuple[int, Head]:
    """Give up to `limit` waiting events their versions; answers how many, and the head, which is at least as new as every
    write that was committed before. The transaction must be this one statement: it holds the head's lock until it ends.
    """
    row = (await tx.execute(_SEQUENCE, {"limit": limit})).one()
    return row.moved, Head(row.version, row.leader_id, row.accepted_leader_id)
