"""SQL that records the verb of an allocation's guest: ordered, issued, ended. The allocation stays `active`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from berth.process.json_objects import JsonObject
from orchestrator.allocations.failures import CHANGES_NOTHING
from orchestrator.allocations.states import GuestState, Verb
from orchestrator.allocations.subject import Subject
from orchestrator.allocations.waits import Wait
from orchestrator.database.transactions import Transaction

_ORDER = """
update allocations set
    row_version = row_version + 1, guest_verb = :verb, guest_failure_code = null, guest_failure_detail = null,
    waits_for = 'worker', waits_since = :clock,
    waits_until = cast(:clock as timestamptz) + make_interval(secs => cast(:wait_seconds as float8))
where id = :id and row_version = :row_version and state = 'active' and guest_verb is null
returning row_version
"""
_END = """
update allocations set
    row_version = row_version + 1, guest_verb = null, guest_state = :guest_state, guest_failure_code = :code,
    guest_failure_detail = :detail, connection = coalesce(cast(:connection as jsonb), connection),
    rescue = case when :guest_state = 'rescue' then coalesce(cast(:rescue as jsonb), rescue) end,
    waits_for = :waits_for, waits_since = :clock, waits_until = null,
    -- A rebuilt guest has another disk, which boots for the first time; after a failure it may have one too.
    first_boot = case when :may_have_new_disk then null else first_boot end,
    first_boot_detail = case when :may_have_new_disk then null else first_boot_detail end,
    first_boot_since = case when :may_have_new_disk then null else first_boot_since end
where id = :id and row_version = :row_version and state = 'active' and guest_verb is not null
returning row_version
"""


async def order_verb(tx: Transaction, subject: Subject, verb: Verb, wait_seconds: float) -> int:
    """Record that a worker begins `verb` within `wait_seconds`; return the new row version. The allocation is locked."""
    values = {"id": subject.id, "row_version": subject.row_version, "verb": verb.value}
    row = await tx.execute(_ORDER, {**values, "clock": subject.clock, "wait_seconds": wait_seconds})
    row_version: int = row.scalar_one()
    return row_version


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a verb: the guest's state, a failure's code and detail, and the connection if it changed.

    `rescue`: how the tenant logs in to the rescue system that has started.
    """

    guest_state: GuestState
    code: str | None = None
    detail: str | None = None
    connection: JsonObject | None = None
    rescue: JsonObject | None = None


async def end_verb(tx: Transaction, subject: Subject, ended: Ended) -> int:
    """Record the end of the verb in progress; return the new row version. The allocation waits for its tenant again."""
    values = {
        "id": subject.id,
        "row_version": subject.row_version,
        "guest_state": ended.guest_state.value,
        "code": ended.code,
        "detail": ended.detail,
        "connection": None if ended.connection is None else json.dumps(ended.connection),
        "rescue": None if ended.rescue is None else json.dumps(ended.rescue),
        "waits_for": Wait.TENANT.value,
        "clock": subject.clock,
        "may_have_new_disk": subject.guest_verb == Verb.REBUILD and ended.code not in CHANGES_NOTHING,
    }
    row_version: int = (await tx.execute(_END, values)).scalar_one()
    return row_version
