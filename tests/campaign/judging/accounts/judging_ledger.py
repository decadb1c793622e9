"""The ledger, computed again from the events of the stream and the payments of the operator, to the micro-unit. Pure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from tests.campaign.accounts import LedgerLine
from tests.campaign.history import Attempt, Delivery, History, Outcome
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_events import ACTIVE, FAILED, RELEASING

RECOVERED = "allocation.recovered"
DEPLETED = "balance.depleted"
BY_BALANCE = "balance_depleted"
"""The code of a create that is refused, and the reason of a release by billing."""
PAYMENTS = frozenset({"top_up", "withdraw"})
REFUSED_KINDS = frozenset({"create", "hold", "take"})
"""Writes that a depleted balance refuses."""


@dataclass
class Interval:
    """An allocation's active time, by the events: what it costs, and what of it is credited."""

    allocation_id: UUID
    tenant_id: UUID
    gpus: int
    price: int
    since: datetime
    until: datetime | None = None
    credited: int = 0
    credits: int = 0
    credited_until: datetime | None = field(default=None, repr=False)

    def cost(self, until: datetime) -> int:
        """Micro-units from the beginning until then or to its end, rounded down once."""
        end = until if self.until is None else min(until, self.until)
        seconds = max(end - self.since, end - end)
        microseconds = seconds.days * 86_400_000_000 + seconds.seconds * 1_000_000 + seconds.microseconds
        return self.gpus * self.price * microseconds // 1_000_000


def judge_ledger(history: History) -> list[Violation]:
    """Every check on money."""
    checks = (check_usage, check_payments, check_balances, check_depletion, check_refusals)
    return [violation for check in checks for violation in check(history)]


def intervals_of(history: History) -> dict[UUID, Interval]:
    """The active time of every allocation whose price is known, in version order."""
    found: dict[UUID, Interval] = {}
    prices = history.accounts.prices | _prices_of_answers(history)
    for _, event in sorted(history.events().items()):
        allocation_id = event.allocation_id
        if allocation_id is None or event.tenant_id is None:
            continue
        if event.type == ACTIVE:
            price = prices.get((event.data["sku"], int(event.data["price_version"])))
            if price is not None and allocation_id not in found:
                found[allocation_id] = Interval(
                    allocation_id, UUID(event.tenant_id), int(event.data["gpus"]), price, _time(event.data["active_at"])
                )
        elif allocation_id in found:
            _follow(found[allocation_id], event)
    return found


def _prices_of_answers(history: History) -> dict[tuple[str, int], int]:
    """What operators have sold at, by SKU and version of its price."""
    answers = [json.loads(a.answer) for a in history.attempts if a.kind == "put_sku" and a.outcome is Outcome.DONE]
    return {
        (sku["name"], sku["price_version"]): sku["price_micro_per_gpu_second"]
        for sku in answers
        if "price_version" in sku
    }


def _follow(interval: Interval, event: Delivery) -> None:
    ended = event.data.get("releasing_at") if event.type == RELEASING else event.data.get("failed_at")
    if event.type in (RELEASING, FAILED) and ended is not None and interval.until is None:
        interval.until = _time(ended)
    # An outage that has ended is credited from the last proof that the guest ran.
    names = {
        RECOVERED: ("cause", "recovered_at", "lost_at"),
        RELEASING: ("outage_cause", "releasing_at", "outage_lost_at"),
    }
    if event.type in names and event.data.get("last_proof_of_life_at") is not None:
        cause, end, lost = (event.data.get(name) for name in names[event.type])
        if cause != "guest_unreachable":
            until = lost if cause == "guest_down" and lost is not None else end
            _credit(interval, _time(event.data["last_proof_of_life_at"]), _time(str(until)))


def _credit(interval: Interval, since: datetime, until: datetime) -> None:
    since = max(since, interval.since, interval.credited_until or interval.since)
    until = min(until, interval.until or until)
    if until > since:
        interval.credited += interval.cost(until) - interval.cost(since)
        interval.credits += 1
        interval.credited_until = until


def check_usage(history: History) -> Iterator[Violation]:
    """Each active time has one line, from `active` to its end, at its price; what was never active has none."""
    books = history.accounts.books
    if books is None:
        return
    usage, credits_ = _lines(books.lines, "usage"), _lines(books.lines, "credit")
    known = intervals_of(history)
    active = {event.allocation_id for event in history.events().values() if event.type == ACTIVE}
    for allocation_id in usage.keys() | credits_.keys():
        if allocation_id not in active:
            yield Violation("ledger", f"{allocation_id} was never active, and the ledger charges it")
    for interval in known.values():
        yield from _check_interval(interval, usage[interval.allocation_id], credits_[interval.allocation_id])
    for seen in books.usage:
        owed = known.get(seen.allocation_id)
        if owed is not None and owed.until is not None and (seen.starts_at, seen.ends_at, seen.amount) != (
            owed.since, owed.until, owed.cost(owed.until),
        ):  # fmt: skip
            yield Violation("ledger", f"usage of {seen.allocation_id} is {seen}, and its events say {owed}")


def _check_interval(interval: Interval, usage: list[LedgerLine], credited: list[LedgerLine]) -> Iterator[Violation]:
    wanted = [] if interval.until is None else [(interval.since, interval.until, interval.cost(interval.until))]
    charged = [(line.starts_at, line.ends_at, line.amount) for line in usage]
    if charged != wanted:
        yield Violation("ledger", f"{interval.allocation_id} is charged {charged}, and its events say {wanted}")
    given = sum(line.amount for line in credited)
    if (given, len(credited)) != (interval.credited, interval.credits):
        yield Violation(
            "ledger",
            f"{interval.allocation_id} is credited {given} in {len(credited)} lines, and its events say {interval}",
        )


def _lines(lines: list[LedgerLine], kind: str) -> dict[UUID, list[LedgerLine]]:
    found: dict[UUID, list[LedgerLine]] = defaultdict(list)
    for line in lines:
        if line.kind == kind and line.allocation_id is not None:
            found[line.allocation_id].append(line)
    return found


def check_payments(history: History) -> Iterator[Violation]:
    """A payment that was acknowledged has one line with its amount; one that was refused or never sent has none."""
    books = history.accounts.books
    if books is None:
        return
    lines = Counter(
        (str(line.operation_key), _signed(line)) for line in books.lines if line.kind in ("top_up", "withdrawal")
    )
    acknowledged = {(key, amount) for key, (_, amount) in _acknowledged(history).items()}
    for payment in acknowledged:
        if lines[payment] != 1:
            yield Violation("paid once", f"the payment {payment} was acknowledged and has {lines[payment]} lines")
    for payment in lines.keys() - acknowledged:
        yield Violation("paid once", f"the ledger has {lines[payment]} lines of {payment}, which was not acknowledged")


def check_balances(history: History) -> Iterator[Violation]:
    """The settled amount of each tenant is its payments and credits less its usage."""
    books = history.accounts.books
    if books is None:
        return
    paid, known = _acknowledged(history), intervals_of(history)
    for tenant_id, settled in books.settled.items():
        owed = sum(amount for tenant, amount in paid.values() if tenant == tenant_id)
        for interval in known.values():
            if interval.tenant_id == tenant_id and interval.until is not None:
                owed += interval.credited - interval.cost(interval.until)
        if settled != owed:
            yield Violation("balance", f"tenant {tenant_id} has {settled}, and its events and payments say {owed}")


def check_depletion(history: History) -> Iterator[Violation]:
    """Nothing is refused or released for a balance that surely had something left."""
    known, keys = list(intervals_of(history).values()), history.by_key()
    for attempt in history.attempts:
        tenant = history.accounts.owners.get(attempt.client)
        if attempt.code != BY_BALANCE or attempt.outcome is not Outcome.REFUSED or tenant is None:
            continue
        # A repetition returns the first attempt's response.
        left = _surely_left(history, known, tenant, keys[attempt.key][0].began, attempt.ended)
        if tenant not in history.accounts.prepaid or left > 0:
            yield Violation("balance", f"{attempt.key} was refused for its balance when {left} were left")
    for event in history.events().values():
        depleted = event.type == DEPLETED or (event.type == RELEASING and event.data.get("reason") == BY_BALANCE)
        if not depleted or event.tenant_id is None or event.at is None:
            continue
        at = event.at.timestamp() - history.offset_seconds
        left = _surely_left(history, known, UUID(event.tenant_id), at, at)
        if UUID(event.tenant_id) not in history.accounts.prepaid or left > 0:
            yield Violation("balance", f"{event.type} (version {event.version}) when {left} were left")


def check_refusals(history: History) -> Iterator[Violation]:
    """From the event `balance.depleted` until a top-up or a credit may have come, no create of the tenant succeeds, and the
    event is not repeated.
    """
    keys, events = history.by_key(), list(history.events().values())
    depleted = [event for event in events if event.type == DEPLETED]
    credits_ = [event for event in events if event.data.get("last_proof_of_life_at") is not None]
    for event in depleted:
        if event.at is None:
            continue
        until = _depleted_until(history, keys, event, credits_)
        for other in depleted:
            is_same = other.tenant_id == event.tenant_id and other.version > event.version
            if is_same and other.at is not None and other.at.timestamp() - history.offset_seconds < until:
                yield Violation(
                    "balance",
                    f"{DEPLETED} (version {other.version}) after version {event.version}, and nothing was paid",
                )
        for key, attempts in keys.items():
            done = next((one for one in attempts if one.kind in REFUSED_KINDS and one.outcome is Outcome.DONE), None)
            if done is None or str(history.accounts.owners.get(done.client)) != event.tenant_id:
                continue
            if event.told < attempts[0].began and done.ended < until:
                yield Violation(
                    "balance", f"{key} was done after {event.type} (version {event.version}), and nothing was paid"
                )


def _depleted_until(
    history: History, keys: Mapping[str, list[Attempt]], depleted: Delivery, credits_: Sequence[Delivery]
) -> float:
    """The first instant after the event at which something may have been added to the balance."""
    assert depleted.at is not None, "events of the stream have their time"
    at = depleted.at.timestamp() - history.offset_seconds
    until = float("inf")
    for attempts in keys.values():
        # Of two commands with the same key, sent at once, either may be the one that counts.
        top_ups = [one for one in attempts if one.kind == "top_up" and one.content.split()[1] == depleted.tenant_id]
        done = min((one.ended for one in top_ups if one.outcome is Outcome.DONE), default=float("inf"))
        if top_ups and done > at:
            until = min(until, *(one.began for one in top_ups))
    credited = (
        event.at.timestamp() - history.offset_seconds
        for event in credits_
        if event.version > depleted.version and event.at is not None and event.tenant_id == depleted.tenant_id
    )
    return min(until, *credited, float("inf"))


def _surely_left(history: History, known: Sequence[Interval], tenant_id: UUID, paid_before: float, until: float) -> int:
    """The least that a tenant can have had: payments acknowledged before, less everything that may have been spent until then."""
    left = 0
    done: set[str] = set()
    for attempt in history.attempts:
        if attempt.kind not in PAYMENTS or attempt.content.split()[1] != str(tenant_id) or attempt.key in done:
            continue
        amount = int(attempt.content.split()[2])
        if attempt.kind == "withdraw" and attempt.began < until:
            left -= amount
            done.add(attempt.key)
        elif attempt.kind == "top_up" and attempt.outcome is Outcome.DONE and attempt.ended < paid_before:
            left += amount
            done.add(attempt.key)
    moment = history.moment(until)
    return left - sum(one.cost(moment) for one in known if one.tenant_id == tenant_id)


def _acknowledged(history: History) -> dict[str, tuple[UUID, int]]:
    """Tenant and signed amount of each payment that was acknowledged, by its key."""
    found = {}
    for attempt in history.attempts:
        if attempt.kind in PAYMENTS and attempt.outcome is Outcome.DONE:
            line: dict[str, Any] = json.loads(attempt.answer)
            sign = 1 if line["kind"] == "top_up" else -1
            found[attempt.key] = UUID(line["tenant_id"]), sign * int(line["amount_micro_units"])
    return found


def _signed(line: LedgerLine) -> int:
    return line.amount if line.kind == "top_up" else -line.amount


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
