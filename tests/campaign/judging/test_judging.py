"""Each check on histories finds what it is for, and finds nothing in a history in which all was well."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus

from node_agent.journal_records import Accepted, Finished, NewestFence, Started
from node_agent.journal_state import units_of
from node_agent.protocol import TaskBody, TaskType, sign_task
from tests.campaign.history import Attempt, Delivery, History, Outcome, Sight
from tests.campaign.judging.judging_clients import judge_clients
from tests.campaign.judging.judging_events import judge_events
from tests.campaign.judging.judging_nodes import NodeStory, NodeWatch
from tests.campaign.judging.judging_workflows import check_runs

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def attempt(key: str, kind: Any, at: float, allocation_id: uuid.UUID, **changes: Any) -> Attempt:
    told = Attempt(key, kind, "client", f"content of {key}", at, at + 0.1, Outcome.DONE, "ok", "answer", allocation_id)
    return dataclasses.replace(told, **changes)


def sight(allocation_id: uuid.UUID, at: float, state: str | None, row_version: int, **changes: Any) -> Sight:
    seen = Sight("client", allocation_id, at, at + 0.1, state, row_version, "node", (0, 1), f"birth of {allocation_id}")
    return dataclasses.replace(seen, **changes)


def event(version: int, kind: str, allocation_id: uuid.UUID, fence: int, key: str | None = None) -> Delivery:
    data = {"allocation_id": str(allocation_id), "fence": fence}
    return Delivery(version, version, f"event {version}", f"provisioning.{kind}", key, data)


def well() -> History:
    """Two allocations, one after the other, on the same slots."""
    history = History(seed=0)
    for number, allocation_id in enumerate((FIRST, SECOND)):
        at, version, fence = 10.0 * number, 4 * number, 10 * number
        create, release = f"create {number}", f"release {number}"
        history.attempts += [
            attempt(create, "create", at, allocation_id),
            attempt(release, "release", at + 5, allocation_id),
            attempt(release, "release", at + 6, allocation_id),
        ]
        history.sights += [
            sight(allocation_id, at + 1, "requested", 1),
            sight(allocation_id, at + 2, "active", 3),
            sight(allocation_id, at + 7, "released", 5),
        ]
        history.deliveries += [
            event(version + 1, "requested", allocation_id, fence + 1, create),
            event(version + 2, "active", allocation_id, fence + 1),
            event(version + 3, "releasing.requested", allocation_id, fence + 2, release),
            event(version + 4, "releasing.completed", allocation_id, fence + 3),
        ]
        history.settled[allocation_id] = sight(allocation_id, 100, "released", 5)
    # One read again after a lost connection.
    history.deliveries.insert(3, history.deliveries[1])
    return history


def found(history: History) -> set[str]:
    return {violation.check for violation in [*judge_clients(history), *judge_events(history)]}


def test_nothing_is_found_where_all_is_well() -> None:
    assert found(well()) == set()


def change(collection: str, index: int, **changes: Any) -> Callable[[History], None]:
    def apply(history: History) -> None:
        entries = getattr(history, collection)
        entries[index] = dataclasses.replace(entries[index], **changes)

    return apply


def append(collection: str, *entries: Any) -> Callable[[History], None]:
    return lambda history: getattr(history, collection).extend(entries)


def settle(**changes: Any) -> Callable[[History], None]:
    def apply(history: History) -> None:
        history.settled[FIRST] = dataclasses.replace(history.settled[FIRST], **changes)

    return apply


def swap(one: int, other: int) -> Callable[[History], None]:
    """Two events change their versions, as if they had been ordered otherwise."""

    def apply(history: History) -> None:
        by_version = {delivery.version: delivery for delivery in history.deliveries}
        a, b = by_version[one], by_version[other]
        history.deliveries = [by_version[version] for version in sorted(by_version)]
        history.deliveries[one - 1] = dataclasses.replace(b, version=one, sequence=one)
        history.deliveries[other - 1] = dataclasses.replace(a, version=other, sequence=other)

    return apply


def known_as(delivery: Delivery, event_id: str) -> Callable[[History], None]:
    """Append one more delivery with a new id."""
    return append("deliveries", dataclasses.replace(delivery, event_id=event_id))


def refuse_release(history: History) -> None:
    """The first release was refused, both times."""
    for number in (1, 2):
        change("attempts", number, outcome=Outcome.REFUSED)(history)


def list_nothing(history: History) -> None:
    """The operator's list is empty at the end."""
    history.settled.clear()


def forget_event(version: int) -> Callable[[History], None]:
    def apply(history: History) -> None:
        history.deliveries = [delivery for delivery in history.deliveries if delivery.version != version]

    return apply


ROUTES: list[tuple[str, str, Callable[[History], None]]] = [
    ("a repetition is answered otherwise", "same answer", change("attempts", 2, answer="another")),
    ("a key is carried out with two contents", "same key", change("attempts", 2, content="other", answer="other")),
    (
        "a conflict with a content never sent", "same key",
        append("attempts", attempt("new", "release", 50, FIRST, outcome=Outcome.CONFLICT)),
    ),
    (
        "an outcome stays unknown", "outcome known",
        append("attempts", attempt("new", "release", 50, FIRST, outcome=Outcome.UNKNOWN)),
    ),
    ("an answer that is not foreseen", "foreseen", change("attempts", 2, outcome=Outcome.NOT_DONE, code="internal")),
    ("a key has two effects", "one effect", append("deliveries", event(9, "releasing.requested", FIRST, 9, "release 0"))),
    (
        "a refused write has an effect", "refused, no effect", refuse_release,
    ),
    ("an acknowledged create left no event", "acknowledged", change("deliveries", 0, operation_key=None)),
    ("an acknowledged create is not found", "readable", append("sights", sight(FIRST, 3, None, 0))),
    ("an acknowledged create is in no list", "readable", list_nothing),
    ("an allocation changes what never changes", "readable", change("sights", 1, birth="another")),
    ("an acknowledged release ends active", "released", settle(state="active")),
    ("a released allocation is read as active", "released", append("sights", sight(FIRST, 6.5, "active", 6))),
    ("two are reported on the same slot", "one holder", change("sights", 4, asked=3.0, told=3.1)),
    ("a row version goes back", "only forward", append("sights", sight(FIRST, 8, "released", 4))),
    ("a final state is left", "only forward", append("sights", sight(FIRST, 8, "failed", 6))),
    (
        "a failure comes before its time", "late, never early",
        append(
            "sights",
            sight(FIRST, 2.5, "provisioning", 2, due=NOON),
            sight(FIRST, 9, "failed", 9, failure="agent_silent", failed_at=NOON - timedelta(seconds=1)),
        ),
    ),
    ("a version is missing", "gapless", forget_event(2)),
    ("a version comes too early", "gapless", lambda history: history.deliveries.reverse()),
    ("a message lies at another sequence", "sequence is version", change("deliveries", 4, sequence=40)),
    ("an event has two versions", "exactly once", known_as(event(9, "x", FIRST, 9), "event 8")),
    ("a version is two events", "one event a version", known_as(event(8, "x", FIRST, 9), "event 9")),
    ("an effect comes before its cause", "legal path", swap(2, 3)),
    ("a fence goes back", "rising fences", change("deliveries", 4, data={"allocation_id": str(FIRST), "fence": 0})),
    ("an end has no event", "event published", settle(state="failed")),
    ("a slot is used before it is clean", "clean before reuse", swap(4, 5)),
]  # fmt: skip


@pytest.mark.parametrize(("check", "way"), [pytest.param(check, way, id=name) for name, check, way in ROUTES])
def test_each_check_finds_what_it_is_for(check: str, way: Callable[[History], None]) -> None:
    history = well()
    way(history)
    assert check in found(history)


def test_an_allocation_whose_end_came_is_not_held_until_its_client_asks() -> None:
    history = well()
    change("attempts", 1, began=13.0)(history)
    change("attempts", 2, began=13.5)(history)
    assert "one holder" in found(history), "it was held until its release was requested"
    assert history.deliveries[2].type == "provisioning.releasing.requested"
    change("deliveries", 2, operation_key=None)(history)
    assert "one holder" not in found(history), "the control plane released it, at a time between"
    append("sights", sight(FIRST, 12.5, "active", 3))(history)
    assert "one holder" in found(history), "it was seen active after the next one was"


def task(kind: TaskType, fence: int, allocation_id: uuid.UUID = FIRST) -> TaskBody:
    return TaskBody(
        task_id=uuid.uuid4(), type=kind, node_id=uuid.UUID(int=9), node_epoch=1, allocation_id=allocation_id, fence=fence,
        parameters={"slots": [0]}, not_before=NOON, expires_at=NOON, key_id="key",
    )  # fmt: skip


def records(body: TaskBody, *, started: bool = True, completed: bool = True) -> list[Any]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from node_agent.reporter import completed as report

    written: list[Any] = [Accepted(envelope=sign_task(body, Ed25519PrivateKey.generate()))]
    written += [Started(task_id=body.task_id)] if started else []
    written += [Finished(task_id=body.task_id, report=report(body.fence, {}))] if completed else []
    return written


def judged(written: list[Any], history: History | None = None) -> set[str]:
    watch = NodeWatch({})
    watch.stories["node"] = NodeStory()
    watch.stories["node"].read(written)
    return {violation.check for violation in watch.judge(history or History(seed=0))}


def test_a_journal_in_order_is_no_violation_even_when_it_is_read_twice() -> None:
    written = [*records(task(TaskType.VM_PROVISION, 1)), *records(task(TaskType.VM_RELEASE, 3))]
    watch = NodeWatch({})
    watch.stories["node"] = NodeStory()
    watch.stories["node"].read(written)
    watch.stories["node"].read(written[3:])
    watch.stories["node"].read(written)
    assert watch.judge(History(seed=0)) == []


def test_the_order_of_tasks_is_that_of_the_journal_and_of_the_looks() -> None:
    newer, older = task(TaskType.VM_RELEASE, 3), task(TaskType.VM_PROVISION, 1)
    fences = [NewestFence(unit=unit, fence=3, task_id=newer.task_id, completed=True) for unit in units_of(newer)]
    compacted = [*fences, *records(older), *records(newer)]
    assert "fence on the node" not in judged(compacted), "both were accepted and compacted between two looks"
    story = NodeStory()
    story.read(records(newer))
    story.read(compacted)
    assert older.task_id in story.late, "it was not there when the newer one was"


def test_each_check_of_journals_finds_what_it_is_for() -> None:
    newer, older = task(TaskType.VM_PROVISION, 2), task(TaskType.VM_RELEASE, 1)
    assert judged([*records(newer), *records(older)]) == {"fence on the node"}
    assert judged([*records(newer), *records(task(TaskType.VM_RELEASE, 2))]) == {"one effect a fence"}
    assert judged(records(newer, started=False)) == {"journal first"}
    history = well()
    played = [*records(task(TaskType.VM_PROVISION, 1)), *records(task(TaskType.VM_RELEASE, 3))]
    assert judged(played, history) == {"made by a node", "removed by a node"}, "no node did the second one"


def test_the_log_names_what_the_journal_has_dropped(tmp_path: Path) -> None:
    """A task that was reported has no body in the journal any more."""
    log, body = tmp_path / "agent.log", task(TaskType.VM_PROVISION, 1)
    record = tmp_path / "node" / "sandbox" / "allocations" / "a" / "record.json"
    record.parent.mkdir(parents=True)
    record.write_text(json.dumps({"allocation_id": str(body.allocation_id), "fence": 1}))
    line = {"task_id": str(body.task_id), "type": body.type, "allocation_id": str(body.allocation_id), "fence": 1,
            "event": "task_ended"}  # fmt: skip
    log.write_text(
        json.dumps(line, separators=(",", ":")) + '\n{"event":"task_ended","allocation_id":"None"}\n{"event":"task_en'
    )
    story = NodeStory()
    story.read(records(body)[1:])
    story.look(tmp_path / "node", log)
    assert story.unrecorded == set()
    assert [ended.allocation_id for ended in story.ended.values()] == [body.allocation_id]
    story.started.clear()
    story.look(tmp_path / "node", log)
    assert story.unrecorded == {f"{body.allocation_id} (fence 1)"}, "the journal had not begun it"


def test_what_is_left_on_a_node_is_found(tmp_path: Any) -> None:
    leases = tmp_path / "sandbox" / "leases"
    leases.mkdir(parents=True)
    watch = NodeWatch({"node": tmp_path})
    watch.look()
    assert watch.judge(History(seed=0)) == []
    (leases / "slot-3.json").write_text("{}")
    assert {violation.check for violation in watch.judge(History(seed=0))} == {"nothing left"}


def test_workflows_that_never_were_and_that_ran_twice_are_found() -> None:
    history = History(seed=0, deliveries=[event(1, "requested", FIRST, 1)])
    done, failed = WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.FAILED
    name = "provisioning-event 1"
    assert check_runs(history, {name: [failed, done]}) == []
    assert [violation.check for violation in check_runs(history, {})] == ["event led on"]
    assert [violation.check for violation in check_runs(history, {name: [done, done]})] == ["one workflow"]
