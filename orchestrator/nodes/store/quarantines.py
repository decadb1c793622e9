"""SQL of quarantines: times in which an operator, a probe, a fault report, a release or an attestation keeps a slot out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from orchestrator.database.transactions import Reading, Transaction
from orchestrator.nodes.store.slot_service import keep_slots

Source = Literal["operator", "probe", "release", "attestation"]

EVIDENCE_LENGTH_MAX = 16_000

_UNIT = "select unit from slots where node_id = :node_id and slot_index = :slot_index"
_OPEN = """
select id, node_id, slot_index, reason, evidence, quarantined_at, quarantined_by, returned_at, returned_by, note, source,
       fault_report_id, last_fault_at, burn_in_id
from slot_quarantines where unit = :unit and returned_at is null
"""
_BEGIN = """
insert into slot_quarantines (node_id, slot_index, unit, reason, evidence, quarantined_by, source)
select :node_id, slot_index, unit, reason, evidence, :by, :source
from jsonb_to_recordset(cast(:begun as jsonb)) as (slot_index smallint, unit bigint, reason text, evidence text)
order by slot_index
returning id, node_id, slot_index, reason, evidence, quarantined_at, quarantined_by, returned_at, returned_by, note, source,
       fault_report_id, last_fault_at, burn_in_id
"""
_END = """
update slot_quarantines set returned_at = clock_timestamp(), returned_by = :by, note = :note, burn_in_id = :burn_in_id
where unit = any (:units) and returned_at is null
returning id, node_id, slot_index, reason, evidence, quarantined_at, quarantined_by, returned_at, returned_by, note, source,
       fault_report_id, last_fault_at, burn_in_id
"""
_ADD_EVIDENCE = """
update slot_quarantines set evidence = right(concat_ws(E'\\n', evidence, cast(:evidence as text)), :length_max)
where node_id = :node_id and returned_at is null
"""
_SOUND = """
select slot_index, unit from slots s where node_id = :node_id
  and not exists (select from slot_quarantines q where q.unit = s.unit and q.returned_at is null) order by slot_index
"""
_NOTE_FAULTS = """
update slot_quarantines set last_fault_at = clock_timestamp()
where node_id = :node_id and returned_at is null and slot_index = any (:slots)
"""
_LIST = """
select id, node_id, slot_index, reason, evidence, quarantined_at, quarantined_by, returned_at, returned_by, note, source,
       fault_report_id, last_fault_at, burn_in_id
from slot_quarantines where node_id = :node_id and (:every or returned_at is null) and id > :after order by id limit :limit
"""


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A time during which a slot was out of service, `source` says by what; open until it is returned."""

    id: UUID
    node_id: UUID
    slot_index: int
    reason: str
    evidence: str | None
    quarantined_at: datetime
    quarantined_by: str
    returned_at: datetime | None
    returned_by: str | None
    note: str | None
    source: str
    fault_report_id: UUID | None
    last_fault_at: datetime | None
    burn_in_id: UUID | None


@dataclass(frozen=True, slots=True)
class NewQuarantine:
    """A slot to be taken out of service, and why."""

    slot_index: int
    unit: int
    reason: str
    evidence: str | None


async def find_unit(tx: Transaction, node_id: UUID, slot_index: int) -> int | None:
    """The unit of the node's slot; None: the node has no such slot."""
    unit: int | None = (await tx.execute(_UNIT, {"node_id": node_id, "slot_index": slot_index})).scalar()
    return unit


async def read_open_quarantine(reading: Reading, unit: int) -> Quarantine | None:
    """The quarantine that keeps this slot out of service."""
    row = (await reading.execute(_OPEN, {"unit": unit})).first()
    return None if row is None else Quarantine(**row._mapping)


async def begin_quarantines(
    tx: Transaction, node_id: UUID, begun: Sequence[NewQuarantine], *, by: str, source: Source
) -> list[Quarantine]:
    """Take slots of a node out of service; the caller holds its lock and found no open quarantine of any."""
    values = {"node_id": node_id, "by": by, "source": source, "begun": json.dumps([asdict(one) for one in begun])}
    rows = (await tx.execute(_BEGIN, values)).all()
    await keep_slots(tx, node_id)
    return [Quarantine(**row._mapping) for row in rows]


async def note_faults(tx: Transaction, node_id: UUID, slots: Sequence[int]) -> None:
    """Other faults were found now of slots of a locked node: those in quarantine return after a later burn-in."""
    await tx.execute(_NOTE_FAULTS, {"node_id": node_id, "slots": list(slots)})


async def add_evidence(tx: Transaction, node_id: UUID, evidence: str) -> None:
    """Append to the evidence of the open quarantines of a locked node; the oldest is cut beyond `EVIDENCE_LENGTH_MAX`."""
    values = {"node_id": node_id, "evidence": evidence, "length_max": EVIDENCE_LENGTH_MAX}
    await tx.execute(_ADD_EVIDENCE, values)


async def sound_slots(tx: Transaction, node_id: UUID) -> list[tuple[int, int]]:
    """Index and unit of each slot of a locked node that is not in quarantine."""
    return [(row.slot_index, row.unit) for row in await tx.execute(_SOUND, {"node_id": node_id})]


async def end_quarantines(
    tx: Transaction, node_id: UUID, units: Sequence[int], *, note: str, by: str, burn_in_id: UUID | None
) -> list[Quarantine]:
    """Return these slots, unless an orphan or a drift keeps one out. `burn_in_id`: the burn-in that permits it.

    The caller holds the node's lock and found the open quarantine of each.
    """
    values = {"units": list(units), "note": note, "by": by, "burn_in_id": burn_in_id}
    rows = (await tx.execute(_END, values)).all()
    await keep_slots(tx, node_id)
    return [Quarantine(**row._mapping) for row in rows]


async def list_quarantines(
    reading: Reading, node_id: UUID, *, every: bool, after: UUID, limit: int
) -> list[Quarantine]:
    """Up to `limit` quarantines of the node behind this id, the oldest first; with `every`, also those that ended."""
    values: dict[str, object] = {"node_id": node_id, "every": every, "after": after, "limit": limit}
    return [Quarantine(**row._mapping) for row in await reading.execute(_LIST, values)]
