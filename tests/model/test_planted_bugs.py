"""The oracle can fail: every bug planted here is seen in one plain story, and nothing is seen in that story without one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

import pytest

from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.operations import execution
from orchestrator.operations.store import refusals
from orchestrator.reservations.commands import hold as hold_resources
from orchestrator.reservations.outcomes import HoldOutcome
from orchestrator.reservations.refusals import ResourceBusy
from orchestrator.reservations.store import holding, reservations
from tests.allocations.seeding import connect, make_context, seed
from tests.model.driving import Run, Story
from tests.support.model_runs import GPUS_LIMIT, fresh_run

STORY: Story = [
    [("hold", 1, 1, 0)],  # reservation 0: slot 1, from now on, for an hour
    [("hold", 1, 1, 0)],  # busy
    [("hold", 2, 1, 3)],  # 1: slot 2, a later hour
    [("hold", 2, 1, 4)],  # 2: the hour after that, for 1 s
    [("hold", 2, 4, 0)],  # busy: from now on
    [("hold", 2, 2, 2)],  # 3: until the later hour
    [("expire", 0, 0, 0)],  # long before its deadline
    [("confirm", 0, 0, 0)],  # by another holder
    [("confirm", 0, 1, 0)],
    [("cancel", 1, 1, 0), ("cancel", 3, 2, 0)],
    [("hold", 0, 1, 0)],  # 4: slot 0, for 1 s
    [("pass", 0, 0, 0)],
    [("pass", 0, 0, 0)],
    [("confirm", 4, 1, 0)],  # too late
    [("hold", 0, 1, 0)],  # 5: the same again
    [("pass", 0, 0, 0)],
    [("hold", 0, 5, 0)],  # 6: a rival, when 5 is over
    [("at_the_deadline", 3, 0, 0)],
    [("over", 4, 0, 0)],
    [("twice", 6, 1, 1)],
    [("hold", 8, 1, 0)],  # there is no such resource
    [("gpus", 0, 0, 0), ("create", 0, 0, 0)],
    [("cancel", 0, 1, 0)],
    [("cancel", 0, 1, 0), ("cancel", 1, 1, 0)],  # nothing left to do
]


class Bug(NamedTuple):
    """Which function of the database says what instead; and words that the report must contain."""

    name: str
    function: str
    said: str
    says: str
    words: str
    first: str = ""


BUGS = [
    Bug(
        "overlap is containment", "rivals_for(uuid[], text[], int8multirange, tstzrange, timestamptz)",
        "c.during && p_window", "c.during @> p_window", "belong to",
        "alter table claims drop constraint one_right",
    ),
    Bug(
        "back-to-back is overlap", "rivals_for(uuid[], text[], int8multirange, tstzrange, timestamptz)",
        "c.during && p_window", "tstzrange(lower(c.during), upper(c.during), '[]') && p_window",
        "answered resource_busy",
    ),
    Bug(
        "a hold past its deadline is in the way for ever",
        "rivals_for(uuid[], text[], int8multirange, tstzrange, timestamptz)",
        "r.expires_at <= p_now", "r.expires_at <= p_now - interval '1 hour'", "answered resource_busy",
    ),
    Bug(
        "confirm ignores the deadline", "judge_confirms(jsonb, bigint[], jsonb, uuid[], timestamptz)",
        "r.expires_at <= p_now", "false", "reservation.confirmed: the model answers invalid_state",
    ),
    Bug(
        "confirm ignores the holder", "judge_confirms(jsonb, bigint[], jsonb, uuid[], timestamptz)",
        "r.holder_id <> i.holder_id", "false", "asked for by 'another holder'",
    ),
    Bug(
        "an expired hold keeps its units", "close_reservation_claims(uuid)",
        "owner_id = p_id", "owner_id = p_id and false", "there is a row",
    ),
    Bug(
        "a missing event",
        "advance_reservations(uuid[], text, bigint[], text, text, jsonb, timestamptz, float8, text[], text[])",
        "insert into outbox (event_id, event_type", "insert into gone (event_id, event_type", "the log has no",
        "create table gone (like outbox including defaults including identity)",
    ),
    Bug(
        "a command without effect emits no event", "tell_committed_v2(uuid, text, integer, text, text, text, text)",
        "insert into outbox", "insert into gone", "the log has no outcome of it",
        "create table gone (like outbox including defaults including identity)",
    ),
    Bug(
        "a hold is charged twice", "change_quotas(uuid[], integer[])",
        "gpus_used = q.gpus_used + one.gpus,", "gpus_used = q.gpus_used + 2 * one.gpus,", "quota of",
    ),
    Bug(
        "an ended reservation keeps its quota",
        "end_reservation(uuid, text, bigint, text, text, jsonb, timestamptz, float8, text, text)",
        "q.gpus_used - ended.gpus_held", "q.gpus_used - 0 * ended.gpus_held", "quota of",
    ),
]  # fmt: skip


def play(url: str) -> list[str]:
    """Run the story on a new database; return the oracle's findings."""

    async def run() -> list[str]:
        context = make_context(url, pool_size=6)
        try:
            seeded = seed(url, slice_nodes=0, gpus_limit=GPUS_LIMIT)
            run_ = fresh_run(url, Run(url, context, seeded, CatalogueCache(context.database, 0.0)))
            await run_.play(STORY)
            return run_.judge()
        finally:
            await context.database.close()

    return asyncio.run(run())


def plant(url: str, bug: Bug) -> None:
    """Put the bug into the database."""
    with connect(url) as connection:
        if bug.first:
            connection.execute(bug.first.encode())
        row = connection.execute("select pg_get_functiondef(%s::regprocedure)", (bug.function,)).fetchone()
        assert row is not None
        assert bug.said in row[0], f"{bug.function} says something else by now"
        connection.execute(row[0].replace(bug.said, bug.says).encode())


@pytest.mark.full
def test_without_a_bug_nothing_is_found(database_url: str) -> None:
    assert "\n".join(play(database_url)) == ""


# Long. tests/campaign/test_planted_bugs.py replays a scene of each bug.
@pytest.mark.full
@pytest.mark.parametrize(
    "bug",
    [BUGS[0], *(pytest.param(bug, marks=pytest.mark.full) for bug in BUGS[1:])],
    ids=lambda bug: bug.name.replace(" ", "_"),
)
def test_a_bug_of_the_database_is_found(database_url: str, bug: Bug) -> None:
    plant(database_url, bug)
    found = play(database_url)
    assert any(bug.words in sentence for sentence in found), found


@contextmanager
def expiring_early(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """A sweeper that judges by a clock an hour ahead."""

    def overdue(subject: reservations.ReservationSubject) -> bool:
        ahead = subject.clock + timedelta(hours=2)
        return subject.state == "hold" and subject.expires_at is not None and subject.expires_at <= ahead

    patch.setattr(reservations.ReservationSubject, "overdue", property(overdue))
    yield "reservation.expired: the model answers noop"


@contextmanager
def losing_refusals(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """A refusal is answered and stored, but emits no event."""
    patch.setattr(
        refusals,
        "_STORE",
        refusals._STORE.replace(
            "from given g join stored s using (scope, key), clock c",
            "from given g join stored s using (scope, key), clock c where false",
        ),
    )
    yield "the log has no refusal of it"


@contextmanager
def forgetting_refusals(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """A refusal is neither stored nor emitted."""

    async def forget(_: object, refused: list[refusals.Refused]) -> list[object]:
        return [one.refusal for one in refused]

    patch.setattr(execution, "store_refusals_of", forget)
    yield "the log has no refusal of it"


@contextmanager
def refusing_for_nothing(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every second hold is refused, whatever is free."""
    hold_once, calls = holding.hold_once, iter(range(10**6))

    async def refuse(*args: object) -> HoldOutcome:
        return ResourceBusy.in_window([]) if next(calls) % 2 else await hold_once(*args)  # type: ignore[arg-type]

    patch.setattr(hold_resources, "hold_once", refuse)
    yield "answered resource_busy"


@pytest.mark.full
@pytest.mark.parametrize(
    "bug",
    [
        expiring_early,
        *(
            pytest.param(bug, marks=pytest.mark.full)
            for bug in (losing_refusals, forgetting_refusals, refusing_for_nothing)
        ),
    ],
)
def test_a_bug_of_the_commands_is_found(database_url: str, monkeypatch: pytest.MonkeyPatch, bug: object) -> None:
    with bug(monkeypatch) as words:  # type: ignore[operator]
        found = play(database_url)
    assert any(words in sentence for sentence in found), found
