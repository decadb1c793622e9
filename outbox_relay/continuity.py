"""Continuity: whether the log of this Postgres goes on from what NATS has.

Postgres may have lost what was published: by a restore, a copied data directory, or the promotion of a standby that lagged.
The log's own events would then get the versions of others. NATS is the witness: its stream ends with an event id, and the log
must have the same one at that version. A timeline is not compared, because a copied data directory keeps it.

After a failover under quorum commit nothing is lost, and a relay continues by itself: the log has what NATS has, and every
acknowledged commit, published or not, was confirmed by a standby. That it was a failover and no restore is known to a relay that
has seen the log before it. One that was started since asks PostgreSQL, which knows whether it was promoted out of streaming
replication (decision 0071).
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog
from nats.js.api import StreamInfo

from outbox_relay.link import NatsLink
from outbox_relay.problems import PublishingStopped
from outbox_relay.reading import LogReader, LogStatus
from outbox_relay.settings import Settings

NOT_PROVEN = {
    "system": "it is another database system",
    "asynchronous": "synchronous_standby_names is empty, so commits may be lost that no standby had",
    "behind": "NATS has versions that the log has not",
    "differs": "the log has another event than NATS at the stream's last version",
}
"""Why a new timeline is not continued by itself, by the word of the SQL function `log_resume_timeline`."""

DOUBTS = {
    "unconfirmed": "the commits of the log's writer waited for no standby",
    "timelines": "more than one timeline has begun since",
    "targeted": "this Postgres has recovered to a target, as a restore does",
    "unstreamed": "this Postgres was restored or copied, or was restarted since its promotion",
    "unwitnessed": "NATS holds no version that could be compared",
}
"""Why a relay that was started since cannot tell a failover from a restore, by the word of `log_failover_doubt`, or ours."""

log = structlog.get_logger("publishing")


async def require_same_event(reader: LogReader, link: NatsLink, last_version: int) -> None:
    """Raises `PublishingStopped` unless the stream's last message is the event that the log has at this version.

    Nothing is compared where one of them keeps no event there any more: an empty stream, or a truncated log.
    """
    if last_version == 0:
        return
    published = await link.event_id_at(last_version)
    if published is None:
        return
    logged = await reader.event_id_at(last_version)
    if logged is None or logged == published:
        return
    raise PublishingStopped(
        "diverged",
        f"the stream ends with event {published or 'of another publisher'} at version {last_version}, where the log has "
        f"{logged}: Postgres was restored or copied from an earlier state, or another publisher wrote to the stream. Check it, "
        "then raise the log's versions with `berth events rebuild --accept-timeline`, or, if the stream is wrong, make it "
        "anew with `berth events rebuild --anew`.",
    )


@dataclass(frozen=True)
class Known:
    """What this relay has seen of the log: its writer, its newest version, and whether commits waited for a standby."""

    leader_id: str
    head: int
    waited_for_standbys: bool


async def resume_timeline(reader: LogReader, link: NatsLink, last_version: int, known: Known | None) -> bool:
    """Make this Postgres the log's writer if it is another timeline that goes on from what NATS has; return whether it was one.

    `last_version`: the stream's last sequence. `known`: what this process has seen before; without it PostgreSQL has to show that
    it was promoted when the log's writer was lost. Raises `PublishingStopped` where continuity is not proven.
    """
    status = await reader.read_status()
    if not status.is_foreign:
        return False
    unlike = await _why_unlike(reader, status, known, last_version)
    if unlike is not None:
        raise status.leader_changed(f"{unlike}; versions may have been lost")
    event_id = await link.event_id_at(last_version) if last_version else None
    missing = await reader.resume_timeline(last_version, event_id)
    if missing is not None:
        raise status.leader_changed(f"{NOT_PROVEN[missing]}; versions may have been lost")
    log.warning("timeline_resumed", was=status.written_by, now=status.leader_id, last_version=last_version)
    return True


async def first_difference(reader: LogReader, link: NatsLink, stream: StreamInfo, status: LogStatus) -> int:
    """The first version for which log and stream do not name the same event; the log's next one if they agree.

    Histories that parted stay apart, so bisection finds it.
    """
    low = max(stream.state.first_seq, status.oldest_publishable)
    high = min(stream.state.last_seq, status.head) + 1
    while low < high:
        middle = (low + high) // 2
        if await link.event_id_at(middle) == await reader.event_id_at(middle):
            low = middle + 1
        else:
            high = middle
    return min(max(low, 1), status.head + 1)


@dataclass(frozen=True)
class History:
    """How the log of a Postgres and the stream go together.

    `last`: the stream's last sequence, 0 without a stream. `differs_from`: the first version at which they name different events.
    """

    status: LogStatus
    last: int
    differs_from: int | None


async def compare(settings: Settings, address: str) -> History:
    """Compare stream and log by content. Raises `ServerUnavailable`, and `PublishingStopped` if the log has no head."""
    async with LogReader.connected(address, during_restore=True) as reader, NatsLink.connected(settings) as link:
        stream = await link.stream()
        # The head is read after the stream's end: read the other way round, a busy log would seem to be behind NATS.
        status = await reader.read_status()
        last = 0 if stream is None else stream.state.last_seq
        if stream is None or not stream.state.messages:
            return History(status, last, None)
        differs = await first_difference(reader, link, stream, status)
        return History(status, last, differs if differs <= min(last, status.head) else None)


async def _why_unlike(reader: LogReader, status: LogStatus, known: Known | None, last_version: int) -> str | None:
    """Why the log may lack what its earlier writer had acknowledged; None if nothing says so."""
    if known is not None and known.head > status.head:
        return f"this relay has seen version {known.head}, and the log ends at {status.head}"
    if known is None or known.leader_id != status.written_by:
        doubt = "unwitnessed" if status.head and not last_version else await reader.failover_doubt()
        return doubt and f"this relay has not seen the log under its earlier writer, and {DOUBTS[doubt]}"
    if not known.waited_for_standbys:
        return "synchronous_standby_names was empty before, so commits may be lost that no standby had"
    return None
