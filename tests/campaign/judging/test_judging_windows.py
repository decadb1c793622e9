"""Each check on windows, rights in time and keys finds what it is for, and finds nothing where all was well."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.campaign.history import Attempt, Delivery, History, HoldSight, Offer, Outcome, Question, ResourceSight, Sight
from tests.campaign.judging.judging import judge_history

EARLIER, LATER, BY_ITSELF = (uuid.UUID(int=n) for n in (1, 2, 3))
RUN, NEXT_RUN, OWN_RUN = (uuid.UUID(int=n) for n in (11, 12, 13))
NODE = uuid.UUID(int=9)
SLOT = f"slot:{NODE}:0"
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
WINDOWS = {EARLIER: (10.0, 14.0), LATER: (14.0, 18.0), BY_ITSELF: (30.0, 34.0)}
RESERVED = {RUN: EARLIER, NEXT_RUN: LATER, OWN_RUN: BY_ITSELF}

Way = Callable[[History], None]


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def text(seconds: float) -> str:
    return at(seconds).isoformat()


def attempt(kind: Any, began: float, subject: uuid.UUID, **changes: Any) -> Attempt:
    key = f"{kind} {subject}"
    allocation = subject if subject in RESERVED else None
    reservation = RESERVED.get(subject, subject)
    told = Attempt(
        key, kind, "client", key, began, began + 0.1, Outcome.DONE, "ok", "answer", allocation,
        reservation if kind != "release" else None,
    )  # fmt: skip
    return dataclasses.replace(told, **changes)


def held(reservation_id: uuid.UUID, asked: float, status: str, row_version: int, **changes: Any) -> HoldSight:
    begins, ends = WINDOWS[reservation_id]
    seen = HoldSight(
        reservation_id, asked, asked + 0.1, status, row_version, (SLOT,), at(begins - 8), None, None, None, at(ends), at(begins),
    )  # fmt: skip
    return dataclasses.replace(seen, **changes)


def sight(allocation_id: uuid.UUID, asked: float, state: str, row_version: int, **changes: Any) -> Sight:
    begins, ends = WINDOWS[RESERVED[allocation_id]]
    seen = Sight(
        "client", allocation_id, asked, asked + 0.1, state, row_version, "node", (0,), "birth", None, None, None,
        RESERVED[allocation_id], at(begins), at(ends),
    )  # fmt: skip
    return dataclasses.replace(seen, **changes)


def event(version: int, kind: str, subject: uuid.UUID, seconds: float, key: str | None = None, **data: Any) -> Delivery:
    """An event with the members that the checks read."""
    reservation = RESERVED.get(subject, subject)
    data["reservation_id"] = str(reservation)
    begins, ends = WINDOWS[reservation]
    if subject in RESERVED:
        data |= {"allocation_id": str(subject), "ends_at": text(ends), "fence": version}
        kind = kind if "." in kind and kind.startswith("reservation") else f"provisioning.{kind}"
    else:
        kind = f"reservation.{kind}"
    if kind == "reservation.held":
        data |= {"starts_at": text(begins), "ends_at": text(ends), "claims": [{"units": [[0, 1]]}]}
    if kind in ("provisioning.requested", "provisioning.waiting"):
        data = {"units": [[0, 1]], "turned_over": True, **data}
    data.setdefault("judged_at", text(seconds))
    return Delivery(version, version, f"event {version}", kind, key, data, at(seconds))


def well() -> History:
    """Two consecutive windows on one slot, the first overrunning; and one that starts and ends by itself."""
    history = History(seed=0, offset_seconds=NOON.timestamp(), nodes={"node": NODE})
    history.attempts += [
        *(attempt("hold", began, id_) for id_, began in ((EARLIER, 2), (LATER, 3), (BY_ITSELF, 22))),
        *(attempt("confirm", began, id_) for id_, began in ((EARLIER, 2), (LATER, 3), (BY_ITSELF, 22))),
        attempt("take", 10.1, RUN), attempt("take", 14.1, NEXT_RUN), attempt("release", 17, NEXT_RUN),
    ]  # fmt: skip
    history.holds += [
        held(EARLIER, 2.1, "confirmed", 2), held(EARLIER, 9, "confirmed", 2), held(EARLIER, 11, "consumed", 3),
        held(LATER, 3.1, "confirmed", 2), held(LATER, 13, "confirmed", 2),
        held(LATER, 16, "consumed", 3, retire_after=at(20)), held(LATER, 21, "retired", 0),
        held(BY_ITSELF, 22.1, "confirmed", 2), held(BY_ITSELF, 29, "confirmed", 2),
    ]  # fmt: skip
    history.sights += [
        sight(RUN, 10.3, "requested", 1), sight(RUN, 11.5, "active", 3), sight(RUN, 13.9, "active", 3),
        sight(NEXT_RUN, 14.3, "requested", 1), sight(NEXT_RUN, 16, "active", 3), sight(NEXT_RUN, 18.5, "released", 5),
        sight(OWN_RUN, 31, "active", 3),
    ]  # fmt: skip
    for id_ in RESERVED:
        history.settled[id_] = sight(id_, 50, "released", 5)
    history.resources += [
        ResourceSight(SLOT, 9, 9.01, "available", 4), ResourceSight(SLOT, 10.4, 10.41, "confirmed", 9),
        ResourceSight(SLOT, 14.4, 14.41, "confirmed", 9), ResourceSight(SLOT, 19, 19.1, "available", 12),
    ]  # fmt: skip
    history.offers += [
        Offer("sku", "region", 8, 8, 8, None, None, None, None, None, None),
        Offer("sku", "region", 4, 4, 8, 2, 1, 2, at(0), at(0), None),
        Offer("sku", "region", 0, 0, 8, 2, 1, 0, at(0), at(9), None),
        Offer("sku", "region", 0, 0, 8, 9, 1, 0, at(0), None, "too_few_nodes"),
    ]
    history.questions += [
        Question(f"take {RUN}", "take", 10.15, 10.2, "committed", "answer"),
        Question(f"take {RUN}", "take", 9.9, 10.0, "pending"),
        Question("never", "hold", 1.0, 1.1, "unknown"),
    ]
    history.deliveries += [
        event(1, "held", EARLIER, 2, f"hold {EARLIER}"), event(2, "confirmed", EARLIER, 2.05, f"confirm {EARLIER}"),
        event(3, "held", LATER, 3, f"hold {LATER}"), event(4, "confirmed", LATER, 3.05, f"confirm {LATER}"),
        event(5, "requested", RUN, 10.1, f"take {RUN}"), event(6, "consumed", EARLIER, 10.1),
        event(7, "active", RUN, 11), event(8, "reservation.ending", RUN, 12),
        event(9, "waiting", NEXT_RUN, 14.1, f"take {NEXT_RUN}"), event(10, "consumed", LATER, 14.1),
        event(11, "releasing.requested", RUN, 14.5, reason="ends_at", releasing_at=text(14.5)),
        event(12, "releasing.completed", RUN, 15), event(13, "requested", NEXT_RUN, 15, turned_over=False),
        event(14, "active", NEXT_RUN, 15.5), event(15, "releasing.requested", NEXT_RUN, 17, f"release {NEXT_RUN}", reason="r"),
        event(16, "releasing.completed", NEXT_RUN, 18),
        event(17, "held", BY_ITSELF, 22, f"hold {BY_ITSELF}"), event(18, "confirmed", BY_ITSELF, 22.1, f"confirm {BY_ITSELF}"),
        event(19, "requested", OWN_RUN, 30.2), event(20, "consumed", BY_ITSELF, 30.2), event(21, "active", OWN_RUN, 31),
        event(22, "releasing.requested", OWN_RUN, 34, reason="ends_at", releasing_at=text(34)),
        event(23, "releasing.completed", OWN_RUN, 35),
    ]  # fmt: skip
    return history


def change(what: str, index: int, **changes: Any) -> Way:
    def do(history: History) -> None:
        entries = getattr(history, what)
        entries[index] = dataclasses.replace(entries[index], **changes)

    return do


def change_data(version: int, seconds: float | None = None, **data: Any) -> Way:
    def do(history: History) -> None:
        old = history.deliveries[version - 1]
        at_ = old.at if seconds is None else at(seconds)
        history.deliveries[version - 1] = dataclasses.replace(old, data=old.data | data, at=at_)

    return do


def add(what: str, *entries: Any) -> Way:
    return lambda history: getattr(history, what).extend(entries)


def drop(version: int) -> Way:
    """The event never was: those behind it move up."""

    def do(history: History) -> None:
        rest = [one for one in history.deliveries if one.version != version]
        history.deliveries = [
            dataclasses.replace(one, version=n, sequence=n) for n, one in enumerate(rest, 1)
        ]  # fmt: skip

    return do


ROUTES: list[tuple[str, str, Way]] = [
    ("two windows overlap in the events", "one holder", change_data(3, starts_at=text(13.9))),
    ("two windows overlap in the responses", "one holder", change("holds", 3, starts_at=at(13.9))),
    (
        "an allocation runs in another's window", "one holder",
        change("sights", 0, ends_at=at(15)),
    ),
    ("what was not held is turned over", "no gap", drop(1)),
    ("what was given back is turned over", "no gap", change("deliveries", 1, type="reservation.cancelled")),
    ("units without a right start", "no gap", change_data(13, units=[[1, 2]])),
    ("it is free while it is turned over", "no gap", change("resources", 2, state="available")),
    ("it is free in a confirmed window", "no gap", add("resources", ResourceSight(SLOT, 12, 12.1, "available", 10))),
    ("a window begins early", "late, never early", change_data(5, seconds=9.9)),
    ("it starts by itself without a confirm", "late, never early", drop(18)),
    ("an allocation ends early", "late, never early", change_data(11, releasing_at=text(13.9))),
    ("a window is released early", "late, never early", change("deliveries", 5, type="reservation.released")),
    ("warned twice", "warned once", add("deliveries", event(24, "reservation.ending", RUN, 12))),
    ("warned late", "warned once", change_data(8, judged_at=text(14))),
    ("a resource's version goes back", "only forward", change("resources", 3, row_version=8)),
    ("a resource changes without a version", "only forward", change("resources", 3, row_version=9)),
    ("more is free than there is", "availability", change("offers", 0, free_gpus=9)),
    ("more can be had than is free", "availability", change("offers", 1, available=3)),
    ("it fits now, and only later", "availability", change("offers", 1, earliest_at=at(1))),
    ("it does not fit, and fits now", "availability", change("offers", 2, earliest_at=at(0))),
    ("it never fits, without a reason", "availability", change("offers", 3, reason=None)),
    ("retired before its time", "kept", change("holds", 6, asked=18.0, told=18.1)),
    ("not found", "kept", change("holds", 6, status="not_found")),
    ("read again after it was retired", "kept", add("holds", held(LATER, 25, "consumed", 3, retire_after=at(20)))),
    ("a status query returns another answer", "asked", change("questions", 0, answer="another")),
    ("a status query says that it was refused", "asked", change("questions", 0, state="rejected")),
    ("a status query says that it never was", "asked", change("questions", 0, state="unknown", answer="")),
    ("two status queries disagree", "asked", change("questions", 1, state="rejected")),
    ("a status query says that it is retired", "asked", change("questions", 1, state="retired")),
    ("fenced, and an event follows", "fenced, no effect", change("deliveries", 2, operation_key="never")),
    ("fenced, and done", "fenced, no effect", change("attempts", 0, outcome=Outcome.FENCED)),
]  # fmt: skip


def test_a_history_in_which_all_was_well_is_no_violation() -> None:
    assert judge_history(well()) == []


@pytest.mark.parametrize(("check", "way"), [pytest.param(check, way, id=name) for name, check, way in ROUTES])
def test_each_check_finds_what_it_is_for(check: str, way: Way) -> None:
    history = well()
    way(history)
    assert check in {violation.check for violation in judge_history(history)}


def test_what_was_moved_is_no_other() -> None:
    """A reservation has two places, one after the other; its old one may be another's."""
    history = well()
    other = f"slot:{NODE}:7"
    history.holds[3:5] = [held(LATER, 3.1, "confirmed", 2, resources=(other,)), held(LATER, 13, "confirmed", 3)]
    place = {"units": [[7, 8]], "node_id": str(NODE), "fence": 1}
    change_data(3, claims=[place])(history)
    places: dict[str, Any] = {"from": place, "to": {"units": [[0, 1]]}}
    moved = event(24, "moved", LATER, 5, None, **places)
    later = [
        dataclasses.replace(one, version=one.version + 1, sequence=one.version + 1) for one in history.deliveries[4:]
    ]
    history.deliveries[4:] = [dataclasses.replace(moved, version=5, sequence=5), *later]
    assert judge_history(history) == []


def another_end(seconds: float, judged_at: float, *, behind: int = 7) -> Way:
    """The first allocation gets another end, in the events behind this version."""

    def do(history: History) -> None:
        data = {
            "allocation_id": str(RUN),
            "changed": ["ends_at"],
            "ends_at": text(seconds),
            "judged_at": text(judged_at),
        }
        made = Delivery(behind + 1, behind + 1, "event 24", "allocation.updated", "end", data, at(judged_at))
        later = [
            dataclasses.replace(one, version=one.version + 1, sequence=one.version + 1)
            for one in history.deliveries[behind:]
        ]
        history.deliveries[behind:] = [made, *later]

    return do


def test_another_end_is_the_one_that_counts() -> None:
    """Ended by its new time, and warned again before it."""
    history = well()
    another_end(13.5, 12.5, behind=8)(history)
    warned = event(10, "reservation.ending", RUN, 13)
    later = [
        dataclasses.replace(one, version=one.version + 1, sequence=one.version + 1) for one in history.deliveries[9:]
    ]
    history.deliveries[9:] = [
        dataclasses.replace(warned, event_id="event 25", data=warned.data | {"ends_at": text(13.5)}),
        *later,
    ]
    history.sights[1:3] = [sight(RUN, 11.5, "active", 3), sight(RUN, 13.4, "active", 4, ends_at=at(13.5))]
    change_data(13, releasing_at=text(13.6))(history)
    assert judge_history(history) == []


@pytest.mark.parametrize(
    ("check", "seconds"), [("one holder", 14.5), ("late, never early", 20)], ids=["in another's window", "ended early"]
)
def test_another_end_is_judged(check: str, seconds: float) -> None:
    history = well()
    another_end(seconds, 11.5)(history)
    assert check in {violation.check for violation in judge_history(history)}
