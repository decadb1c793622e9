"""Hardware that nodes report in any order, against a model that only keeps sets: moves, contradictions, disappearances."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.allocations.seeding import connect, seed

NODES = 3
SERIALS = ["PART-0", "PART-1", "PART-2", "PART-3"]
SLOT = st.integers(0, 2)
Report = dict[str, int]


class Moves(RuleBasedStateMachine):
    """Nodes report pieces, go offline and return; slots are quarantined."""

    url = ""
    stories = 0

    def __init__(self) -> None:
        super().__init__()
        self.connection: psycopg.Connection[Any] = connect(self.url)

    def teardown(self) -> None:
        """Close the connection."""
        self.connection.close()
        type(self).stories += 1

    @initialize()
    def begin(self) -> None:
        """An empty history; the nodes are there and online."""
        self.connection.execute("set session_replication_role = replica")
        self.connection.execute("truncate hardware_places, hardware_history, hardware_repairs, slot_quarantines")
        self.connection.execute("set session_replication_role = origin")
        self.connection.execute("update nodes set online = true")
        rows = self.connection.execute("select id from nodes order by name").fetchall()
        self.nodes: list[uuid.UUID] = [row[0] for row in rows]
        self.online = [True] * NODES
        self.present: dict[str, dict[int, int]] = {}
        self.missing: dict[str, tuple[int, int]] = {}
        self.entries: list[Any] = []
        self.quarantines = 0

    @rule(node=st.integers(0, NODES - 1), parts=st.dictionaries(st.sampled_from(SERIALS), SLOT), whole=st.booleans())
    def report(self, node: int, parts: Report, whole: bool) -> None:
        """A discovery; one that is not whole read some pieces alone, and nothing is missing by it."""
        written = [
            {"serial": serial, "kind": "gpu", "model": None, "slots": [slot], "positions": [f"at-{slot}"]}
            for serial, slot in parts.items()
        ]
        known = ["gpu"] if whole else []
        left_out = self.connection.execute(
            "select place_hardware(%s, %s, %s, '{}', 'worker:test')", (self.nodes[node], json.dumps(written), known)
        ).fetchone()
        assert left_out == (0,)
        for serial, slot in parts.items():
            there = self.present.setdefault(serial, {})
            for other in [other for other in there if other != node and not self.online[other]]:
                del there[other]
            there[node] = slot
            self.missing.pop(serial, None)
        for serial, there in self.present.items():
            if whole and serial not in parts and node in there:
                slot = there.pop(node)
                if not there:
                    self.missing[serial] = (node, slot)

    @rule(node=st.integers(0, NODES - 1))
    def turn(self, node: int) -> None:
        """A node goes offline, or returns."""
        self.online[node] = not self.online[node]
        self.connection.execute("update nodes set online = not online where id = %s", (self.nodes[node],))

    @rule(node=st.integers(0, NODES - 1), slot=SLOT)
    def quarantine(self, node: int, slot: int) -> None:
        """The quarantine of a slot is noted of what is in it, otherwise of what was in it last."""
        self.quarantines += 1
        self.connection.execute(
            "insert into slot_quarantines (node_id, slot_index, unit, reason, quarantined_by)"
            " values (%s, %s, %s, %s, 'admin:a')",
            (self.nodes[node], slot, self.quarantines, str(self.quarantines)),
        )
        noted = self.connection.execute(
            "select serial, contested from hardware_history where detail = %s", (str(self.quarantines),)
        ).fetchall()
        inside = {serial for serial, there in self.present.items() if there.get(node) == slot}
        last = {serial for serial, place in self.missing.items() if place == (node, slot)}
        assert {serial for serial, _ in noted} == (inside or last)
        assert all(contested == (len(self.present[serial]) > 1) for serial, contested in noted)

    @invariant()
    def places_are_those_of_the_model(self) -> None:
        """Each report is shown; a piece that was seen is never lost; several places are a contradiction."""
        rows = self.connection.execute(
            "select serial, node_id, slots, missing_since is not null, contested_since is not null from hardware_places"
        ).fetchall()
        expected = {
            (serial, self.nodes[node], slot, False, len(there) > 1)
            for serial, there in self.present.items()
            for node, slot in there.items()
        } | {(serial, self.nodes[node], slot, True, False) for serial, (node, slot) in self.missing.items()}
        assert {(serial, node, slots[0], *flags) for serial, node, slots, *flags in rows} == expected

    @invariant()
    def the_history_is_appended_to(self) -> None:
        """Entries stay as they are; a piece begins with `seen`; each arrival and disappearance alternate at a node."""
        rows = self.connection.execute(
            "select id, serial, happened, node_id, detail from hardware_history order by id"
        ).fetchall()
        assert rows[: len(self.entries)] == self.entries
        self.entries = rows
        began: set[str] = set()
        at: dict[tuple[str, uuid.UUID], str] = {}
        for _, serial, happened, node, _ in rows:
            if happened == "quarantined":
                continue
            assert (happened == "seen") or serial in began
            began.add(serial)
            if happened == "missing":
                assert at.get((serial, node)) in ("seen", "moved", "contested")
            at[serial, node] = happened
        assert began == self.present.keys()
        for serial, there in self.present.items():
            assert all(at[serial, self.nodes[node]] in ("seen", "moved", "contested") for node in there)


def play(url: str, examples: int) -> int:
    """How many stories ran."""

    class Here(Moves):
        """The stories of this database."""

    Here.url, Here.stories = url, 0
    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=examples, stateful_step_count=20, deadline=None, derandomize=examples < 100,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    return Here.stories


@pytest.mark.full
def test_reports_in_any_order_are_placed_as_the_model_says(database_url: str) -> None:
    seed(database_url, slice_nodes=NODES)
    assert play(database_url, 40) >= 40


@pytest.mark.full
def test_reports_in_any_order_many_times(database_url: str) -> None:
    seed(database_url, slice_nodes=NODES)
    assert play(database_url, 1_000) >= 1_000
