"""What the model knows: units under claims, their owners, quotas, and what was answered under each operation key.

Everything is immutable: a command answers a new `State`, so the state before every event of a log can be kept and asked
again what it would have answered. States share what did not change (hash tries): those of a long log fit in memory. A claim
lies inside its owner, so it always has exactly one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from rpds import HashTrieMap, HashTrieSet

ReservationState = Literal["hold", "confirmed", "cancelled", "expired", "consumed", "released"]
AllocationState = Literal["requested", "active", "releasing", "release_failed", "released", "failed"]

LIVE_RESERVATIONS = ("hold", "confirmed")
FINAL_ALLOCATIONS = ("released", "failed")


@dataclass(frozen=True, slots=True)
class Claim:
    """Units × time. `ends_at` None: open-ended. `gpus` is what it costs in quota.

    `occupied` None: the log does not say (a proven cleanup after a failure emits no event); later events decide.
    """

    units: frozenset[int]
    starts_at: datetime
    ends_at: datetime | None
    gpus: int
    booked: bool = True
    occupied: bool | None = False

    def overlaps(self, starts_at: datetime, ends_at: datetime | None) -> bool:
        """Whether it has an instant in common with `[starts_at, ends_at)`: back-to-back has none."""
        begins_before = ends_at is None or self.starts_at < ends_at
        return begins_before and (self.ends_at is None or starts_at < self.ends_at)


@dataclass(frozen=True, slots=True)
class Reservation:
    """A hold, a confirmed window, or what became of it. Its claims leave it one by one when they are turned over."""

    tenant: str
    holder: str
    state: ReservationState
    starts_at: datetime
    ends_at: datetime | None
    hold_until: datetime
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class Allocation:
    """What a tenant runs on. `requested` covers `provisioning`, which is no event. `former`: claims that `claim` succeeded."""

    tenant: str
    state: AllocationState
    claim: Claim
    former: tuple[Claim, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may hold (None: anything) and holds."""

    limit: int | None = None
    used: int = 0


@dataclass(frozen=True, slots=True)
class Remembered:
    """The first answer under an operation key: for which content (None: the log does not say), and its code."""

    content: str | None
    code: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command is answered: `ok`, `noop`, or the code of its refusal; `detail` says why, for a person."""

    code: str
    detail: str = ""

    @property
    def done(self) -> bool:
        """Whether it is a success."""
        return self.code in ("ok", "noop")


OK = Outcome("ok")
NOOP = Outcome("noop")


@dataclass(frozen=True, slots=True)
class State:
    """Everything. `resources` are those that can be named, with their units; `out_of_service` those of them that cannot
    be had now.
    """

    resources: Mapping[str, frozenset[int]] = field(default_factory=dict)
    out_of_service: frozenset[str] = frozenset()
    reservations: HashTrieMap[str, Reservation] = field(default_factory=HashTrieMap)
    allocations: HashTrieMap[str, Allocation] = field(default_factory=HashTrieMap)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    operations: HashTrieMap[tuple[str, str], Remembered] = field(default_factory=HashTrieMap)
    open: HashTrieSet[str] = field(default_factory=HashTrieSet)
    """Names of the owners with a claim that is booked, or perhaps occupied: the others are in nothing's way."""

    def with_reservation(self, id_: str, reservation: Reservation) -> State:
        """The same with this reservation."""
        open_ = self._open_with(f"reservations/{id_}", reservation.claims)
        return replace(self, reservations=self.reservations.insert(id_, reservation), open=open_)

    def with_allocation(self, id_: str, allocation: Allocation) -> State:
        """The same with this allocation."""
        open_ = self._open_with(f"allocations/{id_}", (*allocation.former, allocation.claim))
        return replace(self, allocations=self.allocations.insert(id_, allocation), open=open_)

    def _open_with(self, owner: str, claims: tuple[Claim, ...]) -> HashTrieSet[str]:
        if any(claim.booked or claim.occupied is not False for claim in claims):
            return self.open.insert(owner)
        return self.open.discard(owner)

    def charged(self, tenant: str, gpus: int) -> State:
        """The same with `gpus` more (or fewer) in the tenant's use."""
        quota = self.quotas.get(tenant, Quota())
        return replace(self, quotas={**self.quotas, tenant: replace(quota, used=quota.used + gpus)})

    def claims(self) -> Iterator[tuple[str, Claim]]:
        """Every claim with its owner's name."""
        yield from self._claims_of(f"reservations/{id_}" for id_ in self.reservations)
        yield from self._claims_of(f"allocations/{id_}" for id_ in self.allocations)

    def open_claims(self) -> Iterator[tuple[str, Claim]]:
        """Every claim of the owners in `open`."""
        return self._claims_of(self.open)

    def _claims_of(self, owners: Iterable[str]) -> Iterator[tuple[str, Claim]]:
        for owner in owners:
            kind, _, id_ = owner.partition("/")
            if kind == "reservations":
                claims = self.reservations[id_].claims
            else:
                claims = (*self.allocations[id_].former, self.allocations[id_].claim)
            for claim in claims:
                yield owner, claim

    def rights_to(self, units: frozenset[int], starts_at: datetime, ends_at: datetime | None) -> list[str]:
        """The owners of a right to one of these units at some instant of the window."""
        return [
            owner
            for owner, claim in self.open_claims()
            if claim.booked and claim.units & units and claim.overlaps(starts_at, ends_at)
        ]

    def occupants_of(self, units: frozenset[int]) -> list[str]:
        """The certain occupants of these units."""
        return [owner for owner, claim in self.open_claims() if claim.occupied and claim.units & units]

    def perhaps_on(self, units: frozenset[int]) -> list[str]:
        """The occupants of these units, certain or possible as far as the log says."""
        return [owner for owner, claim in self.open_claims() if claim.occupied is not False and claim.units & units]
