"""Quotas and rates: what was surely held at once is within the quota, and all of it is returned in the end. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from tests.campaign.accounts import QuotaLimit, RateLimit
from tests.campaign.history import Attempt, Delivery, History, Outcome
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_events import COMPLETED, FAILED, REQUESTED, WAITING

HELD, CONFIRMED = "reservation.held", "reservation.confirmed"
RESERVATION_ENDS = frozenset(
    {
        "reservation.cancelled",
        "reservation.expired",
        "reservation.released",
        "reservation.consumed",
        "reservation.failed",
    }
)
UNLIMITED = frozenset({"release", "cancel", "confirm", "force_release"})
"""Kinds of writes that no rate refuses."""
LIMITED = frozenset({"rate_limited", "concurrency_limited"})
RETURNED = frozenset({"gpus", "reservations", "holds"})
"""What a tenant uses of these quotas is 0 when all its allocations and reservations have ended."""
COUNTED_BY_KEYS = {"webhooks": ("hook", "hook_delete"), "ssh_keys": ("key_add", "key_remove")}
"""Quotas that no event shows: the writes that add and remove."""
WITHOUT_RESTART = frozenset({"pause", "cut", "one_way", "reset", "delay"})
"""Faults after which a process goes on with what it had counted."""
START_SECONDS_MAX = 15.0
"""A process that is started again is ready within this time."""


@dataclass(frozen=True)
class Use:
    """So much of a quota was surely used from `since` until `until`."""

    what: str
    amount: int
    since: float
    until: float


def judge_quotas(history: History) -> list[Violation]:
    """Every check on quotas and rates."""
    checks = (check_quotas, check_returned, check_limited, check_rate)
    return [violation for check in checks for violation in check(history)]


def check_quotas(history: History) -> Iterator[Violation]:
    """At no instant a tenant surely held more than its quota."""
    for quota in history.accounts.quotas:
        held: list[Use] = []
        for use in sorted(_uses(history, quota), key=lambda use: use.since):
            held = [*(other for other in held if use.since < other.until), use]
            amount = sum(other.amount for other in held if use.since < other.until)
            if amount > quota.limit:
                names = ", ".join(sorted(other.what for other in held))
                yield Violation(
                    "quota kept", f"tenant {quota.tenant_id} held {amount} of {quota.limit} {quota.quota}: {names}"
                )
                break


def _uses(history: History, quota: QuotaLimit) -> list[Use]:
    match quota.quota:
        case "gpus":
            return [*_allocations(history, quota.tenant_id), *_reservations(history, quota.tenant_id, _gpus)]
        case "reservations":
            return _reservations(history, quota.tenant_id, lambda _: 1)
        case "holds":
            return _reservations(history, quota.tenant_id, lambda _: 1, {CONFIRMED})
        case _:
            return _kept(history, quota)


def _gpus(held: Delivery) -> int:
    return int(held.data["gpus_held"])


def _allocations(history: History, tenant_id: UUID) -> list[Use]:
    """From when a client or the subscriber saw the create until the event of the final state."""
    born: dict[UUID, tuple[int, float]] = {}
    ended: dict[UUID, float] = {}
    for event in history.events().values():
        if event.tenant_id != str(tenant_id) or event.allocation_id is None:
            continue
        if event.type in (REQUESTED, WAITING):
            born.setdefault(event.allocation_id, (int(event.data["gpus"]), event.told))
        elif event.type in (COMPLETED, FAILED):
            ended.setdefault(event.allocation_id, _at(history, event))
    seen = _acknowledged_at(history)
    return [
        Use(f"allocation {id_}", gpus, min(told, seen.get(id_, told)), ended.get(id_, float("inf")))
        for id_, (gpus, told) in born.items()
    ]


def _reservations(
    history: History, tenant_id: UUID, amount: Callable[[Delivery], int], also_ended_by: set[str] | None = None
) -> list[Use]:
    """From when a client or the subscriber saw the hold until the event that ends it."""
    ends = RESERVATION_ENDS | (also_ended_by or set())
    held: dict[UUID, Delivery] = {}
    ended: dict[UUID, float] = {}
    for event in history.events().values():
        if event.tenant_id != str(tenant_id) or not event.type.startswith("reservation."):
            continue
        if event.type == HELD:
            held[UUID(event.data["reservation_id"])] = event
        elif event.type in ends:
            ended.setdefault(UUID(event.data["reservation_id"]), _at(history, event))
    seen = _acknowledged_at(history)
    return [
        Use(
            f"reservation {id_}",
            amount(event),
            min(event.told, seen.get(id_, event.told)),
            ended.get(id_, float("inf")),
        )
        for id_, event in held.items()
    ]


def _acknowledged_at(history: History) -> dict[UUID, float]:
    """When the first response arrived that a create or hold was done."""
    found: dict[UUID, float] = {}
    for attempt in history.attempts:
        id_ = attempt.reservation_id if attempt.kind == "hold" else attempt.allocation_id
        if attempt.kind in ("create", "hold") and attempt.outcome is Outcome.DONE and id_ is not None:
            found[id_] = min(attempt.ended, found.get(id_, attempt.ended))
    return found


def _kept(history: History, quota: QuotaLimit) -> list[Use]:
    """From the response that a thing was made until the request that ends it."""
    made, removed = COUNTED_BY_KEYS[quota.quota]
    uses = []
    ended: dict[str, float] = {}
    for attempt in history.attempts:
        if attempt.kind == removed:
            id_ = attempt.content.split()[-1]
            ended[id_] = min(attempt.began, ended.get(id_, attempt.began))
    for key, attempts in history.by_key().items():
        done = [one for one in attempts if one.kind == made and one.outcome is Outcome.DONE]
        if done and history.accounts.owners.get(done[0].client) == quota.tenant_id:
            id_ = made_id(done[0])
            uses.append(Use(f"{made} {key}", 1, min(one.ended for one in done), ended.get(id_, float("inf"))))
    return uses


def _left(history: History, quota: QuotaLimit) -> tuple[int, int]:
    """The least and the most that the tenant has left: a removal whose outcome stayed unknown may have happened."""
    made, removed = COUNTED_BY_KEYS[quota.quota]
    outcomes: dict[str, set[Outcome]] = {}
    for attempts in history.by_key().values():
        done = [one for one in attempts if one.kind == made and one.outcome is Outcome.DONE]
        if done and history.accounts.owners.get(done[0].client) == quota.tenant_id:
            outcomes[made_id(done[0])] = set()
    for attempt in history.attempts:
        if attempt.kind == removed and attempt.content.split()[-1] in outcomes:
            outcomes[attempt.content.split()[-1]].add(attempt.outcome)
    there = [found for found in outcomes.values() if Outcome.DONE not in found]
    # A fenced key never ran, whatever was not heard of it before.
    return sum(Outcome.FENCED in found or Outcome.UNKNOWN not in found for found in there), len(there)


def made_id(attempt: Attempt) -> str:
    """The id of what a write made."""
    return attempt.answer.split('"id":"', 1)[1].split('"', 1)[0]


def check_returned(history: History) -> Iterator[Violation]:
    """When everything has ended, nothing is used of a quota of what has ended, and the rest is what was not removed."""
    for tenant_id, used in history.accounts.used.items():
        for quota in sorted(RETURNED & used.keys()):
            if used[quota]:
                yield Violation(
                    "quota returned", f"tenant {tenant_id} still uses {used[quota]} {quota}, and everything ended"
                )
    for limit in history.accounts.quotas:
        reported = history.accounts.used.get(limit.tenant_id, {}).get(limit.quota)
        if limit.quota in COUNTED_BY_KEYS and reported is not None:
            least, most = _left(history, limit)
            before = int(limit.quota == "ssh_keys")  # the key that each tenant is given first
            if not least <= reported - before <= most:
                yield Violation(
                    "quota returned",
                    f"tenant {limit.tenant_id} uses {reported} {limit.quota}, and has {least + before} to {most + before}",
                )


def check_limited(history: History) -> Iterator[Violation]:
    """429 is for the clients of the tenant with the rate alone, and never for what ends something."""
    rate = history.accounts.rate
    slow = frozenset() if rate is None else rate.clients
    for attempt in history.attempts:
        if attempt.code in LIMITED and (attempt.client not in slow or attempt.kind in UNLIMITED):
            yield Violation(
                "limited", f"{attempt.key} ({attempt.kind}) of {attempt.client} was refused by a rate: {attempt.code}"
            )
    for read in history.accounts.limited:
        if read.client not in slow:
            yield Violation("limited", f"a read ({read.what}) of {read.client} was refused by a rate")


def check_rate(history: History) -> Iterator[Violation]:
    """In no span of time more writes of the tenant were let in than its rate allows all processes together."""
    rate = history.accounts.rate
    if rate is None:
        return
    admitted = sorted(
        (one for one in history.attempts if one.client in rate.clients and _counts(one)), key=lambda one: one.began
    )
    # A process has full buckets when it starts again.
    restarts = [
        (injury.began, float("inf") if injury.ended is None else injury.ended + START_SECONDS_MAX)
        for injury in history.injuries
        if injury.kind not in WITHOUT_RESTART and injury.target.startswith("api")
    ]
    for first, attempt in enumerate(admitted):
        found = _exceeds(rate, admitted, first, restarts)
        if found is not None:
            yield Violation("limited", f"from {attempt.key} on {found} writes were let in, more than the rate allows")
            return


def _exceeds(
    rate: RateLimit, admitted: Sequence[Attempt], first: int, restarts: Sequence[tuple[float, float]]
) -> int | None:
    """The number of writes, from the first request to a later response, that exceeds the rate; None if none does.

    It ends at a request that the rate had let in without a burst: what exceeds from here on exceeds from there on too.
    """
    begin, seen_until, refilled = admitted[first].began, 0.0, rate.processes * rate.per_second
    for before in range(len(admitted) - first):
        attempt = admitted[first + before]
        if 0 < before <= refilled * (attempt.began - begin):
            return None
        seen_until = max(seen_until, attempt.ended)
        buckets = rate.processes + sum(began <= seen_until and begin <= ended for began, ended in restarts)
        if before > buckets * rate.burst + refilled * (seen_until - begin):
            return before + 1
    return None


def _counts(attempt: Attempt) -> bool:
    """Whether a process surely served it against the rate."""
    return attempt.kind not in UNLIMITED and attempt.outcome in (Outcome.DONE, Outcome.REFUSED, Outcome.CONFLICT)


def _at(history: History, event: Delivery) -> float:
    return float("inf") if event.at is None else event.at.timestamp() - history.offset_seconds
