"""What the nodes themselves say: journals, logs and disks, read while the campaign runs and at its end.

A journal keeps no body of a task that was reported, only that it began and how it ended; the agent's log says which it was.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from node_agent.journal_file import read_journal
from node_agent.journal_records import Accepted, AnyRecord, Finished, NewestFence, Started
from node_agent.journal_state import JournalState, units_of
from node_agent.protocol import PROVISIONS, RELEASES, TaskBody
from tests.campaign.history import History
from tests.campaign.judging.fleet.judging_nodes_end import check_retired
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_events import REQUESTED, WAITING


@dataclass(frozen=True)
class Ended:
    """A task as the agent's log names it at its end."""

    type: str
    allocation_id: UUID
    fence: int


@dataclass
class NodeStory:
    """The records of one node's journal and log so far; compaction rewrites a journal, so it is read often."""

    bodies: dict[UUID, TaskBody] = field(default_factory=dict)
    started: set[UUID] = field(default_factory=set)
    completed: set[UUID] = field(default_factory=set)
    late: dict[UUID, str] = field(default_factory=dict)
    """Tasks that were taken although a newer fence had been seen for one of their units."""
    unrecorded: set[str] = field(default_factory=set)
    """Things found on the disk that the journal had not begun."""
    ended: dict[UUID, Ended] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    """The newest fence of each unit at the last look."""
    _log_read_bytes: int = 0

    def look(self, directory: Path, log: Path | None = None) -> None:
        """Read disk, journal and log once more; the disk first: what is on it must already be in the journal."""
        found = _guests(directory)
        journal = directory / "journal"
        if journal.exists():
            self.read(read_journal(journal))
        if log is not None and log.exists():
            self._read_log(log)
        begun = {(task.allocation_id, task.fence) for task_id, task in self.tasks().items() if task_id in self.started}
        for allocation_id, fence in found:
            if (allocation_id, fence) not in begun:
                self.unrecorded.add(f"{allocation_id} (fence {fence})")

    def tasks(self) -> Mapping[UUID, TaskBody | Ended]:
        """Every task that is known from the journal or the log."""
        return {**self.ended, **self.bodies}

    def _read_log(self, log: Path) -> None:
        with log.open("rb") as file:
            file.seek(self._log_read_bytes)
            for line in file:
                if not line.endswith(b"\n"):
                    break  # being written just now
                self._log_read_bytes += len(line)
                if b'"task_ended"' in line and b'"allocation_id":"None"' not in line:
                    entry = json.loads(line)
                    task = Ended(entry["type"], UUID(entry["allocation_id"]), int(entry["fence"]))
                    self.ended[UUID(entry["task_id"])] = task

    def read(self, records: list[AnyRecord]) -> None:
        """Take the records of a whole journal into account; most of them are known already."""
        # Compaction writes the newest fences first, of tasks that follow as well: they count from the next look on.
        compacted: dict[str, int] = {}
        newest = dict(self.newest)
        for record in records:
            match record:
                case NewestFence():
                    compacted[record.unit] = max(record.fence, compacted.get(record.unit, 0))
                case Accepted():
                    self._accepted(record, newest)
                case Started():
                    self.started.add(record.task_id)
                case Finished() if record.report.outcome == "completed":
                    self.completed.add(record.task_id)
                case _:
                    pass
        self.newest = {unit: max(newest.get(unit, 0), compacted.get(unit, 0)) for unit in {*newest, *compacted}}

    def _accepted(self, record: Accepted, newest: dict[str, int]) -> None:
        state = JournalState()
        state.apply(record)
        (task,) = state.tasks.values()
        assert task.body is not None, "an accepted task has its body"
        body = task.body
        # Only a task that is seen for the first time shows the order.
        if body.task_id not in self.bodies:
            for unit in units_of(body):
                if newest.get(unit, 0) > body.fence:
                    self.late[body.task_id] = f"fence {body.fence} for {unit} after {newest[unit]}"
        self.bodies[body.task_id] = body
        for unit in units_of(body):
            newest[unit] = max(body.fence, newest.get(unit, 0))


class NodeWatch:
    """The stories of all nodes."""

    def __init__(self, directories: Mapping[str, Path], logs: Mapping[str, Path] | None = None) -> None:
        self._directories = directories
        self._logs = logs or {}
        self.stories: dict[str, NodeStory] = {name: NodeStory() for name in directories}

    def follow(self, directories: Mapping[str, Path], logs: Mapping[str, Path]) -> None:
        """Watch these nodes as well, once their agents have made their journals; one that has left is watched on."""
        # An agent has its identity after its journal.
        directories = {name: path for name, path in directories.items() if (path / "identity" / "client.pem").exists()}
        self._directories = {**self._directories, **directories}
        self._logs = {**self._logs, **logs}
        for name in directories.keys() - self.stories.keys():
            self.stories[name] = NodeStory()

    def look(self) -> None:
        """Read every node once more."""
        for name, directory in self._directories.items():
            self.stories[name].look(directory, self._logs.get(name))

    def judge(self, history: History) -> list[Violation]:
        """Every check on the nodes, at the end, when nothing is allocated any more."""
        bodies = [body for story in self.stories.values() for body in story.bodies.values()]
        return [
            *self._check_effects(), *self._check_proofs(history), *self._check_left_over(), *check_retired(history, bodies)
        ]  # fmt: skip

    def _check_effects(self) -> Iterator[Violation]:
        for name, story in self.stories.items():
            effects: dict[tuple[str, int], list[UUID]] = defaultdict(list)
            for task_id in story.completed & story.bodies.keys():
                body = story.bodies[task_id]
                for unit in units_of(body):
                    effects[unit, body.fence].append(task_id)
            for (unit, fence), tasks in effects.items():
                if len(tasks) > 1:
                    yield Violation("one effect a fence", f"{name}: {len(tasks)} effects of fence {fence} on {unit}")
            for task_id, why in story.late.items():
                yield Violation("fence on the node", f"{name}: task {task_id} was taken with {why}")
            for task_id in story.completed & story.bodies.keys() - story.started:
                yield Violation(
                    "journal first", f"{name}: task {task_id} was carried out without a record of its start"
                )
            for thing in story.unrecorded:
                yield Violation("journal first", f"{name}: {thing} is on the disk and the journal has not begun it")

    def _check_proofs(self, history: History) -> Iterator[Violation]:
        """A node made every allocation reported active and removed every one reported released, unless it had waited for its
        units to the end.
        """
        waited = {event.allocation_id for event in history.events().values() if event.type == WAITING}
        asked_for = {event.allocation_id for event in history.events().values() if event.type == REQUESTED}
        made: set[UUID | None] = set()
        removed: set[UUID | None] = set()
        for story in self.stories.values():
            for task_id, task in story.tasks().items():
                if task_id in story.completed and task.type in PROVISIONS:
                    made.add(task.allocation_id)
                elif task_id in story.completed and task.type in RELEASES:
                    removed.add(task.allocation_id)
        for allocation_id, sights in history.by_allocation().items():
            if allocation_id not in made and any(sight.state == "active" for sight in sights):
                yield Violation("made by a node", f"{allocation_id} was reported active and no node made it")
            end = history.settled.get(allocation_id)
            never_there = allocation_id in waited and allocation_id not in asked_for
            if allocation_id not in removed and end is not None and end.state == "released" and not never_there:
                yield Violation("removed by a node", f"{allocation_id} was reported released and no node removed it")

    def _check_left_over(self) -> Iterator[Violation]:
        for name, directory in self._directories.items():
            left = [str(allocation_id) for allocation_id, _ in _guests(directory)]
            leases = sorted(path.name for path in (directory / "sandbox" / "leases").glob("slot-*"))
            if left or leases:
                yield Violation("nothing left", f"{name} still has {', '.join([*left, *leases])}")


def _guests(directory: Path) -> list[tuple[UUID, int]]:
    """Allocation and fence of every guest that has a record on the disk."""
    found = []
    for record in (directory / "sandbox" / "allocations").glob("*/record.json"):
        try:
            document = json.loads(record.read_text())
            found.append((UUID(document["allocation_id"]), int(document["fence"])))
        except (OSError, ValueError, KeyError):
            continue  # being written or removed just now
    return found
