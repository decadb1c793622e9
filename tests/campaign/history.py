"""What the campaign's own clients saw and did, by their own clock. Nothing here comes from the database.

Times are seconds of this process's monotonic clock; all clients live in one process, so they share it.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

from tests.campaign.accounts import Accounts
from tests.campaign.fleet_history import FLEET_EFFECTS, FleetHistory, FleetKind
from tests.campaign.keyvalue.records import KeyRead, StatusSight
from tests.campaign.listening.records import PolicySpan, Session
from tests.campaign.machines.records import MachineHistory

WriteKind = (
    Literal[
        "create", "take", "release", "force_release", "update", "hold", "confirm", "cancel", "commit", "hook", "hook_change",
        "hook_rotate", "hook_delete", "hook_replay", "top_up", "withdraw", "key_add", "key_remove", "verb",
    ]
    | FleetKind
)  # fmt: skip
"""`take`: a create from a reservation; `update`: another end of an allocation; `commit`: a transaction of keys and values;
`hook...`: of webhooks; `key_...`: of SSH keys; `verb`: of an active machine."""

EFFECTS: dict[str, frozenset[str]] = {
    "create": frozenset({"provisioning.requested"}),
    "take": frozenset({"provisioning.requested", "provisioning.waiting"}),
    "release": frozenset({"provisioning.releasing.requested"}),
    "force_release": frozenset({"provisioning.releasing.requested"}),
    "update": frozenset({"allocation.updated"}),
    "hold": frozenset({"reservation.held"}),
    "confirm": frozenset({"reservation.confirmed"}),
    "cancel": frozenset({"reservation.cancelled"}),
    "commit": frozenset({"transaction"}),
    "verb": frozenset({"allocation.verb_requested"}),
    **FLEET_EFFECTS,
    **dict.fromkeys(
        ("hook", "hook_change", "hook_rotate", "hook_delete", "hook_replay", "top_up", "withdraw", "key_add", "key_remove"),
        frozenset({"operation.committed"}),
    ),
}  # fmt: skip
"""The event types that each kind of write may emit; every effect emits exactly one, with the write's key."""
CREATES = frozenset({"create", "take"})
"""Kinds of writes that make an allocation."""
RELEASES = frozenset({"release", "force_release"})
"""Kinds of writes that end one."""


class Outcome(StrEnum):
    """The response to one attempt. The first two are stored with the key, the third excludes every later effect; the others
    say nothing about other attempts.
    """

    DONE = "done"
    REFUSED = "refused"  # a business refusal: remembered with the key
    FENCED = "fenced"  # a status query fenced the key before the request arrived: it never runs
    CONFLICT = "conflict"  # the key was used with other content
    NOT_DONE = "not_done"  # surely without effect, and not remembered
    IN_PROGRESS = "in_progress"
    UNKNOWN = "unknown"


DEFINITE = frozenset({Outcome.DONE, Outcome.REFUSED})
SETTLED = DEFINITE | {Outcome.FENCED}
"""After one of these no further status query is needed."""


@dataclass(frozen=True)
class Attempt:
    """One request that writes. `content` is the request's content, `answer` the response if it is definite."""

    key: str
    kind: WriteKind
    client: str
    content: str
    began: float
    ended: float
    outcome: Outcome
    code: str = "ok"
    answer: str = ""
    allocation_id: UUID | None = None
    reservation_id: UUID | None = None
    url: str = ""
    """Of the API process that it was sent to."""


@dataclass(frozen=True)
class HoldSight:
    """A reservation as an answer showed it to a client; `status` is `retired` or `not_found` where the server said that.

    The times from `held_at` on are by the server's clock.
    """

    reservation_id: UUID
    asked: float
    told: float
    status: str
    row_version: int = 0
    resources: tuple[str, ...] = ()
    held_at: datetime | None = None
    expires_at: datetime | None = None
    confirmed_at: datetime | None = None
    ended_at: datetime | None = None
    ends_at: datetime | None = None
    starts_at: datetime | None = None
    retire_after: datetime | None = None
    failure: str | None = None


@dataclass(frozen=True)
class ResourceSight:
    """A resource as a read showed it."""

    name: str
    asked: float
    told: float
    state: str
    row_version: int


@dataclass(frozen=True)
class Offer:
    """One availability response, for a window where `available` is set. Times are by the server's clock."""

    sku: str
    region: str
    free_gpus: int
    largest_now: int
    total_gpus: int
    gpus: int | None
    count: int | None
    available: int | None
    starts_at: datetime | None
    earliest_at: datetime | None
    reason: str | None


@dataclass(frozen=True)
class Question:
    """The response to a status query of a key. `answer` has the form of an `Attempt`'s."""

    key: str
    kind: WriteKind
    asked: float
    told: float
    state: str
    answer: str = ""


@dataclass(frozen=True)
class Sight:
    """An allocation as a read showed it to a client; `state` None: the server said that there is none."""

    client: str
    allocation_id: UUID
    asked: float
    told: float
    state: str | None
    row_version: int = 0
    node: str | None = None
    slots: tuple[int, ...] = ()
    birth: str = ""
    """What never changes about it: SKU, GPUs, region, correlation id, time of the request."""
    due: datetime | None = None
    """Until when the node or the worker had time, by the server's clock, while the allocation was on its way up."""
    failed_at: datetime | None = None
    failure: str | None = None
    reservation_id: UUID | None = None
    requested_at: datetime | None = None
    ends_at: datetime | None = None


@dataclass(frozen=True)
class Delivery:
    """A message as the campaign's own subscriber got it, in the order of arrival, repetitions included."""

    sequence: int
    version: int
    event_id: str
    type: str
    operation_key: str | None
    data: dict[str, Any]
    at: datetime | None = None
    """When it happened, by the database's clock."""
    tenant_id: str | None = None
    """The tenant's id; None where the event is for operators only."""
    prev_version: int | None = None
    told: float = 0.0
    """When it arrived."""

    @property
    def allocation_id(self) -> UUID | None:
        """The allocation it is about, if any."""
        found = self.data.get("allocation_id")
        return None if found is None else UUID(str(found))


@dataclass
class Injury:
    """A fault as it really happened."""

    kind: str
    target: str
    planned_at: float
    began: float
    ended: float | None = None
    error: str | None = None


ATTEMPT_SECONDS_MAX = 2.0
"""A client gives up waiting for an answer after this, and asks again."""
RECORDED = (
    "attempts", "sights", "holds", "resources", "offers", "questions", "deliveries", "injuries", "key_reads",
    "commit_statuses", "sessions", "policies",
)  # fmt: skip
"""The lists of a history that are written to its file."""


@dataclass
class History:
    """Everything that was seen, appended to as it happens."""

    seed: int
    began: float = field(default_factory=time.monotonic)
    offset_seconds: float = field(default_factory=lambda: time.time() - time.monotonic())
    """From this process's monotonic clock to the wall clock, which is the servers' own: all run on one machine."""
    nodes: dict[str, UUID] = field(default_factory=dict)
    """Ids of the nodes, by name."""
    attempts: list[Attempt] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)
    holds: list[HoldSight] = field(default_factory=list)
    resources: list[ResourceSight] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    injuries: list[Injury] = field(default_factory=list)
    key_reads: list[KeyRead] = field(default_factory=list)
    commit_statuses: list[StatusSight] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    policies: list[PolicySpan] = field(default_factory=list)
    log_age_seconds_min: float | None = None
    """The log drops nothing younger; None: it drops nothing."""
    accounts: Accounts = field(default_factory=Accounts)
    """Webhooks, payments, balances and quotas."""
    reads: dict[str, int] = field(default_factory=dict)
    """How reads other than sights ended, by kind and outcome."""
    observed: list[tuple[str, str]] = field(default_factory=list)
    """What a fault saw broken while it lasted: the check, and a sentence."""
    settled: dict[UUID, Sight] = field(default_factory=dict)
    """The last read of each allocation in the operator's list, after the run."""
    fleet: FleetHistory = field(default_factory=FleetHistory)
    machines: MachineHistory = field(default_factory=MachineHistory)
    attempt_seconds_max: float = ATTEMPT_SECONDS_MAX

    def moment(self, at: float) -> datetime:
        """That instant of the monotonic clock, as the servers' clocks showed it."""
        return datetime.fromtimestamp(at + self.offset_seconds, UTC)

    def by_key(self) -> dict[str, list[Attempt]]:
        """Attempts of each key, in the order in which they began."""
        found: dict[str, list[Attempt]] = {}
        for attempt in sorted(self.attempts, key=lambda attempt: attempt.began):
            found.setdefault(attempt.key, []).append(attempt)
        return found

    def by_allocation(self) -> dict[UUID, list[Sight]]:
        """Sights of each allocation, in the order in which they were asked for."""
        found: dict[UUID, list[Sight]] = {}
        for sight in sorted(self.sights, key=lambda sight: sight.asked):
            found.setdefault(sight.allocation_id, []).append(sight)
        return found

    def events(self) -> dict[int, Delivery]:
        """The first delivery of each version."""
        found: dict[int, Delivery] = {}
        for delivery in self.deliveries:
            found.setdefault(delivery.version, delivery)
        return found

    def count_read(self, what: str) -> None:
        """One more read that ended so."""
        self.reads[what] = self.reads.get(what, 0) + 1

    def write(self, path: Path) -> None:
        """Write the history, one JSON document per line, for the analysis of a violation."""
        with path.open("w") as file:
            for kind in RECORDED:
                for entry in getattr(self, kind):
                    file.write(json.dumps({"what": kind, **asdict(entry)}, default=str) + "\n")
            for kind in ("hooks", "messages"):
                for entry in getattr(self.accounts, kind):
                    file.write(json.dumps({"what": kind, **asdict(entry)}, default=str) + "\n")
            for machine, lines in self.machines.seen.items():
                for line in lines:
                    file.write(json.dumps({"what": "machine", "machine": machine, "seen": line}) + "\n")
            for run in self.machines.runs.values():
                file.write(json.dumps({"what": "run", **asdict(run)}, default=str) + "\n")
            for kind in ("uses", "audited"):
                for entry in getattr(self.fleet, kind):
                    file.write(json.dumps({"what": kind, **asdict(entry)}, default=str) + "\n")
