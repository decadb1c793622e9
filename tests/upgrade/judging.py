"""Judges what clients were answered while processes were exchanged. Pure: a history in, violations out.

A process that is replaced takes no new connections, and answers every request that it has: a connection that ends under a request
is a violation. The last release ends such connections when it is stopped, so that its processes are excused, and no others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tests.campaign.history import Attempt, Outcome
from tests.campaign.judging.judging_clients import Violation
from tests.campaign.listening.records import Session

FINE = frozenset({Outcome.DONE, Outcome.REFUSED, Outcome.FENCED, Outcome.CONFLICT, Outcome.IN_PROGRESS})
RETRIED = frozenset({"overloaded", "database_unavailable"})
"""Codes of answers 503 without effect."""
AS_WITHOUT_AN_UPGRADE = frozenset({"rate_limited"})
"""Of tenants that use up low limits on purpose."""
NEVER_SENT = "unreachable"
"""The library's code where no connection was made."""
SOCKET_ENDED = "http_500"
"""How a listener that is stopped ends a handshake of a socket that the application has not answered."""


@dataclass(frozen=True)
class Exchange:
    """A process was ended at `began`, and one of the other version was ready at `ended`, by the monotonic clock.

    `url`: of an API. `of_release`: whether the process that was ended had the code of the last release.
    """

    process: str
    url: str | None
    of_release: bool
    began: float
    ended: float

    def overlaps(self, began: float, ended: float) -> bool:
        """Whether a request of this time may have met it."""
        return self.began <= ended and began <= self.ended


def exchanges_met(exchanges: Sequence[Exchange], url: str, began: float, ended: float) -> list[Exchange]:
    """The exchanges of the process at this address that a request of this time may have met."""
    return [one for one in exchanges if one.url == url and one.overlaps(began, ended)]


def judge_requests(attempts: Iterable[Attempt], exchanges: Sequence[Exchange]) -> Iterator[Violation]:
    """A request ends as without an upgrade, or is answered 503 and repeated.

    Without a balancer before the API a connection is refused while its process is exchanged; it is excused then and there alone.
    """
    for attempt in attempts:
        if attempt.outcome in FINE or attempt.code in RETRIED | AS_WITHOUT_AN_UPGRADE:
            continue
        met = exchanges_met(exchanges, attempt.url, attempt.began, attempt.ended)
        if met and attempt.code == NEVER_SENT:
            continue
        if attempt.outcome is Outcome.UNKNOWN and any(one.of_release for one in met):
            continue
        where = f"while {met[0].process} was exchanged" if met else "while its process ran"
        yield Violation(
            "request", f"{attempt.kind} of {attempt.client} {where}: {attempt.outcome} {attempt.code} {attempt.answer}"
        )


def judge_sockets(sessions: Iterable[Session], exchanges: Sequence[Exchange]) -> Iterator[Violation]:
    """A handshake that was ended with 500 met a process of the release that was stopped."""
    for session in sessions:
        if session.refused != SOCKET_ENDED:
            continue
        met = exchanges_met(exchanges, session.url, session.began, session.ended or session.began)
        if not any(one.of_release for one in met):
            yield Violation("refused with a cause", f"{session.subscriber} was refused: {session.refused}")


def is_judged_here(violation: Violation) -> bool:
    """Whether a violation that a campaign's judges have found is one of those that `judge_sockets` evaluates by process."""
    ended = violation.sentence.endswith(f"was refused: {SOCKET_ENDED}")
    counted = violation.sentence.endswith(f"reads ended as 'subscribe {SOCKET_ENDED}'")
    return (violation.check, ended) == ("refused with a cause", True) or (violation.check, counted) == (
        "foreseen",
        True,
    )
