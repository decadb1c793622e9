"""The state that the journal's records describe: progress of each task, newest fence of each unit. Pure, no I/O."""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from node_agent.journal_records import Accepted, AnyRecord, Finished, NewestFence, Reported, Started, Wiped
from node_agent.protocol import OF_SITES, PROVISIONS, Envelope, ResultReport, TaskBody, TaskType

REPORTED_SECONDS = 2 * 86_400.0
"""How long reports are kept. After a restore the control plane hands out again what it had not known to be finished: such a task
is answered with its report, and one that is forgotten is refused by its fence. The age is that of the task, by the server's clock
in its id (UUIDv7), so two days cover a restore to a day before and tasks that took as long.
"""
REPORTED_MIN, REPORTED_MAX = 256, 4096
"""Reports that are kept whatever their age, and how many at most. A node of eight slots finishes 2,304 tasks in a day with an
allocation per slot every ten minutes; each is rewritten when the journal is compacted.
"""
REPORTED_BYTES_MAX = 16 * 2**20
"""Of all reports together: as many as `REPORTED_MIN` of the largest size."""
ALLOCATION_FENCES_KEPT = 2048
ALLOCATIONS_WIPED_KEPT = 2048
"""Releases of a day and more, as above: one that is ordered again has nothing left to prove but these."""


@dataclass
class JournaledTask:
    """One task's progress through the journal. `envelope` and `body` are None for a task that was refused or reported."""

    task_id: UUID
    envelope: Envelope | None = None
    body: TaskBody | None = None
    started: bool = False
    report: ResultReport | None = None
    reported: bool = False


LOGIN_PARAMETERS = frozenset({"user_data", "ssh_public_keys"})


def created_seconds(task_id: UUID) -> float | None:
    """When the server made the task, in seconds since 1970; None for an id that does not say so."""
    return (task_id.int >> 80) / 1000.0 if task_id.version == 7 else None


def has_login_data(body: TaskBody) -> bool:
    """Return whether the task contains user data or SSH keys, which leave the journal once its result is acknowledged."""
    return not LOGIN_PARAMETERS.isdisjoint(body.parameters)


def units_of(body: TaskBody) -> list[str]:
    """Return the units whose fences apply to `body`: its slots and its allocation, or the BMC of its machine."""
    slots = body.parameters.get("slots")
    if body.type in OF_SITES:
        return [f"bmc:{body.node_id}"]
    units = [f"slot:{slot}" for slot in slots] if isinstance(slots, list) else []
    return units + ([f"allocation:{body.allocation_id}"] if body.allocation_id is not None else [])


class JournalState:
    """A fold over records; only `apply` changes it."""

    def __init__(self, reported_seconds: float = REPORTED_SECONDS) -> None:
        """`reported_seconds`: how much older than the newest finished task one may be whose report is kept."""
        self._reported_seconds = reported_seconds
        self._reports: OrderedDict[UUID, int] = OrderedDict()
        """Bytes of each report that the server has, the oldest first."""
        self._report_bytes = 0
        self._newest_created = 0.0
        self.tasks: OrderedDict[UUID, JournaledTask] = OrderedDict()
        self.newest: OrderedDict[str, NewestFence] = OrderedDict()
        self.wiped: OrderedDict[UUID, Wiped] = OrderedDict()
        """Proofs by allocation, for a release that finds nothing because an earlier one, whose report did not count, wiped it."""

    def apply(self, record: AnyRecord) -> None:
        """Apply one record. Earlier records may be missing after damage; that is no error."""
        match record:
            case Accepted():
                self._accepted(record)
            case Started():
                self._task(record.task_id).started = True
            case Wiped():
                self._wiped(record)
            case Finished():
                self._finished(record)
            case Reported():
                self._reported(record.task_id)
            case NewestFence():
                self._seen(record)

    def live(self) -> list[JournaledTask]:
        """Return tasks not yet reported, in order of acceptance. A task whose `Accepted` was lost to damage is left out:
        the server hands it out again."""
        return [task for task in self.tasks.values() if not task.reported and (task.body or task.report)]

    def fence_objection(self, body: TaskBody) -> str | None:
        """Return why `body`'s fence forbids it, or None. At most one effect completes per fence; older fences are refused."""
        for unit in units_of(body):
            newest = self.newest.get(unit)
            if newest is None or newest.fence < body.fence:
                continue
            if newest.fence > body.fence:
                return f"fence {body.fence} is older than {newest.fence}, the newest seen for {unit}"
            other = self.tasks.get(newest.task_id)
            # A completed task whose report was dropped (`REPORTED_MAX`) is unknown here, and its fence is used all the same.
            if newest.completed or (newest.task_id != body.task_id and other is not None and other.report is None):
                return f"fence {body.fence} was already used for {unit} by task {newest.task_id}"
        return None

    def snapshot(self) -> Iterator[AnyRecord]:
        """Yield records that fold to this state, for compaction."""
        yield from self.newest.values()
        yield from self.wiped.values()
        for task in self.tasks.values():
            if task.envelope is not None:
                yield Accepted(envelope=task.envelope)
            if task.started:
                yield Started(task_id=task.task_id)
            if task.report is not None:
                yield Finished(task_id=task.task_id, report=task.report)
            if task.reported:
                yield Reported(task_id=task.task_id)

    def _task(self, task_id: UUID) -> JournaledTask:
        return self.tasks.setdefault(task_id, JournaledTask(task_id))

    def _accepted(self, record: Accepted) -> None:
        # The signature held when the record was written; the keys may have been changed since.
        body = TaskBody.model_validate_json(base64.b64decode(record.envelope.payload))
        task = self._task(body.task_id)
        task.envelope, task.body = record.envelope, body
        if task.reported and body.type in OF_SITES:  # the next lease of a site performs it again
            task.reported = False
            self._report_bytes -= self._reports.pop(task.task_id)
        if body.type in PROVISIONS or body.type is TaskType.REBUILD:
            # From here on the allocation may have a device that no earlier proof is about.
            self.wiped.pop(body.allocation_id or UUID(int=0), None)
        for unit in units_of(body):
            self._seen(NewestFence(unit=unit, fence=body.fence, task_id=body.task_id, completed=False))

    def _wiped(self, record: Wiped) -> None:
        self.wiped[record.allocation_id] = record
        self.wiped.move_to_end(record.allocation_id)
        while len(self.wiped) > ALLOCATIONS_WIPED_KEPT:
            self.wiped.popitem(last=False)

    def _seen(self, seen: NewestFence) -> None:
        newest = self.newest.get(seen.unit)
        if newest is not None and (newest.fence > seen.fence or (newest.fence == seen.fence and newest.completed)):
            return
        self.newest[seen.unit] = seen
        self.newest.move_to_end(seen.unit)
        self._forget_old_allocations()

    def _forget_old_allocations(self) -> None:
        # Slots are few and kept for ever; they alone already refuse a late task of an allocation long gone.
        if len(self.newest) <= ALLOCATION_FENCES_KEPT:
            return
        allocations = [unit for unit in self.newest if unit.startswith("allocation:")]
        for unit in allocations[: max(0, len(allocations) - ALLOCATION_FENCES_KEPT)]:
            del self.newest[unit]

    def _finished(self, record: Finished) -> None:
        task = self._task(record.task_id)
        task.report = record.report
        if record.report.outcome != "completed" or task.body is None:
            return
        for unit in units_of(task.body):
            newest = self.newest.get(unit)
            if newest is not None and newest.task_id == record.task_id:
                self.newest[unit] = newest.model_copy(update={"completed": True})

    def _reported(self, task_id: UUID) -> None:
        task = self._task(task_id)
        task.reported = True
        # The task may contain user data and SSH keys, and nothing reads it any more.
        task.envelope = task.body = None
        self.tasks.move_to_end(task_id)
        self._report_bytes -= self._reports.pop(task_id, 0)
        self._reports[task_id] = 0 if task.report is None else len(task.report.model_dump_json())
        self._report_bytes += self._reports[task_id]
        self._newest_created = max(self._newest_created, created_seconds(task_id) or 0.0)
        while self._has_too_many_reports():
            old, size = self._reports.popitem(last=False)
            self._report_bytes -= size
            del self.tasks[old]

    def _has_too_many_reports(self) -> bool:
        count = len(self._reports)
        if count > REPORTED_MAX or self._report_bytes > REPORTED_BYTES_MAX:
            return True
        if count <= REPORTED_MIN:
            return False
        created = created_seconds(next(iter(self._reports)))
        return created is None or created < self._newest_created - self._reported_seconds
