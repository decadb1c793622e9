"""A refusal of a task as expired is judged by the server's clock, and no other failure is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.campaign.judging.judging_tasks import EndedTask, check_refusals, ended_tasks

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EXPIRED = "it expired at 2026-01-01T12:00:00+00:00; the server's time is 2026-01-01T12:30:00+00:00"


@pytest.mark.parametrize(
    ("code", "detail", "seconds_before_end", "found"),
    [
        ("task_refused", EXPIRED, 60, 1),
        ("task_refused", EXPIRED, -1, 0),
        ("task_refused", "a newer fence was seen for slot 0", 60, 0),
        ("task_refused", None, 60, 0),
        ("driver_error", EXPIRED, 60, 0),
    ],
)
def test_only_an_early_refusal_is_a_violation(
    code: str, detail: str | None, seconds_before_end: int, found: int
) -> None:
    task = EndedTask("a", code, detail, NOON - timedelta(seconds=seconds_before_end), NOON)
    assert [violation.check for violation in check_refusals([task])] == ["late, never early"] * found


def test_a_database_without_tasks_has_none(database_url: str) -> None:
    assert ended_tasks(database_url) == []
