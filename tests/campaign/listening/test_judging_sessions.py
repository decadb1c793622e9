"""Each check on subscribers finds what it is for, and nothing in a history in which all was well."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.campaign.history import Delivery, History
from tests.campaign.listening.judging_sessions import check_reached_the_end, judge_sessions
from tests.campaign.listening.records import Heard, PolicySpan, Session

ONE, OTHER = "tenant 1", "tenant 2"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
OWNERS = {1: ONE, 2: OTHER, 3: ONE, 4: None, 5: ONE, 6: OTHER}
TYPE = "node.online"


def heard(version: int, prev_version: int | None) -> Heard:
    data = {"n": version}
    return Heard(version, prev_version, f"event {version}", TYPE, OWNERS[version], f"key {version}", data)


def well() -> History:
    """Subscribers of the feed, of a socket that comes back, of a filtered stream, and one behind the log."""
    history = History(seed=0, offset_seconds=NOON.timestamp())
    history.log_age_seconds_min = 2.0
    for version, owner in OWNERS.items():
        at = NOON + timedelta(seconds=version)
        history.deliveries.append(
            Delivery(version, version, f"event {version}", TYPE, f"key {version}", {"n": version}, at, owner)
        )
    history.sessions += [
        Session("feed", ONE, 0, 1.0, events=[heard(1, 0), heard(3, 1)], ended=4.0),
        Session("feed", ONE, 3, 4.0, events=[heard(5, 3)], ended=9.0),
        Session("socket", None, 3, 4.0, acked=2, acknowledged=4, events=[heard(4, 3), heard(5, 4), heard(6, 5)]),
        Session("filtered", None, 0, 4.0, (TYPE,), events=[heard(v, None) for v in range(1, 6)], scanned_to=6),
        Session("late", ONE, 1, 8.0, refused="log_truncated", first_version=5, ended=9.0),
        Session("late", ONE, 4, 8.0, events=[heard(5, 3)]),
    ]
    history.sessions[3].events.append(heard(6, None))
    history.policies.append(PolicySpan(5, 7.0, 9.5))
    return history


def test_nothing_is_found_where_all_is_well() -> None:
    history = well()
    assert [str(violation) for violation in [*judge_sessions(history), *check_reached_the_end(history)]] == []


def alter(index: int, **changes: Any) -> Callable[[History], None]:
    def apply(history: History) -> None:
        history.sessions[index] = dataclasses.replace(history.sessions[index], **changes)

    return apply


def without(index: int, place: int) -> Callable[[History], None]:
    def apply(history: History) -> None:
        history.sessions[index].events.pop(place)

    return apply


def keep_from(version: int) -> Callable[[History], None]:
    return lambda history: history.policies.append(PolicySpan(version, 7.0, 9.5))


@pytest.mark.parametrize(
    ("break_it", "check"),
    [
        (alter(0, events=[heard(1, 0), heard(2, 1), heard(3, 2)]), "own events only"),
        (alter(0, events=[heard(1, 0), heard(1, 0), heard(3, 1)]), "no repetition"),
        (alter(1, events=[heard(3, 1), heard(5, 3)]), "no repetition"),
        (alter(0, events=[heard(1, 0), heard(3, 2)]), "chain"),
        (alter(1, after=2, events=[heard(5, 3)]), "chain"),
        (alter(3, events=[heard(1, 0)], scanned_to=1), "chain"),
        (without(2, 1), "nothing missed"),
        (without(3, 5), "nothing missed"),
        (alter(1, events=[dataclasses.replace(heard(5, 3), data={})]), "as in the stream"),
        (alter(1, events=[dataclasses.replace(heard(5, 3), operation_key=None)]), "as in the stream"),
        (alter(1, events=[heard(5, 3), dataclasses.replace(heard(5, 5), version=7)]), "as in the stream"),
        (alter(2, acked=4), "resumes where acknowledged"),
        (alter(2, acknowledged=2), "resumes where acknowledged"),
        (alter(4, ended=4.5), "refused with a cause"),
        (alter(4, first_version=3), "refused with a cause"),
        (alter(4, refused="unauthenticated"), "refused with a cause"),
        (keep_from(2), "kept by a policy"),
    ],
)  # fmt: skip
def test_each_check_finds_its_case(break_it: Callable[[History], None], check: str) -> None:
    history = well()
    break_it(history)
    assert check in {violation.check for violation in judge_sessions(history)}


def test_a_subscriber_that_does_not_reach_its_last_event_is_found() -> None:
    history = well()
    history.sessions = [session for session in history.sessions if session.after != 4]
    found = [str(violation) for violation in check_reached_the_end(history)]
    assert found == ["event received: late reached 1, its last event is version 5"]
