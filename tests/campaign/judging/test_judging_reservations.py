"""Each check on reservations finds what it is for, and finds nothing where all was well."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.campaign.history import Attempt, Delivery, History, HoldSight, Injury, Outcome
from tests.campaign.judging.judging import judge_history

FIRST, SECOND, THIRD = (uuid.UUID(int=n) for n in (1, 2, 3))
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def attempt(kind: Any, began: float, reservation_id: uuid.UUID) -> Attempt:
    key = f"{kind} {reservation_id}"
    return Attempt(
        key, kind, "client", key, began, began + 0.1, Outcome.DONE, "ok", "answer", None, reservation_id
    )  # fmt: skip


def sight(reservation_id: uuid.UUID, asked: float, status: str, row_version: int, **changes: Any) -> HoldSight:
    held = at({FIRST: 0.0, SECOND: 10.0, THIRD: 20.0}[reservation_id])
    seen = HoldSight(
        reservation_id, asked, asked + 0.1, status, row_version, ("seat-0",), held,
        held + timedelta(seconds=3) if status in ("hold", "expired") else None,
    )  # fmt: skip
    return dataclasses.replace(seen, **changes)


def event(version: int, kind: str, reservation_id: uuid.UUID, seconds: float) -> Delivery:
    data: dict[str, Any] = {"reservation_id": str(reservation_id), "judged_at": at(seconds).isoformat()}
    if kind == "held":
        ends_at = at(24).isoformat() if reservation_id == THIRD else None
        data |= {"starts_at": at(seconds).isoformat(), "ends_at": ends_at, "claims": [{"units": [[0, 1]]}]}
    key = {"held": f"hold {reservation_id}", "confirmed": f"confirm {reservation_id}"}.get(kind)
    return Delivery(version, version, f"event {version}", f"reservation.{kind}", key, data, at(seconds + 0.001))


def well() -> History:
    """One that is confirmed and cancelled, one that expires, and one whose window passes, on one seat."""
    history = History(seed=0, offset_seconds=NOON.timestamp())
    history.attempts += [
        attempt("hold", 0, FIRST), attempt("confirm", 1, FIRST), attempt("cancel", 5, FIRST),
        attempt("hold", 10, SECOND),
        attempt("hold", 20, THIRD), attempt("confirm", 21, THIRD),
    ]  # fmt: skip
    history.holds += [
        sight(FIRST, 0, "hold", 1),
        sight(FIRST, 1, "confirmed", 2, confirmed_at=at(1)),
        sight(FIRST, 3, "confirmed", 2, confirmed_at=at(1)),
        sight(FIRST, 5, "cancelled", 3, confirmed_at=at(1), ended_at=at(5)),
        sight(SECOND, 10, "hold", 1),
        sight(SECOND, 14, "expired", 2, ended_at=at(13.1)),
        sight(THIRD, 20, "hold", 1, ends_at=at(24)),
        sight(THIRD, 21, "confirmed", 2, ends_at=at(24), confirmed_at=at(21)),
        sight(THIRD, 25, "released", 3, ends_at=at(24), confirmed_at=at(21), ended_at=at(24.5)),
    ]
    history.deliveries += [
        event(1, "held", FIRST, 0), event(2, "confirmed", FIRST, 1), event(3, "cancelled", FIRST, 5),
        event(4, "held", SECOND, 10), event(5, "expired", SECOND, 13.1),
        event(6, "held", THIRD, 20), event(7, "confirmed", THIRD, 21), event(8, "released", THIRD, 24.5),
    ]  # fmt: skip
    return history


def change(what: str, index: int, **changes: Any) -> Callable[[History], None]:
    def do(history: History) -> None:
        entries = getattr(history, what)
        entries[index] = dataclasses.replace(entries[index], **changes)

    return do


def add(*sights: HoldSight) -> Callable[[History], None]:
    return lambda history: history.holds.extend(sights)


ROUTES: list[tuple[str, str, Callable[[History], None]]] = [
    ("expired before its time by the server's clock", "late, never early", change("holds", 5, ended_at=at(12.9))),
    ("expired before its time by the client's clock", "late, never early", change("holds", 5, asked=11.0, told=11.1)),
    ("confirmed after its time", "late, never early", change("holds", 1, confirmed_at=at(3))),
    (
        "judged before it had its locks", "late, never early",
        change("deliveries", 1, at=at(2)),
    ),
    ("confirmed and lost", "confirmed stays", change("holds", 2, status="expired", row_version=3)),
    ("released before its window was over", "confirmed stays", change("holds", 8, ended_at=at(23))),
    ("confirmed and seen expired", "one end", change("holds", 3, status="expired")),
    ("confirmed and reported expired", "one end", change("deliveries", 2, type="reservation.expired")),
    (
        "two hold a seat", "one holder",
        lambda history: (
            change("attempts", 3, began=0.9)(history), add(sight(SECOND, 1, "hold", 1), sight(SECOND, 3, "hold", 1))(history)
        )[0],
    ),
    ("a row version goes back", "only forward", add(sight(FIRST, 6, "cancelled", 1))),
    ("a final state is left", "only forward", add(sight(SECOND, 16, "hold", 3))),
]  # fmt: skip


def test_a_history_in_which_all_was_well_is_no_violation() -> None:
    assert judge_history(well()) == []


@pytest.mark.parametrize(("check", "way"), [pytest.param(check, way, id=name) for name, check, way in ROUTES])
def test_each_check_finds_what_it_is_for(check: str, way: Callable[[History], None]) -> None:
    history = well()
    way(history)
    assert check in {violation.check for violation in judge_history(history)}


def test_a_confirm_may_be_written_late_while_postgresql_is_held_up() -> None:
    history = well()
    change("deliveries", 1, at=at(2))(history)
    history.injuries = [Injury("lock", "postgres", 0.5, 1.5, 2.5)]
    assert judge_history(history) == []
    history.injuries = [Injury("lock", "postgres", 0.5, 2.5, 3.5)]
    assert {violation.check for violation in judge_history(history)} == {"late, never early"}
