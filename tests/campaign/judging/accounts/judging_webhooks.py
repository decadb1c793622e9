"""What must hold of webhooks: every message is a signed event of its tenant, and every event is delivered. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from berth.client import WebhookUnverified, verify_webhook
from tests.campaign.accounts import EVENT_TRUNCATED, Hook, HookDelivery, HookMessage, Pause
from tests.campaign.clients.accounts.receiving import REDIRECTED
from tests.campaign.history import Delivery, History
from tests.campaign.judging.judging_clients import Violation

ATTEMPTS_MAX = 10
FAILED_BY_STATE = frozenset({"webhook_disabled", "webhook_deleted"})
GONE = 410
SENDERS = ("webhooks", "postgres")
"""How the targets of faults begin that may delay an attempt: the sender, its links, PostgreSQL."""
TIMESTAMP_SECONDS_MAX = 60.0
"""A message is sent so soon after it was signed: an attempt takes seconds, and a sender may have been paused meanwhile."""


def judge_webhooks(history: History) -> list[Violation]:
    """Every check on webhooks."""
    checks = (check_signatures, check_contents, check_repetitions, check_pauses, check_deliveries)
    return [violation for check in checks for violation in check(history)]


def check_signatures(history: History) -> Iterator[Violation]:
    """A message is signed by a key of its webhook, and by every key that surely signs at its time."""
    hooks = {hook.name: hook for hook in history.accounts.hooks}
    for message in history.accounts.messages:
        hook = hooks.get(message.hook)
        if hook is None or hook.has_other_keys or not hook.keys:
            continue
        if not any(_is_signed(history, message, key.key) for key in hook.keys):
            yield Violation("webhook signed", f"{message.hook}: message {message.message_id} has no valid signature")
            continue
        grace = history.accounts.hook_grace_seconds
        for number, key in enumerate(hook.keys):
            # The first key signs from the creation on.
            since = key.since_told + grace if number else 0.0
            if since < message.at < key.until_asked and not _is_signed(history, message, key.key):
                yield Violation(
                    "webhook signed", f"{message.hook}: message {message.message_id} is not signed by key {number + 1}"
                )


def _is_signed(history: History, message: HookMessage, key: str) -> bool:
    now = message.at + history.offset_seconds
    try:
        verify_webhook(message.body, message.headers, key, tolerance_seconds=TIMESTAMP_SECONDS_MAX, now_seconds=now)
    except WebhookUnverified:
        return False
    return True


def check_contents(history: History) -> Iterator[Violation]:
    """A message is an event of the log, of its webhook's tenant and types, as NATS has it, after it happened."""
    hooks = {hook.name: hook for hook in history.accounts.hooks}
    events = history.events()
    for message in history.accounts.messages:
        if message.hook == REDIRECTED:
            yield Violation("webhook target", f"a redirect was followed with message {message.message_id}")
            continue
        hook = hooks.get(message.hook)
        if hook is None:
            continue
        document = json.loads(message.body)
        event = events.get(int(document.get("version") or 0))
        if event is None or _differs(document, message, event):
            yield Violation(
                "webhook content",
                f"{message.hook}: message {message.message_id} is not version {document.get('version')}",
            )
        elif event.tenant_id != str(hook.tenant_id):
            yield Violation(
                "webhook tenant",
                f"{message.hook} of tenant {hook.tenant_id} got version {event.version} of {event.tenant_id}",
            )
        elif not _wants(hook, event.type):
            yield Violation("webhook content", f"{message.hook} wants {hook.types} and got {event.type}")
        elif event.at is not None and history.moment(message.at) < event.at:
            yield Violation("webhook content", f"{message.hook}: version {event.version} arrived before it happened")


def _differs(document: Mapping[str, Any], message: HookMessage, event: Delivery) -> bool:
    """Whether a message is another event than the one of its version, or contains something else."""
    told = (message.message_id, document["id"], document["type"], document.get("tenantid"), document["data"])
    meant = (event.event_id, event.event_id, f"berth.{event.type}", event.tenant_id, event.data)
    chained = event.prev_version is None or int(document["prevversion"]) == event.prev_version
    return told != meant or not chained


def _wants(hook: Hook, event_type: str) -> bool:
    return not hook.types or any(
        event_type == wanted or (wanted.endswith(".*") and event_type.startswith(wanted[:-1])) for wanted in hook.types
    )


def check_repetitions(history: History) -> Iterator[Violation]:
    """Each repetition of a message has the same id and the same bytes."""
    first: dict[tuple[str, str], HookMessage] = {}
    for message in history.accounts.messages:
        version = str(json.loads(message.body).get("version"))
        earlier = first.setdefault((message.hook, version), message)
        if (earlier.message_id, earlier.body) != (message.message_id, message.body):
            yield Violation("webhook id", f"{message.hook}: version {version} came as another message than before")


def check_pauses(history: History) -> Iterator[Violation]:
    """Nothing arrives while a webhook is disabled or deleted, or its tenant suspended, except an attempt that was under way."""
    by_hook = _by_hook(history)
    for hook in history.accounts.hooks:
        for pause in hook.pauses:
            late = [one for one in by_hook[hook.name] if one.at < pause.ended_asked and _is_late(history, pause, one)]
            if late:
                seconds = late[-1].at - pause.told
                yield Violation(
                    "webhook stopped", f"{hook.name} got {len(late)} messages until {seconds:.1f} s after its end"
                )


def _is_late(history: History, pause: Pause, message: HookMessage) -> bool:
    since = pause.told - history.accounts.hook_grace_seconds
    hit = any(
        injury.began < message.at and (injury.ended is None or injury.ended > since)
        for injury in history.injuries
        if injury.target.startswith(SENDERS)
    )
    return message.at > pause.told + (
        history.accounts.hook_grace_seconds if hit else history.accounts.hook_calm_seconds
    )


def check_deliveries(history: History) -> Iterator[Violation]:
    """Every event for which a webhook was enabled has one delivery, which succeeded or failed as documented, and no other has."""
    by_hook = _by_hook(history)
    of_tenant: dict[str | None, list[Delivery]] = defaultdict(list)
    for event in history.events().values():
        of_tenant[event.tenant_id].append(event)
    for hook in history.accounts.hooks:
        if hook.deliveries is None or hook.position is None:
            continue
        accepted = {one.message_id for one in by_hook[hook.name] if one.answered is not None and one.answered < 300}
        listed = [one for one in hook.deliveries if one.version is not None]
        yield from _check_coverage(hook, of_tenant[str(hook.tenant_id)], [one.version or 0 for one in listed])
        for delivery in listed:
            if delivery.state == "succeeded" and delivery.event_id not in accepted:
                yield Violation(
                    "webhook delivered",
                    f"{hook.name}: delivery {delivery.number} succeeded, and no response accepted it",
                )
            if not _is_final(history, hook, delivery):
                yield Violation(
                    "webhook delivered",
                    f"{hook.name}: delivery {delivery.number} is {delivery.state} after {delivery.attempts} attempts "
                    f"({delivery.error or delivery.response_status})",
                )


def _check_coverage(hook: Hook, events: Sequence[Delivery], listed: Sequence[int]) -> Iterator[Violation]:
    wanted = {event.version for event in events if _covers(hook, event.version) and _wants(hook, event.type)}
    if missing := sorted(wanted - set(listed)):
        yield Violation("webhook complete", f"{hook.name} has no delivery of {len(missing)} events, first {missing[0]}")
    if surplus := sorted(set(listed) - wanted):
        yield Violation(
            "webhook complete",
            f"{hook.name} has deliveries of {len(surplus)} events that it does not want, first {surplus[0]}",
        )
    if len(listed) != len(set(listed)):
        yield Violation("webhook complete", f"{hook.name} has several deliveries of one event")


def _covers(hook: Hook, version: int) -> bool:
    assert hook.position is not None, "only webhooks that were read are looked at"
    ends = [(span.after, hook.position if span.until is None else span.until) for span in hook.spans]
    return any(after < version <= until for after, until in ends)


def _is_final(history: History, hook: Hook, delivery: HookDelivery) -> bool:
    """Whether a delivery has ended as documented: a webhook that stays enabled delivers everything in the end."""
    if delivery.state == "succeeded":
        return True
    if delivery.error == EVENT_TRUNCATED:
        return history.log_age_seconds_min is not None
    by_attempts = delivery.attempts >= ATTEMPTS_MAX or delivery.response_status == GONE
    return delivery.state == "failed" and (by_attempts or delivery.error in FAILED_BY_STATE)


def _by_hook(history: History) -> dict[str, list[HookMessage]]:
    found: dict[str, list[HookMessage]] = defaultdict(list)
    for message in history.accounts.messages:
        found[message.hook].append(message)
    return found
