"""Each check on keys and values finds what it is for, and nothing in a history in which all was well."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from berth.client.calls.keyvalue import delete_key, delete_range, unchanged_key, unchanged_range, write_key
from tests.campaign.history import Attempt, Delivery, History, Outcome
from tests.campaign.keyvalue.judging_keys import judge_keys
from tests.campaign.keyvalue.namespace_model import NamespaceModel
from tests.campaign.keyvalue.records import CommitContent, KeyRead, ReadItem, StatusSight

TENANT = "01900000-0000-7000-8000-000000000001"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
A, B = b"a", b"b"


def commit(
    history: History, number: int, operations: list[Any], preconditions: list[Any], *, refused: bool = False
) -> None:
    """A commit at `number` seconds, with the version `number`."""
    content = CommitContent(TENANT, tuple(operations), tuple(preconditions))
    members = {"status": "not_committed" if refused else "committed", "conflicts": preconditions if refused else []}
    answer = json.dumps({**members, "version": number, "leader_id": "1-1", "request_id": f"key {number}"})
    outcome, code = (Outcome.REFUSED, "not_committed") if refused else (Outcome.DONE, "ok")
    history.attempts.append(
        Attempt(f"key {number}", "commit", "client", content.text(), number, number + 0.5, outcome, code, answer)
    )
    kind, data = (
        ("operation.refused", {"code": "not_committed"}) if refused else ("transaction", {"operations": operations})
    )
    at = NOON + timedelta(seconds=number)
    history.deliveries.append(Delivery(number, number, f"event {number}", kind, f"key {number}", data, at, TENANT))


def read(at: float, version: int, *items: tuple[bytes, bytes, int | None], **changes: Any) -> KeyRead:
    found = tuple(ReadItem(*item) for item in items)
    return dataclasses.replace(KeyRead("client", TENANT, at, at + 0.1, b"", None, version, found), **changes)


def well() -> History:
    """Two keys, a refusal, a delete, reads in between and at the end."""
    history = History(seed=0, offset_seconds=NOON.timestamp())
    commit(history, 1, [write_key(A, b"1"), write_key(B, b"1")], [unchanged_key(A, 0)])
    commit(history, 2, [write_key(A, b"2")], [unchanged_key(A, 1)])
    commit(history, 3, [write_key(A, b"3")], [unchanged_key(A, 1)], refused=True)
    commit(history, 4, [delete_key(B)], [unchanged_range(B, b"c", 1)])
    history.key_reads += [
        read(1.6, 1, (A, b"1", 1), (B, b"1", 1)),
        read(3.6, 3, (A, b"2", 2), (B, b"1", 1)),
        read(9.0, 4, (A, b"2", 2), final=True),
    ]
    history.commit_statuses += [
        StatusSight("key 4", 5.0, 5.1, 0, "committed", 4), StatusSight("key 3", 5.0, 5.1, 0, "id_not_found", None),
    ]  # fmt: skip
    return history


def test_nothing_is_found_where_all_is_well() -> None:
    assert judge_keys(well()) == []


def alter(collection: str, index: int, **changes: Any) -> Callable[[History], None]:
    def apply(history: History) -> None:
        entries = getattr(history, collection)
        entries[index] = dataclasses.replace(entries[index], **changes)

    return apply


def expect(index: int, *preconditions: Any) -> Callable[[History], None]:
    """Let that commit have been sent with other preconditions."""

    def apply(history: History) -> None:
        content = CommitContent.of(history.attempts[index].content)
        content = dataclasses.replace(content, preconditions=preconditions)
        answer = json.loads(history.attempts[index].answer)
        answer["conflicts"] = list(preconditions) if answer["conflicts"] else []
        alter("attempts", index, content=content.text(), answer=json.dumps(answer))(history)

    return apply


@pytest.mark.parametrize(
    ("break_it", "check"),
    [
        (expect(1, unchanged_key(A, 0)), "no lost update"),
        (expect(3, unchanged_range(B, b"c", 0)), "no lost update"),
        (expect(2, unchanged_key(B, 1)), "refused with a cause"),
        (alter("deliveries", 1, data={"operations": [write_key(A, b"other")]}), "as committed"),
        (alter("deliveries", 1, tenant_id=None), "as committed"),
        (alter("deliveries", 2, operation_key="another"), "as committed"),
        (alter("key_reads", 1, items=(ReadItem(A, b"1", 1), ReadItem(B, b"1", 1))), "read at its version"),
        (alter("key_reads", 1, items=(ReadItem(A, b"2", 2),)), "read at its version"),
        (alter("key_reads", 1, items=(ReadItem(A, b"2", 1), ReadItem(B, b"1", 1))), "read at its version"),
        (alter("key_reads", 1, items=(ReadItem(A, b"2", None), ReadItem(B, b"1", 1))), "read at its version"),
        (alter("key_reads", 2, items=()), "state at the end"),
        (alter("key_reads", 1, read_version=1, items=(ReadItem(A, b"1", 1), ReadItem(B, b"1", 1))), "only forward"),
        (alter("key_reads", 2, asked=0.5, answered=0.6), "only forward"),
        (alter("commit_statuses", 0, version=3), "status of a commit"),
        (alter("commit_statuses", 0, status="id_not_found", version=None), "status of a commit"),
        (alter("commit_statuses", 1, status="log_truncated"), "status of a commit"),
    ],
)  # fmt: skip
def test_each_check_finds_its_case(break_it: Callable[[History], None], check: str) -> None:
    history = well()
    break_it(history)
    assert check in {violation.check for violation in judge_keys(history)}


def test_a_version_that_the_log_may_have_dropped_is_a_cause() -> None:
    history = well()
    history.log_age_seconds_min = 2.0
    expect(2, unchanged_key(B, 1))(history)
    alter("key_reads", 2, items=(ReadItem(A, b"2", None),))(history)
    alter("commit_statuses", 1, status="log_truncated")(history)
    assert judge_keys(history) == []
    history.log_age_seconds_min = 9.0
    found = {violation.check for violation in judge_keys(history)}
    assert found == {"refused with a cause", "state at the end", "status of a commit"}


def test_to_delete_a_missing_key_is_no_change() -> None:
    model = NamespaceModel()
    model.apply([delete_key(A), write_key(B, b"1"), delete_range(B, b"c")], 1)
    assert model.unsatisfied([unchanged_key(A, 0), unchanged_range(B, b"c", 0)]) == []
    model.apply([write_key(B, b"1")], 2)
    model.apply([delete_range(B, b"c"), write_key(B, b"1")], 3)
    assert [model.last_change(unchanged_key(key, 0)) for key in (A, B)] == [0, 3]
