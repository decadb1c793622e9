"""The gate's memory against a model that keeps everything: what it says is never wrong, and its size never too large."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orchestrator.edge.gate_entries import SWEPT_MAX, GateEntries

ENTRIES_MAX = 4
BYTES_MAX = 1_000_000
KEYS = st.sampled_from("abcdef")
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.0])
CLEANUP_SECONDS = 2.0


class Machine(RuleBasedStateMachine):
    """Begins, concludes and drops operations, looks and sweeps, while time goes by."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: GateEntries[str, object, int] = GateEntries(ENTRIES_MAX, BYTES_MAX, CLEANUP_SECONDS)
        self.now = 100.0
        self.serial = 0
        self.owners: dict[str, object] = {}
        self.answers: dict[str, tuple[int, float]] = {}  # every answer ever given that was not replaced
        self.used: OrderedDict[str, None] = OrderedDict()  # as the entries should hold them, the oldest use first

    def lasting(self, key: str) -> int | None:
        found = self.answers.get(key)
        return None if found is None or found[1] <= self.now else found[0]

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(key=KEYS)
    def look(self, key: str) -> None:
        told = self.entries.answer(key, self.now)
        expected = self.lasting(key) if key in self.used else None
        assert told == expected
        if told is None:
            self.used.pop(key, None)
        else:
            self.used.move_to_end(key)

    @rule(key=KEYS)
    def begin(self, key: str) -> None:
        if key in self.owners or self.lasting(key) is not None:
            return
        owner = object()
        before = self.entries.concluded
        evicted = self.entries.begin(key, owner)
        if len(self.owners) >= ENTRIES_MAX:
            assert evicted is None, "operations under way are never evicted"
            assert self.entries.concluded == before
            return
        assert evicted is not None
        excess = max(0, len(self.owners) + len(self.used.keys() | {key}) - ENTRIES_MAX)
        assert evicted == excess
        for _ in range(excess):
            self.used.popitem(last=False)
        self.used.pop(key, None)
        self.owners[key] = owner

    @rule(key=KEYS, seconds=SECONDS)
    def conclude(self, key: str, seconds: float) -> None:
        if key in self.owners:
            self.serial += 1
            self.entries.conclude(key, self.owners.pop(key), self.serial, self.now + seconds, 1)
            self.answers[key] = (self.serial, self.now + seconds)
            self.used[key] = None

    @rule(key=KEYS)
    def drop(self, key: str) -> None:
        if key in self.owners:
            self.entries.drop(key, self.owners.pop(key))
            self.answers.pop(key, None)

    @rule(key=KEYS)
    def a_stranger_changes_nothing(self, key: str) -> None:
        self.entries.drop(key, object())
        self.entries.conclude(key, object(), -1, self.now + 100, 1)

    @rule()
    def sweep(self) -> None:
        for _ in range(self.entries.sweep(self.now)):
            key, _ = self.used.popitem(last=False)
            assert self.lasting(key) is None, "only what is over is swept"

    @rule()
    def forget(self) -> None:
        self.entries.forget()
        self.used.clear()

    @invariant()
    def is_bounded(self) -> None:
        assert self.entries.pending == len(self.owners)
        assert self.entries.concluded == len(self.used)
        assert self.entries.pending + self.entries.concluded <= ENTRIES_MAX

    @invariant()
    def owners_stay(self) -> None:
        for key, owner in self.owners.items():
            assert self.entries.owner(key) is owner


TestEntries = Machine.TestCase
TestEntries.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def concluded(entries: GateEntries[int, object, str], keys: range, expires_at: float) -> None:
    for key in keys:
        owner = object()
        entries.begin(key, owner)
        entries.conclude(key, owner, "answer", expires_at, 1)


def test_a_sweep_is_bounded_and_goes_on_with_the_next_request() -> None:
    entries: GateEntries[int, object, str] = GateEntries(10_000, BYTES_MAX, 10.0)
    concluded(entries, range(3_000), expires_at=5.0)
    assert [entries.sweep(6.0) for _ in range(4)] == [SWEPT_MAX, SWEPT_MAX, 3_000 - 2 * SWEPT_MAX, 0]


def test_between_sweeps_there_is_an_interval() -> None:
    entries: GateEntries[int, object, str] = GateEntries(100, BYTES_MAX, 10.0)
    assert entries.sweep(1.0) == 0
    concluded(entries, range(3), expires_at=2.0)
    assert entries.sweep(10.9) == 0
    assert entries.sweep(11.0) == 3


def test_the_least_recently_used_answer_goes_first() -> None:
    entries: GateEntries[int, object, str] = GateEntries(3, BYTES_MAX, 10.0)
    concluded(entries, range(3), expires_at=100.0)
    assert entries.answer(0, 1.0) == "answer"
    assert entries.begin(3, object()) == 1
    assert [entries.answer(key, 1.0) for key in range(3)] == ["answer", None, "answer"]


def test_answers_are_bounded_in_bytes_and_the_least_recently_used_go() -> None:
    entries: GateEntries[int, object, str] = GateEntries(100, 10, 10.0)

    def conclude(key: int, size: int) -> int:
        owner = object()
        entries.begin(key, owner)
        return entries.conclude(key, owner, "answer", 50.0, size)

    assert [conclude(key, 3) for key in range(3)] == [0, 0, 0]
    assert entries.answer(0, 1.0) == "answer"
    assert conclude(3, 4) == 1
    assert (entries.answer(1, 1.0), entries.answer(0, 1.0), entries.bytes) == (None, "answer", 10)
    assert conclude(4, 11) == 4, "it is larger than the bound: nothing is left of it either"
    assert (entries.bytes, entries.concluded) == (0, 0)
    conclude(5, 10)
    assert entries.answer(5, 60.0) is None
    conclude(5, 1)
    assert entries.bytes == 1, "what is replaced counts no longer"
    entries.forget()
    assert entries.bytes == 0
