"""A certificate that was revoked is accepted for nothing: by what was tried with it, and by the events. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from uuid import UUID

from tests.campaign.history import History, Outcome
from tests.campaign.judging.judging_clients import Violation

ENDING = frozenset({"revoke", "retire"})


def check_uses(history: History) -> Iterator[Violation]:
    """From the response to a revocation, or to a retirement, on, no request with an earlier certificate is accepted.

    The listener reads the certificate's row on each call, so there is no delay. A certificate is earlier if it was used before.
    """
    revoked: dict[UUID, list[float]] = defaultdict(list)
    for attempts in history.by_key().values():
        done = [attempt for attempt in attempts if attempt.kind in ENDING and attempt.outcome is Outcome.DONE]
        if done:
            # A repetition revokes nothing: the certificate may be that of a later enrolment.
            node_id = UUID(json.loads(done[0].content)["subject"].removeprefix("nodes/"))
            revoked[node_id].append(min(attempt.ended for attempt in done))
    first_used: dict[str, float] = {}
    for use in sorted(history.fleet.uses, key=lambda use: use.asked):
        known_since = first_used.setdefault(use.serial, use.asked)
        if use.is_accepted and any(known_since < at < use.asked for at in revoked[use.node_id]):
            yield Violation("revoked", f"{use.path} accepted certificate {use.serial} of {use.node_id} after its end")


def check_successors(history: History) -> Iterator[Violation]:
    """In the order of the events, a revoked certificate has no successor any more, and no certificate has two."""
    live: dict[str, set[str]] = defaultdict(set)
    ended: set[str] = set()
    succeeded: set[str] = set()
    events = history.events()
    for version in sorted(events):
        event = events[version]
        node_id = str(event.data.get("node_id"))
        if event.type in ("node.certificates_revoked", "node.retired", "node.enrolled"):
            ended |= live.pop(node_id, set())
        elif event.type == "node.certificate_issued":
            predecessor = event.data.get("predecessor")
            if predecessor in ended or predecessor in succeeded:
                why = "revoked" if predecessor in ended else "succeeded already"
                yield Violation("revoked", f"version {version}: {predecessor} of {node_id} was {why}, and was renewed")
            if predecessor is not None:
                succeeded.add(predecessor)
            live[node_id].add(event.data["serial"])
