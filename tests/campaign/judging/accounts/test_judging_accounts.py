"""Each check on webhooks, money and quotas finds what it is for, and finds nothing in a history in which all was well."""

from __future__ import annotations

import base64
import dataclasses
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.webhooks.signatures import signature_header
from tests.campaign.accounts import (
    Books,
    EnabledSpan,
    Hook,
    HookDelivery,
    HookMessage,
    LedgerLine,
    Limited,
    Pause,
    QuotaLimit,
    RateLimit,
    SigningKey,
    UsageSeen,
)
from tests.campaign.clients.accounts.receiving import REDIRECTED
from tests.campaign.history import Attempt, Delivery, History, Injury, Outcome
from tests.campaign.judging.accounts.judging_ledger import check_refusals, judge_ledger
from tests.campaign.judging.accounts.judging_quotas import judge_quotas
from tests.campaign.judging.accounts.judging_webhooks import judge_webhooks

TENANT, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
ALLOCATION = uuid.UUID(int=3)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ACTIVE_AT, RELEASING_AT = NOON + timedelta(seconds=10), NOON + timedelta(seconds=14, microseconds=1)
PRICE, GPUS = 1_000_000, 2
COST = 8_000_002
PAID = 10_000_000
KEY, OLDER_KEY = (f"whsec_{base64.b64encode(bytes([n]) * 24).decode()}" for n in (1, 2))
CLIENT = "client"


def event(version: int, kind: str, at: datetime, tenant: uuid.UUID = TENANT, **data: Any) -> Delivery:
    told = (at - NOON).total_seconds()
    return Delivery(version, version, f"event {version}", kind, None, data, at, str(tenant), version - 1, told)


def message(of: Delivery, hook: str = "/hook", *, key: str = KEY, at: float = 30.0, **changes: Any) -> HookMessage:
    document = {
        "id": of.event_id, "type": f"berth.{of.type}", "tenantid": of.tenant_id, "version": str(of.version),
        "prevversion": str(of.prev_version), "data": of.data, **changes,
    }  # fmt: skip
    body = json.dumps(document).encode()
    timestamp = int(NOON.timestamp() + at)
    headers = {
        "webhook-id": document["id"], "webhook-timestamp": str(timestamp),
        "webhook-signature": signature_header([key], document["id"], timestamp, body),
    }  # fmt: skip
    return HookMessage(hook, at, headers, body, 204)


def attempt(key: str, kind: Any, at: float, content: str = "content", **changes: Any) -> Attempt:
    told = Attempt(key, kind, CLIENT, content, at, at + 0.5, Outcome.DONE, "ok", "answer")
    return dataclasses.replace(told, **changes)


def payment(key: str, at: float, amount: int, kind: Any = "top_up") -> Attempt:
    line = {"id": 1, "tenant_id": str(TENANT), "kind": kind, "amount_micro_units": amount}
    return attempt(key, kind, at, f"{kind} {TENANT} {amount}", answer=json.dumps(line))


def well() -> History:
    """A tenant pays, rents two GPUs and gives them back; its webhook got every event."""
    history = History(seed=0, began=0.0, offset_seconds=NOON.timestamp())
    subject: dict[str, Any] = {"allocation_id": str(ALLOCATION)}
    history.deliveries = [
        event(1, "provisioning.requested", NOON + timedelta(seconds=5), gpus=GPUS, **subject),
        event(
            2,
            "provisioning.active",
            ACTIVE_AT,
            gpus=GPUS,
            sku="sku",
            price_version=1,
            active_at=ACTIVE_AT.isoformat(),
            **subject,
        ),
        event(3, "provisioning.releasing.requested", RELEASING_AT, releasing_at=RELEASING_AT.isoformat(), **subject),
        event(4, "provisioning.releasing.completed", NOON + timedelta(seconds=20), **subject),
        event(5, "provisioning.requested", NOON + timedelta(seconds=21), OTHER, gpus=GPUS),
    ]
    history.attempts = [payment("paid", 1.0, PAID), attempt("made", "create", 5.0, allocation_id=ALLOCATION)]
    accounts = history.accounts
    accounts.hook_grace_seconds, accounts.hook_calm_seconds = 4.0, 1.0
    deliveries = [HookDelivery(n, n, f"event {n}", "succeeded", 1, None, 204) for n in range(1, 5)]
    accounts.hooks = [
        Hook(
            "/hook",
            TENANT,
            (),
            uuid.UUID(int=9),
            [EnabledSpan(0)],
            [SigningKey(KEY, 0.0)],
            position=5,
            deliveries=deliveries,
        )
    ]
    accounts.messages = [message(one, at=30.0 + one.version) for one in history.deliveries[:4]]
    accounts.prices, accounts.prepaid, accounts.owners = {("sku", 1): PRICE}, {TENANT}, {CLIENT: TENANT}
    accounts.books = Books(
        [
            LedgerLine(TENANT, "top_up", PAID, None, None, None, "paid"),
            LedgerLine(TENANT, "usage", COST, ALLOCATION, ACTIVE_AT, RELEASING_AT, None),
        ],
        {TENANT: PAID - COST},
        [UsageSeen(ALLOCATION, ACTIVE_AT, RELEASING_AT, COST)],
    )
    accounts.quotas = [QuotaLimit(TENANT, "gpus", GPUS), QuotaLimit(TENANT, "webhooks", 1)]
    accounts.used = {TENANT: {"gpus": 0, "reservations": 0, "webhooks": 0}}
    accounts.rate = RateLimit(frozenset({"slow"}), 1.0, 2.0, 1)
    return history


def found(history: History) -> set[str]:
    judges = (judge_webhooks, judge_ledger, judge_quotas)
    return {violation.check for judge in judges for violation in judge(history)}


def test_nothing_is_found_where_all_is_well() -> None:
    assert found(well()) == set()


def test_repetitions_of_a_message_and_of_a_payment_are_well() -> None:
    history = well()
    history.accounts.messages.append(message(history.deliveries[0], at=40.0))
    history.accounts.messages[0].answered = 500
    history.attempts.append(payment("paid", 3.0, PAID))
    assert found(history) == set()


def hook(**changes: Any) -> Callable[[History], None]:
    def apply(history: History) -> None:
        for name, value in changes.items():
            setattr(history.accounts.hooks[0], name, value)

    return apply


def delivery(index: int, **changes: Any) -> Callable[[History], None]:
    def apply(history: History) -> None:
        listed = history.accounts.hooks[0].deliveries
        assert listed is not None
        listed[index] = dataclasses.replace(listed[index], **changes)

    return apply


def sent(number: int, *arguments: Any, **changes: Any) -> Callable[[History], None]:
    """One more message of the event with this number."""
    return lambda history: history.accounts.messages.append(message(history.deliveries[number], *arguments, **changes))


def line(index: int, **changes: Any) -> Callable[[History], None]:
    def apply(history: History) -> None:
        lines = books_of(history).lines
        lines[index] = dataclasses.replace(lines[index], **changes)

    return apply


def one_line_more(index: int) -> Callable[[History], None]:
    def apply(history: History) -> None:
        books_of(history).lines.append(books_of(history).lines[index])

    return apply


def write(*attempts: Attempt) -> Callable[[History], None]:
    return lambda history: history.attempts.extend(attempts)


def arrive(*events: Delivery) -> Callable[[History], None]:
    return lambda history: history.deliveries.extend(events)


def forget_delivery(history: History) -> None:
    listed = history.accounts.hooks[0].deliveries
    assert listed is not None
    del listed[1]


def refuse_every_message(history: History) -> None:
    for one in history.accounts.messages:
        one.answered = 500


def late_after_a_fault_of_a_worker(history: History) -> None:
    hook(pauses=[Pause(31.0)])(history)
    history.injuries.append(Injury("pause", "worker", 30.0, 30.0, 33.0))


def books_of(history: History) -> Books:
    assert history.accounts.books is not None
    return history.accounts.books


def create_when_depleted(history: History) -> None:
    arrive(DEPLETED)(history)
    write(attempt("late", "create", 23.0, allocation_id=SECOND))(history)


def use(**used: int) -> Callable[[History], None]:
    return lambda history: history.accounts.used[TENANT].update(used)


def read_limited(history: History) -> None:
    history.accounts.limited.append(Limited(CLIENT, "get"))


def refused_for_balance(at: float) -> Callable[[History], None]:
    return write(attempt("refused", "create", at, outcome=Outcome.REFUSED, code="balance_depleted"))


def flood(*, kill_at: float | None = None) -> Callable[[History], None]:
    """Five writes in a second where three are let in."""

    def apply(history: History) -> None:
        history.attempts += [
            attempt(f"slow {n}", "update", 50.0, client="slow", outcome=Outcome.REFUSED, code="invalid_state")
            for n in range(5)
        ]
        if kill_at is not None:
            history.injuries.append(Injury("kill", "api", kill_at, kill_at, kill_at + 1.0))

    return apply


SECOND = uuid.UUID(int=4)
DEPLETED = event(6, "balance.depleted", NOON + timedelta(seconds=22))
ROUTES: list[tuple[str, str, Callable[[History], None]]] = [
    ("a message has another key's signature", "webhook signed", sent(0, key=OLDER_KEY)),
    ("a message is signed long before it came", "webhook signed", lambda h: setattr(h.accounts.messages[0], "at", 200.0)),
    (
        "a new key does not sign", "webhook signed",
        lambda h: h.accounts.hooks[0].keys.append(SigningKey(OLDER_KEY, 10.0)),
    ),
    ("a message of another tenant", "webhook tenant", sent(4)),
    ("a message of no event", "webhook content", sent(0, id="event 9")),
    ("a message with other content", "webhook content", sent(0, data={})),
    ("a message with another predecessor", "webhook content", sent(1, prevversion="0")),
    ("a message of a type that is not wanted", "webhook content", hook(types=("provisioning.active",))),
    ("a message before its event", "webhook content", sent(3, at=19.0)),
    ("a redirect is followed", "webhook target", sent(0, REDIRECTED)),
    ("a repetition has another id", "webhook id", sent(0, id="another")),
    ("a message after the webhook was disabled", "webhook stopped", hook(pauses=[Pause(25.0)])),
    (
        "a message after a fault of another process", "webhook stopped",
        late_after_a_fault_of_a_worker,
    ),
    ("an event has no delivery", "webhook complete", forget_delivery),
    ("an event has two deliveries", "webhook complete", delivery(1, version=1)),
    ("a delivery from before the webhook was enabled", "webhook complete", hook(spans=[EnabledSpan(1)])),
    ("a delivery from after it was disabled", "webhook complete", hook(spans=[EnabledSpan(0, 2)])),
    ("a delivery succeeded without a response", "webhook delivered", refuse_every_message),
    ("a delivery still waits", "webhook delivered", delivery(0, state="pending")),
    ("a delivery failed for no documented reason", "webhook delivered", delivery(0, state="failed", error="timeout")),
    ("an interval is charged twice", "ledger", one_line_more(1)),
    ("an interval is charged one unit too much", "ledger", line(1, amount=COST + 1)),
    ("an interval is charged before it is active", "ledger", line(1, starts_at=NOON)),
    ("an interval is charged after its end", "ledger", line(1, ends_at=RELEASING_AT + timedelta(microseconds=1))),
    ("what was never active is charged", "ledger", line(1, allocation_id=SECOND)),
    ("an interval is credited without an outage", "ledger", line(1, kind="credit")),
    ("usage is not what the events say", "ledger", lambda h: books_of(h).usage.append(UsageSeen(ALLOCATION, NOON, NOON, 0))),
    ("a payment has two lines", "paid once", one_line_more(0)),
    ("a payment has no line", "paid once", write(payment("lost", 40.0, 5))),
    ("a line of a payment that was refused", "paid once", line(0, operation_key="refused")),
    ("a balance is not the sum", "balance", lambda h: books_of(h).settled.update({TENANT: PAID})),
    ("refused with something left", "balance", refused_for_balance(3.0)),
    ("depleted with something left", "balance", arrive(DEPLETED)),
    (
        "released by billing with something left", "balance",
        arrive(event(6, "provisioning.releasing.requested", NOON + timedelta(seconds=22), reason="balance_depleted")),
    ),
    (
        "a create after the depletion", "balance",
        create_when_depleted,
    ),
    (
        "more GPUs than the quota", "quota kept",
        arrive(event(6, "provisioning.requested", NOON + timedelta(seconds=11), gpus=1, allocation_id=str(SECOND))),
    ),
    (
        "more GPUs with a hold than the quota", "quota kept",
        arrive(event(6, "reservation.held", NOON + timedelta(seconds=11), gpus_held=1, reservation_id=str(SECOND))),
    ),
    (
        "more webhooks than the quota", "quota kept",
        write(*(attempt(f"hook {n}", "hook", 40.0 + n, answer=f'{{"id":"{n}"}}') for n in range(2))),
    ),
    ("GPUs are not returned", "quota returned", use(gpus=1)),
    ("reservations are not returned", "quota returned", use(reservations=1)),
    ("webhooks are not returned", "quota returned", use(webhooks=1)),
    ("429 for another tenant", "limited", write(attempt("other", "update", 40.0, code="rate_limited", outcome=Outcome.NOT_DONE))),
    (
        "429 for a release", "limited",
        write(attempt("end", "release", 40.0, client="slow", code="rate_limited", outcome=Outcome.NOT_DONE)),
    ),
    ("429 for another tenant's read", "limited", read_limited),
    ("more writes than the rate", "limited", flood()),
]  # fmt: skip


@pytest.mark.parametrize(("what", "check", "spoil"), ROUTES, ids=[what for what, _, _ in ROUTES])
def test_what_is_broken_is_found(what: str, check: str, spoil: Callable[[History], None]) -> None:
    history = well()
    spoil(history)
    assert check in found(history)


def test_what_is_allowed_is_not_found() -> None:
    history = well()
    flood(kill_at=49.0)(history)
    write(attempt("limited", "update", 60.0, client="slow", code="rate_limited", outcome=Outcome.NOT_DONE))(history)
    hook(pauses=[Pause(25.0, 30.0), Pause(33.5)])(history)
    assert found(history) == set()


def test_a_removal_that_was_never_acknowledged_may_have_left_its_webhook() -> None:
    history = well()
    made = attempt("hook 1", "hook", 40.0, answer='{"id":"h1"}')
    removed = attempt("gone", "hook_delete", 41.0, "delete hook h1", outcome=Outcome.UNKNOWN)
    write(made, removed)(history)
    for left in (0, 1):
        use(webhooks=left)(history)
        assert found(history) == set()
    write(dataclasses.replace(removed, outcome=Outcome.DONE))(history)
    assert found(history) == {"quota returned"}
    history.attempts[-2:] = [dataclasses.replace(removed, outcome=Outcome.FENCED)]
    assert found(history) == set(), "it surely was not removed"
    use(webhooks=0)(history)
    assert found(history) == {"quota returned"}


def test_of_two_payments_with_one_key_the_one_that_was_made_counts() -> None:
    history = well()
    create_when_depleted(history)
    other = payment("both", 22.6, COST, "withdraw")
    write(dataclasses.replace(other, outcome=Outcome.CONFLICT), payment("both", 22.6, COST))(history)
    assert list(check_refusals(history)) == []


def test_a_key_that_the_owner_was_never_given_may_sign() -> None:
    history = well()
    sent(0, key=OLDER_KEY)(history)
    hook(has_other_keys=True)(history)
    assert found(history) == set()


def test_a_message_may_be_late_after_a_fault_of_its_sender() -> None:
    history = well()
    hook(pauses=[Pause(31.0)])(history)
    history.injuries.append(Injury("pause", "webhooks", 30.0, 30.0, 33.0))
    assert found(history) == set()


def test_a_depletion_is_emitted_once() -> None:
    history = well()
    books = books_of(history)
    history.attempts.append(payment("back", 2.0, PAID - COST, "withdraw"))
    books.lines.append(LedgerLine(TENANT, "withdrawal", PAID - COST, None, None, None, "back"))
    books.settled[TENANT] = 0
    arrive(DEPLETED)(history)
    hook(types=("provisioning.*",))(history)
    assert found(history) == set()
    arrive(dataclasses.replace(DEPLETED, version=7, sequence=7, event_id="event 7"))(history)
    assert found(history) == {"balance"}


def test_an_outage_that_has_ended_is_credited_once() -> None:
    history = well()
    outage: dict[str, Any] = {
        "allocation_id": str(ALLOCATION), "cause": "node_silent", "lost_at": None,
        "last_proof_of_life_at": (ACTIVE_AT + timedelta(seconds=1)).isoformat(),
        "recovered_at": (ACTIVE_AT + timedelta(seconds=3)).isoformat(),
    }  # fmt: skip
    recovered = event(3, "allocation.recovered", ACTIVE_AT + timedelta(seconds=3), **outage)
    later = [dataclasses.replace(one, version=one.version + 1) for one in history.deliveries[2:]]
    history.deliveries[2:] = [recovered, *later]
    books = books_of(history)
    assert {violation.check for violation in judge_ledger(history)} == {"ledger", "balance"}
    given = 4_000_000
    books.lines.append(LedgerLine(TENANT, "credit", given, ALLOCATION, None, None, None))
    books.settled[TENANT] += given
    assert judge_ledger(history) == []
