"""Random stories of several holders over the same units, against a small model: the same answers, the same tables."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from berth.local.servers import LocalPostgres
from orchestrator.catalogue.cache import CatalogueCache
from orchestrator.reservations.commands.expire import expire_reservation
from tests.allocations.seeding import connect, make_context
from tests.databases import copied_database
from tests.reservations.holding import ReservationClient, seed_with_seats, violations

SEATS = ("seat-0", "seat-1", "seat-2")
SLOTS = (0, 1, 2)
GPUS_LIMIT = 3
HOLDERS = ("ann", "ann ", "bob")

things = st.sets(st.sampled_from([*SEATS, *SLOTS]), min_size=1, max_size=3)
holders = st.sampled_from(HOLDERS)
choices = st.integers(0, 9)


@dataclass
class Known:
    """A reservation as the model has it."""

    holder: str
    things: frozenset[str | int]
    state: str = "hold"
    overdue: bool = False

    @property
    def live(self) -> bool:
        return self.state in ("hold", "confirmed")


@dataclass
class Model:
    """What the tables must say."""

    known: dict[UUID, Known] = field(default_factory=dict)

    def rivals(self, wanted: set[str | int]) -> list[Known]:
        return [one for one in self.known.values() if one.live and one.things & wanted]

    def used(self) -> int:
        return sum(isinstance(thing, int) for one in self.known.values() if one.live for thing in one.things)


class Stories(RuleBasedStateMachine):
    """Every rule is one command, or one step of time."""

    server: LocalPostgres
    told = 0
    template: str

    @initialize()
    def begin(self) -> None:
        type(self).told += 1
        self.opened = ExitStack()
        self.url = self.opened.enter_context(copied_database(self.server, self.template))
        self.runner = asyncio.Runner()
        seeded = seed_with_seats(self.url, seats=len(SEATS), gpus_limit=GPUS_LIMIT)
        context = make_context(self.url)
        self.client = ReservationClient(self.url, context, seeded, CatalogueCache(context.database, 60.0))
        self.model = Model()

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            assert violations(self.url) == []
        finally:
            self.runner.run(self.client.context.database.close())
            self.runner.close()
            self.opened.close()

    @rule(wanted=things, holder=holders)
    def hold(self, wanted: set[str | int], holder: str) -> None:
        rivals = self.model.rivals(wanted)
        names = [thing if isinstance(thing, str) else self.client.slot(thing) for thing in sorted(wanted, key=str)]
        answer = self.runner.run(self.client.hold(*names, holder=holder))
        code, document = self._told(answer.status, answer.body)
        if any(not one.overdue for one in rivals):
            assert code == "resource_busy"
            blocking = {
                f"reservations/{id_}" for id_, one in self.model.known.items() if one in rivals and not one.overdue
            }
            assert set(document["conflicts"]) == blocking
            return
        # Before a refusal by quota, the tenant's overdue holds expire, which may free enough of it.
        gpus = sum(isinstance(thing, int) for thing in wanted)
        returned = sum(isinstance(thing, int) for one in rivals for thing in one.things)
        if gpus and self.model.used() - returned + gpus > GPUS_LIMIT:
            for one in self.model.known.values():
                if one.overdue and one.live:
                    one.state = "expired"
            if self.model.used() + gpus > GPUS_LIMIT:
                assert code == "quota_exceeded"
                return
        assert code == "ok", document
        for one in rivals:
            one.state = "expired"
        self.model.known[UUID(document["reservation_id"])] = Known(holder, frozenset(wanted))

    @precondition(lambda self: self.model.known)
    @rule(choice=choices, holder=holders)
    def confirm(self, choice: int, holder: str) -> None:
        id_, one = self._pick(choice)
        answer = self.runner.run(self.client.confirm(id_, holder=holder))
        code, document = self._told(answer.status, answer.body)
        if holder != one.holder:
            assert code == "holder_mismatch"
        elif one.state == "confirmed":
            assert document["result"] == "noop"
        elif one.state == "hold" and not one.overdue:
            assert document["result"] == "ok"
            one.state = "confirmed"
        else:
            one.state = "expired" if one.state == "hold" else one.state
            assert (code, document["state"]) == ("invalid_state", one.state)

    @precondition(lambda self: self.model.known)
    @rule(choice=choices, holder=holders)
    def cancel(self, choice: int, holder: str) -> None:
        id_, one = self._pick(choice)
        answer = self.runner.run(self.client.cancel(id_, holder=holder))
        code, document = self._told(answer.status, answer.body)
        if holder != one.holder:
            assert code == "holder_mismatch"
        elif one.live and not one.overdue:
            assert document["result"] == "ok"
            one.state = "cancelled"
        else:
            one.state = "expired" if one.state == "hold" else one.state
            assert (document["result"], document["status"]) == ("noop", one.state)

    @precondition(lambda self: self.model.known)
    @rule(choice=choices)
    def pass_the_deadline(self, choice: int) -> None:
        id_, one = self._pick(choice)
        if one.state == "hold" and not one.overdue:
            one.overdue = True
            self.client.set_deadline(id_, -1)

    @precondition(lambda self: self.model.known)
    @rule(choice=choices)
    def sweep(self, choice: int) -> None:
        id_, one = self._pick(choice)
        due = one.state == "hold" and one.overdue
        assert self.runner.run(expire_reservation(self.client.context, id_)) == due
        one.state = "expired" if due else one.state

    @invariant()
    def tables_say_what_the_model_says(self) -> None:
        if not hasattr(self, "model"):
            return
        with connect(self.url) as connection:
            found = dict(connection.execute("select id, state from reservations").fetchall())
            used = connection.execute("select gpus_used from tenant_quotas").fetchone()
        assert found == {id_: one.state for id_, one in self.model.known.items()}
        assert used == (self.model.used(),)

    def _pick(self, choice: int) -> tuple[UUID, Known]:
        """One of the youngest: the old ones have ended."""
        ids = list(self.model.known)[-4:]
        id_ = ids[choice % len(ids)]
        return id_, self.model.known[id_]

    def _told(self, status: int, body: str) -> tuple[str, dict[str, Any]]:
        document = json.loads(body)
        return ("ok" if status < 400 else document["code"]), document


@pytest.mark.parametrize("examples", [5, pytest.param(300, marks=[pytest.mark.full, pytest.mark.timeout(1800)])])
def test_stories(postgres_server: LocalPostgres, migrated_template: str, examples: int) -> None:
    Stories.server, Stories.template, Stories.told = postgres_server, migrated_template, 0
    Stories.TestCase.settings = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, derandomize=examples < 100,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    test = Stories.TestCase()
    test.runTest()
    assert Stories.told >= examples
