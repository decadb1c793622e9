"""Operations on the catalogue: each has effect once, what was retired is not sold, and a price stays that of the create. Pure."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tests.campaign.fleet_history import CATALOGUE_KINDS
from tests.campaign.history import Attempt, History, Outcome
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.judging.judging_events import ACTIVE


@dataclass(frozen=True)
class Change:
    """A write that was done, over all attempts of its key. `began`: its first attempt; `ended`: its first response."""

    key: str
    kind: str
    subject: str
    began: float
    ended: float
    answer: dict[str, Any]


def changes_of(history: History) -> dict[str, list[Change]]:
    """The changes of each subject, in order: an operator begins the next one after the response to the last."""
    found: dict[str, list[Change]] = defaultdict(list)
    for key, attempts in history.by_key().items():
        done = [attempt for attempt in attempts if attempt.outcome is Outcome.DONE]
        if done and done[0].kind in CATALOGUE_KINDS:
            subject = str(asked_of(done[0])["subject"])
            ended = min(attempt.ended for attempt in done)
            change = Change(key, done[0].kind, subject, attempts[0].began, ended, json.loads(done[0].answer or "{}"))
            found[subject].append(change)
    return {subject: sorted(changes, key=lambda change: change.began) for subject, changes in found.items()}


def asked_of(attempt: Attempt) -> dict[str, Any]:
    """The content of a write; nothing if it is not a JSON object."""
    try:
        asked = json.loads(attempt.content)
    except ValueError:
        return {}
    return asked if isinstance(asked, dict) else {}


def check_changes(history: History) -> Iterator[Violation]:
    """What was written last is what is read in the end, and the audit has each change once."""
    # A request that no operation records has another code.
    done = [entry for entry in history.fleet.audited if entry.code == "ok"]
    entries = Counter((entry.key, entry.subject) for entry in done)
    alone = [entry for entry in done if entry.key is None]
    for subject, changes in changes_of(history).items():
        if subject in history.fleet.documents:
            last, read = changes[-1], history.fleet.documents[subject]
            expected = None if last.kind == "delete_image" else last.answer
            if read != expected:
                yield Violation("catalogue", f"{subject} is {read} in the end, and {last.key} had made it {expected}")
        if not history.fleet.audited:
            continue
        for change in changes:
            count = entries[change.key, subject]
            if count != 1:
                yield Violation(
                    "catalogue", f"{change.key} ({change.kind} {subject}) was done {count} times by the audit"
                )
        for entry in alone:
            if entry.subject == subject:
                yield Violation("catalogue", f"{entry.action} of {subject} was done without a key: {entry.detail}")


def check_offers_ended(history: History) -> Iterator[Violation]:
    """A create that began after the response to a retirement, and ended before the next change began, is refused."""
    changes = changes_of(history)
    for key, attempts in history.by_key().items():
        done = [attempt for attempt in attempts if attempt.kind == "create" and attempt.outcome is Outcome.DONE]
        if not done:
            continue
        asked = asked_of(done[0])
        for subject in (f"skus/{asked.get('sku')}", f"images/{asked.get('image')}"):
            retired = _in_force(changes.get(subject, []), attempts[0], done[0])
            if retired is not None and retired.answer.get("state", "retired") == "retired":
                yield Violation("retired, not sold", f"{key}: a create with {subject} was done after {retired.key}")


def _in_force(changes: list[Change], first: Attempt, done: Attempt) -> Change | None:
    """The change that was in force from the beginning of the first attempt to the response; None if that is not known."""
    before = [change for change in changes if change.began < done.ended]
    return before[-1] if before and before[-1].ended < first.began else None


def check_prices(history: History) -> Iterator[Violation]:
    """An allocation is metered by the version of its SKU's price that was in force at some moment of its create."""
    sold = {
        event.allocation_id: (str(event.data["sku"]), int(event.data["price_version"]))
        for event in history.events().values()
        if event.type == ACTIVE and "price_version" in event.data
    }
    changes = changes_of(history)
    for key, attempts in history.by_key().items():
        done = [attempt for attempt in attempts if attempt.kind == "create" and attempt.outcome is Outcome.DONE]
        if not done or done[0].allocation_id not in sold:
            continue
        sku, version = sold[_known(done[0].allocation_id)]
        possible = _versions(changes.get(f"skus/{sku}", []), attempts[0].began, done[0].ended)
        if possible and version not in possible:
            yield Violation("price kept", f"{key}: {sku} was sold at price version {version}, in force was {possible}")


def _versions(changes: list[Change], began: float, ended: float) -> list[int]:
    """The price versions that may have been in force between the two; nothing if that is not known."""
    known_before = [change for change in changes if change.ended < began]
    during = [change for change in changes if change.ended >= began and change.began <= ended]
    if not known_before:
        return []
    return [int(change.answer["price_version"]) for change in (known_before[-1], *during)]


def _known(allocation_id: UUID | None) -> UUID:
    assert allocation_id is not None, "it was found by its id"
    return allocation_id
